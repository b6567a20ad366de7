"""The queue of trials: what goes on after a pause, what is stopped early, and what is tried again."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from labelemb.lab.comparison.protocol import Busy, Done, Failed, Paused, Stopped
from labelemb.lab.comparison.run_order import PlannedRun
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.search.queue import MOST_DEATHS, TrialQueue, best_scores
from labelemb.lab.search.space import STARTS, Space
from labelemb.lab.search.study import Study
from labelemb.lab.tasks.classification import Classification
from labelemb.support.errors import UserError


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path, seed=0, epochs=8, maximise=False, space=Space(10))


def queue_of(study: Study, limit: int | None = None) -> TrialQueue:
    return TrialQueue(study, Classification(), study.folder, limit)


def write_errors(run: PlannedRun, errors: Sequence[float]) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"step": n, "epoch": n, "dev_error": error}) for n, error in enumerate(errors, 1)]
    (run.folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def taken(queue: TrialQueue) -> PlannedRun:
    run = queue.take()
    assert run is not None
    return run


def train_starts(queue: TrialQueue, error: float) -> None:
    """All named methods, from rung to rung to their end."""
    for start in STARTS:
        for epochs in (2, 4, 8):
            run = taken(queue)
            assert run.method == start.name
            assert run.pause_epoch == (epochs if epochs < 8 else 0)
            write_errors(run, [error] * epochs)
            queue.end(run, Paused() if epochs < 8 else Done("a score"))


def test_named_methods_are_trained_to_their_end_and_others_are_stopped_where_they_are_worse(study: Study) -> None:
    queue = queue_of(study)
    train_starts(queue, error=10.0)
    assert {trial.state for trial in study.trials()} == {"complete"}
    worse = taken(queue)
    write_errors(worse, [50.0, 40.0])
    (worse.folder / "checkpoint").write_text("to go on from")
    queue.end(worse, Paused())
    trial = study.trials()[-1]
    assert (trial.state, trial.score, trial.epochs) == ("pruned", 40.0, 2)
    assert not (worse.folder / "checkpoint").exists()
    better = taken(queue)
    write_errors(better, [50.0, 5.0])
    queue.end(better, Paused())
    goes_on = taken(queue)
    assert (goes_on.folder, goes_on.pause_epoch) == (better.folder, 4)


def test_the_best_evaluation_counts_and_not_the_last(study: Study) -> None:
    queue = queue_of(study)
    run = taken(queue)
    write_errors(run, [9.0, 3.0, 5.0, 4.0, 4.0, 4.0, 4.0, 6.0])
    assert list(best_scores(RunFolder(run.folder), Classification()).values()) == [9.0] + [3.0] * 7
    queue.end(run, Done("a score"))
    assert study.trials()[0].score == 3.0


def test_a_trial_whose_worker_died_is_tried_again_but_not_for_ever(study: Study) -> None:
    queue = queue_of(study, limit=1)
    for _ in range(MOST_DEATHS):
        run = taken(queue)
        assert run.method == "plain"
        queue.end(run, Failed("the worker was killed by SIGKILL", died=True))
    assert queue.take() is None
    assert [(trial.state, trial.message) for trial in study.trials()] == [
        ("failed", "the worker was killed by SIGKILL")
    ]


def test_a_trial_that_fails_by_itself_is_not_tried_again(study: Study) -> None:
    queue = queue_of(study, limit=2)
    queue.end(taken(queue), Failed("the loss is not finite", user_error=True))
    assert taken(queue).method == STARTS[1].name
    assert study.trials()[0].state == "failed"


def test_a_stopped_trial_stays_for_the_next_process_and_a_busy_one_comes_back(study: Study) -> None:
    queue = queue_of(study, limit=2)
    run = taken(queue)
    queue.end(run, Busy())
    assert taken(queue) == run
    queue.end(run, Stopped())
    queue.clear()
    assert queue.take() is None
    study.close()
    again = Study(study.folder, seed=0, epochs=8, maximise=False, space=Space(10))
    assert taken(queue_of(again)) == run


def test_a_trial_that_the_disk_stopped_is_tried_again_by_the_next_search(study: Study) -> None:
    queue = queue_of(study, limit=1)
    run = taken(queue)
    with pytest.raises(UserError, match="No space left"):
        queue.end(run, Failed("cannot write x: No space left on device", user_error=True, disk=True))
    study.close()
    again = Study(study.folder, seed=0, epochs=8, maximise=False, space=Space(10))
    assert taken(queue_of(again, limit=1)).method == run.method
    assert [trial.state for trial in again.trials()] == ["running"]

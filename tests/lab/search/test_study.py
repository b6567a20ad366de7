"""The study: every trial once, none lost with its process, and the same proposals for the same seed."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from labelemb.lab.search.space import STARTS, Space
from labelemb.lab.search.study import Halving, Study
from labelemb.support.errors import UserError

# takes the first trial and is gone
DIES = """
import os, sys
from pathlib import Path
from labelemb.lab.search.space import Space
from labelemb.lab.search.study import Study
study = Study(Path(sys.argv[1]), seed=0, epochs=8, maximise=False, space=Space(10))
trial = study.take(None)
study.report(trial.number, {1: 50.0, 2: 40.0})
print(trial.number, trial.method, flush=True)
os._exit(9)
"""


def open_study(folder: Path, seed: int = 0) -> Study:
    return Study(folder, seed=seed, epochs=8, maximise=False, space=Space(10))


def train_all(study: Study, limit: int) -> list[str]:
    """Trials with scores that depend on the method's name alone."""
    methods = []
    while (trial := study.take(limit)) is not None:
        score = float(sum(map(ord, trial.method)) % 97)
        study.report(trial.number, {2: score})
        study.end(trial.number, "complete", score)
        methods.append(trial.method)
    return methods


def test_a_search_begins_with_named_methods_and_tries_none_twice(tmp_path: Path) -> None:
    methods = train_all(open_study(tmp_path), 20)
    assert methods[: len(STARTS)] == [start.name for start in STARTS]
    assert len(methods) == len(set(methods)) == 20


def kinds(methods: list[str]) -> list[str]:
    return [method.partition("@")[0] for method in methods]


def test_after_the_named_methods_the_kinds_take_turns(tmp_path: Path) -> None:
    tried = kinds(train_all(open_study(tmp_path), len(STARTS) + 8)[len(STARTS) :])
    turn = ["label-embedding", "label-smoothing", "label-embedding", "online-smoothing"]
    assert tried == turn * 2


@pytest.mark.parametrize("seed", [0, 1])
def test_repeated_proposals_of_a_kind_do_not_cost_it_its_trials(tmp_path: Path, seed: int) -> None:
    tried = kinds(train_all(open_study(tmp_path, seed), 48))
    assert tried.count("label-smoothing") >= 10, "of 12 strengths and the rising one"
    assert tried.count("online-smoothing") >= 8, "of 13 strengths"
    assert 48 / 2 <= tried.count("label-embedding") <= 30


def test_a_kind_without_anything_left_to_try_does_not_end_the_search(tmp_path: Path) -> None:
    tried = kinds(train_all(open_study(tmp_path), 80))
    assert len(tried) == 80
    assert tried.count("label-smoothing") <= 12 + 1, "the strengths from 0.05 to 0.6, and the rising one"


def test_a_search_among_other_methods_is_not_continued(tmp_path: Path) -> None:
    open_study(tmp_path).close()
    causes = "for data with another number of labels, or of another version of labelemb"
    with pytest.raises(UserError, match=rf"holds a search among other methods: {causes}: choose another --out$"):
        Study(tmp_path, seed=0, epochs=8, maximise=False, space=Space(150))


def test_the_same_seed_proposes_the_same_methods_also_after_stops(tmp_path: Path) -> None:
    whole = train_all(open_study(tmp_path / "whole"), 16)
    parts = []
    for limit in (3, 9, 16):
        study = open_study(tmp_path / "parts")
        parts += train_all(study, limit)
        study.close()
    assert parts == whole
    assert train_all(open_study(tmp_path / "other", seed=1), 16) != whole


def test_a_trial_whose_process_died_is_put_back_with_what_it_reported(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, text=True, check=False)
    assert died.stdout.split() == ["0", "plain"], died.stderr
    study = open_study(tmp_path)
    trial = study.take(1)
    assert trial is not None
    assert (trial.number, trial.method, trial.epochs, trial.score) == (0, "plain", 2, 40.0)
    assert study.take(1) is None, "it counts once"


def test_the_trial_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    one, other = open_study(tmp_path), open_study(tmp_path)
    first, second = one.take(2), other.take(2)
    assert first is not None
    assert second is not None
    assert (first.number, second.number) == (0, 1)
    assert other.take(2) is None
    assert other.others_running()
    one.close()
    put_back = other.take(2)
    assert put_back is not None
    assert put_back.number == 0


def test_a_line_that_a_killed_process_left_half_written_is_dropped(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    train_all(study, 2)
    study.close()
    with (tmp_path / "study.journal").open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    again = open_study(tmp_path)
    assert len(again.trials()) == 2
    train_all(again, 3)
    assert len(open_study(tmp_path).trials()) == 3


def test_a_damaged_journal_and_another_seed_are_errors_of_one_line(tmp_path: Path) -> None:
    open_study(tmp_path / "seed").close()
    with pytest.raises(UserError, match="holds a search with --seed 0, not 3"):
        open_study(tmp_path / "seed", seed=3)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "study.journal").write_text("no\njournal\n")
    with pytest.raises(UserError, match=r"study\.journal is damaged"):
        open_study(tmp_path / "damaged")


def test_optuna_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"labelemb choose needs the package optuna: pip install 'labelemb\[choose\]'"):
        open_study(tmp_path)


def test_the_best_trial_is_the_earlier_of_equal_ones_and_complete(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    for score, state in ((4.0, "complete"), (3.0, "complete"), (3.0, "complete"), (1.0, "pruned")):
        trial = study.take(None)
        assert trial is not None
        study.report(trial.number, {2: score})
        study.end(trial.number, state, score)
    best = study.best()
    assert best is not None
    assert (best.number, best.score) == (1, 3.0)


def test_the_best_simple_trial_is_plain_or_label_smoothing_of_any_strength(tmp_path: Path) -> None:
    study, found = open_study(tmp_path), []
    for score in (9.0, 8.0, 1.0, 2.0, 7.0, 3.0, 4.0, 5.0, 6.0):
        trial = study.take(None)
        assert trial is not None
        study.end(trial.number, "complete", score)
        best = study.best(simple=True)
        assert best is not None
        found.append(best.method)
    assert list(dict.fromkeys(found))[:3] == ["plain", "label-smoothing@0.1", "label-smoothing@rising"]
    assert found[-1].startswith("label-smoothing@0."), "the ninth trial"


def test_the_worse_half_at_a_rung_is_hopeless(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    found = []
    for score in (10.0, 20.0, 5.0, 30.0):
        trial = study.take(None)
        assert trial is not None
        study.report(trial.number, {1: score + 1, 2: score})
        found.append(study.is_hopeless(trial.number))
    assert found == [False, True, False, True]


@pytest.mark.parametrize(("epochs", "rungs"), [(1, []), (3, [1, 2]), (15, [4, 8]), (40, [10, 20]), (30, [8, 16])])
def test_trials_are_compared_after_a_quarter_and_a_half(epochs: int, rungs: list[int]) -> None:
    halving, found = Halving(epochs), []
    while (rung := halving.next_rung(found[-1] if found else 0)) > 0:
        found.append(rung)
    assert found == rungs


@pytest.mark.parametrize(
    ("labels", "embeddings"),
    [
        (10, ["running", "running+prior_rows=10", "dense+embedding_lr=0.05"]),
        (
            150,
            ["running", "running+prior_rows=150", "dense+embedding_lr=0.05", "compressed+rank=75+embedding_lr=0.05"],
        ),
        (9000, ["running", "running+prior_rows=100", "compressed+rank=100+embedding_lr=0.05"]),
    ],
)
def test_embeddings_are_those_that_fit_the_number_of_labels(labels: int, embeddings: list[str]) -> None:
    assert Space(labels).embeddings == embeddings


def test_many_labels_are_not_searched_with_tables_of_labels_by_labels() -> None:
    space = Space(9000)
    assert "online-smoothing" not in space.turns
    assert not any(start.method.startswith("online-smoothing") for start in space.starts)


def test_the_lock_of_a_process_that_was_killed_is_removed_and_no_folder_stays(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], capture_output=True, check=False)
    assert len(list((tmp_path / "owners").iterdir())) == 1
    other, study = open_study(tmp_path), open_study(tmp_path)
    assert len(list((tmp_path / "owners").iterdir())) == 2
    other.close()
    study.close()
    assert not (tmp_path / "owners").exists()


@pytest.mark.parametrize(
    "entry",
    [
        b"[]",
        b'{"op_code": 99}',
        b'{"op_code": 4, "study_id": 0, "intermediate_values": 3}',
        b'{"op_code": 8, "trial_id": 0, "user_attr": {"method": 5}}',
        b'{"op_code": 8, "trial_id": 0, "user_attr": {"method": "plane"}}',
        b'{"op_code": 7, "trial_id": 0, "step": 1, "intermediate_value": NaN}',
        b"\xff\xfe",
    ],
)
def test_a_journal_with_an_entry_that_no_search_writes_is_one_line(tmp_path: Path, entry: bytes) -> None:
    study = open_study(tmp_path)
    assert study.take(None) is not None
    study.close()
    with (tmp_path / "study.journal").open("ab") as journal:
        journal.write(entry.replace(b"{", b'{"worker_id": "x", ', 1) + b"\n")
    with pytest.raises(UserError, match=r"study\.journal is damaged .*choose another --out, or delete it") as found:
        open_study(tmp_path)
    assert str(found.value).isprintable()
    assert not (tmp_path / "owners").exists()


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    study = open_study(tmp_path)
    assert study.take(None) is not None
    monkeypatch.setattr("optuna.storages.journal.JournalFileBackend.append_logs", refuse)
    with pytest.raises(UserError, match=r"cannot write in .*: No space left on device"):
        study.end(0, "failed")

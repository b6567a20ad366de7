"""`reused-labels` in a comparison: whose labels each seed takes, in which order runs go, and what is missing."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from labelemb import LabelSpace
from labelemb.lab.comparison.plan import make_plan
from labelemb.lab.jobs import compare as compare_module
from labelemb.lab.jobs.compare import Comparison, Outcome, check_folder, run_comparison
from labelemb.lab.methods.method import parse_methods
from labelemb.lab.runs.folder import run_folder
from labelemb.lab.runs.labels import LabelSource
from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import assert_same_run, quick_recipe, quick_run

THREE = "reused-labels,plain,label-embedding"  # the first needs the last


def comparison(out: Path, methods: str = THREE, seeds: int = 2, labels: Path | None = None) -> Comparison:
    return Comparison(
        recipe=quick_recipe(),
        methods=parse_methods(methods),
        seeds=range(seeds),
        data=None,
        out=out,
        jobs=1,
        options=RunOptions(threads=1, command="a test"),
        labels=None if labels is None else LabelSource(labels),
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("compare")
    return out, run_comparison(dataclasses.replace(comparison(out), jobs=2))


@pytest.fixture
def copy(finished: tuple[Path, Outcome], tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


def test_each_seed_reuses_the_labels_of_label_embeddings_seed(finished: tuple[Path, Outcome]) -> None:
    out, outcome = finished
    assert outcome.failures == []
    for seed in range(2):
        reused, source = (run_folder(out, method, seed) for method in ("reused-labels", "label-embedding"))
        one, other = (LabelSpace.load(run / "labels.safetensors") for run in (reused, source))
        assert torch.equal(one.matrix(), other.matrix())
        result = json.loads((reused / "result.json").read_text())
        assert result["labels_from"] == f"digits label-embedding seed {seed}"


def test_it_stands_in_summary_table_and_curves_like_any_method(finished: tuple[Path, Outcome]) -> None:
    out, outcome = finished
    assert outcome.summary is not None
    assert list(outcome.summary.methods) == ["plain", "label-embedding", "reused-labels"]
    values = outcome.summary.methods["reused-labels"]
    assert values.against_plain is not None
    assert values.against_plain.n == 2
    assert {"epochs_to_plain", "error_reduction", "fluctuation"} <= set(values.to_json())
    assert "| reused-labels " in (out / "table.md").read_text()
    Image.open(out / "curves.png").verify()


def test_a_run_of_the_comparison_is_the_run_alone(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    labels = LabelSource(run_folder(finished[0], "label-embedding", 1))
    options = RunOptions(threads=1, command="a test")
    quick_run(tmp_path / "alone", method="reused-labels", seed=1, labels=labels, options=options)
    assert_same_run(tmp_path / "alone", run_folder(finished[0], "reused-labels", 1))


def test_runs_wait_for_the_run_whose_labels_they_reuse(tmp_path: Path) -> None:
    plan = make_plan(comparison(tmp_path, "reused-labels,label-embedding,reused-labels@paper,plain", seeds=1))
    reused, source, paper, plain = plan.missing
    assert reused.after == paper.after == source.folder
    assert source.after is plain.after is None
    assert reused.labels is not None
    assert reused.labels.path == source.folder / "labels.safetensors"


def test_labels_of_a_file_are_for_all_seeds_and_wait_for_nothing(finished: tuple[Path, Outcome], copy: Path) -> None:
    file = run_folder(finished[0], "label-embedding", 0) / "labels.safetensors"
    plan = make_plan(comparison(copy / "new", "reused-labels,label-embedding", labels=file))
    reused = [task for task in plan.missing if task.labels is not None]
    assert [task.seed for task in reused] == [0, 1]
    assert {task.labels.path for task in reused if task.labels} == {file}
    assert {task.after for task in plan.missing} == {None}


def test_finished_sources_serve_without_being_compared_again(copy: Path) -> None:
    shutil.rmtree(copy / "reused-labels" / "seed-1")
    plan = make_plan(comparison(copy, "plain,reused-labels"))
    assert [(task.title, task.labels and task.labels.path) for task in plan.missing] == [
        ("reused-labels seed 1", run_folder(copy, "label-embedding", 1) / "labels.safetensors")
    ]


def test_the_only_form_of_label_embedding_is_the_source(tmp_path: Path) -> None:
    plan = make_plan(comparison(tmp_path, "label-embedding@rising-floor,reused-labels", seeds=1))
    assert plan.missing[1].after == run_folder(tmp_path, "label-embedding@rising-floor", 0)
    plan = make_plan(comparison(tmp_path, "label-embedding@paper,label-embedding,reused-labels", seeds=1))
    assert plan.missing[2].after == run_folder(tmp_path, "label-embedding", 0)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("plain,reused-labels", "does not know whose labels: add label-embedding to --methods, or pass --labels FILE"),
        (
            "label-embedding@paper,label-embedding@rising-floor,reused-labels",
            "could mean those of label-embedding@paper or label-embedding@rising-floor: add label-embedding to",
        ),
    ],
)
def test_labels_that_nothing_teaches_are_refused_with_what_to_add(tmp_path: Path, methods: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_comparison(comparison(tmp_path / "out", methods))
    assert not (tmp_path / "out").exists()


def keep_results_only(out: Path) -> None:
    for file in out.glob("*/seed-*/*"):
        if file.name not in ("result.json", "metrics.jsonl"):
            file.unlink()


def test_results_alone_count_as_finished(finished: tuple[Path, Outcome], copy: Path) -> None:
    keep_results_only(copy)
    outcome = run_comparison(comparison(copy))
    assert outcome.failures == []
    assert outcome.summary == finished[1].summary


def test_a_source_that_kept_no_labels_is_said_with_what_to_do(copy: Path) -> None:
    keep_results_only(copy)
    shutil.rmtree(copy / "reused-labels")
    with pytest.raises(
        UserError, match=r"label-embedding/seed-0, .*seed-1, but labels.safetensors was not kept"
    ) as error:
        run_comparison(comparison(copy))
    assert "train them again (with label-embedding in --methods), or pass --labels FILE" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_seed_whose_labels_no_run_learned_is_said_with_what_to_add(copy: Path) -> None:
    with pytest.raises(UserError, match=r"seed-2, which no run has learned: add label-embedding to --methods"):
        make_plan(comparison(copy, "reused-labels", seeds=3))


def test_lost_labels_are_not_mixed_up_with_those_that_no_run_learned(copy: Path) -> None:
    (copy / "label-embedding" / "seed-1" / "labels.safetensors").unlink()
    shutil.rmtree(copy / "reused-labels" / "seed-1")
    with pytest.raises(UserError, match=r"learned in \S+seed-1, but labels.safetensors was not kept") as error:
        make_plan(comparison(copy, "reused-labels", seeds=3))
    assert "seed-2" not in str(error.value)


def test_runs_with_other_labels_are_refused_before_anything_is_trained(
    finished: tuple[Path, Outcome], copy: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.safetensors"
    LabelSpace.from_matrix(torch.eye(10)).save(other)
    with pytest.raises(UserError, match=r"reused-labels/seed-0 holds a run of other labels"):
        run_comparison(comparison(copy, labels=other))
    check_folder(comparison(copy, "plain,label-embedding", seeds=3))  # who does not reuse them need not know them


def test_labels_that_no_method_reuses_are_refused(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="add it to --methods"):
        run_comparison(comparison(tmp_path, "plain", labels=run_folder(finished[0], "label-embedding", 0)))


def test_a_doubt_about_the_labels_is_said_once_for_all_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "expert.csv"
    rows = [",".join(["", *map(str, range(10))])]
    rows += [",".join([str(label), *("2" if other == 0 else "1" for other in range(10))]) for label in range(10)]
    table.write_text("\n".join(rows))
    monkeypatch.setattr(compare_module, "train_missing", lambda comparison, plan: [])
    asked = comparison(tmp_path / "out", "reused-labels", labels=table)
    run_comparison(asked)
    assert capsys.readouterr().err.count("another label is more similar than itself to '1'") == 1
    assert all(task.labels is not None and task.labels.quiet for task in make_plan(asked).missing)

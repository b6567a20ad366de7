"""The job of an audit: folds as planned runs, kept where they are finished, and findings in three files."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from labelemb.lab import audit
from labelemb.lab.comparison.protocol import RunRequest
from labelemb.lab.comparison.run_order import PlannedRun
from labelemb.lab.data import Fold, read_audited
from labelemb.lab.jobs import audit as job
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.tasks.records import from_json, to_json
from labelemb.support.errors import UserError
from tests.helpers.audits import WRONG, even_folds, quick_audit_recipe, write_intents
from tests.helpers.tiny_data import write_image_folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_intents(tmp_path_factory.mktemp("data") / "intents.csv")


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished audit with two folds in one worker process, to look at and not to change."""
    out = tmp_path_factory.mktemp("audit")
    outcome = audit(quick_audit_recipe(), out=out, data=data, folds=2, jobs=1)
    assert outcome.failures == []
    return out


def nothing_trains(*_: object, **__: object) -> None:
    raise AssertionError("a run was trained")


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "audit.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_the_wrong_labels_are_the_most_suspicious_examples(folder: Path) -> None:
    first = rows_of(folder)[: len(WRONG)]
    assert {int(row["index"]) for row in first} == set(WRONG)
    assert {(row["given_label"], row["suggested_label"]) for row in first} == {("alarm", "music"), ("alarm", "weather")}


def test_the_table_has_one_row_an_example_with_its_text(folder: Path) -> None:
    rows = rows_of(folder)
    assert sorted(int(row["index"]) for row in rows) == list(range(36))
    assert next(row["text"] for row in rows if row["index"] == "0") == "music number 0"
    assert all(float(row["loss"]) > 0 for row in rows if row["loss"])  # empty: held back for development


def test_findings_and_how_they_were_made_are_in_json(folder: Path) -> None:
    content = json.loads((folder / "audit.json").read_text())
    assert content["about"]["folds"] == 2
    assert content["about"]["method"] == "label-embedding"
    assert content["summary"]["rows"] == 36
    assert content["pairs"] == [] or content["pairs"][0]["likeness"] is not None
    assert "audit" in (folder / "audit.html").read_text()


def test_finished_folds_are_kept(folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "again")
    before = (folder / "audit.csv").read_bytes()
    monkeypatch.setattr(job, "train_missing", nothing_trains)
    audit(quick_audit_recipe(), out=tmp_path / "again", data=data, folds=2)
    assert (tmp_path / "again" / "audit.csv").read_bytes() == before


def test_a_checkpoint_that_a_kill_left_beside_a_result_is_removed(folder: Path, data: Path, tmp_path: Path) -> None:
    again = shutil.copytree(folder, tmp_path / "again")
    left = again / "label-embedding" / "fold-1-of-2" / "checkpoint"
    left.write_bytes(b"of the last update")
    audit(quick_audit_recipe(), out=again, data=data, folds=2)
    assert not left.exists()


def test_only_missing_folds_are_trained(
    folder: Path, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "again")
    (tmp_path / "again" / "label-embedding" / "fold-2-of-2" / "result.json").unlink()
    planned = []

    def record(comparison: object, plan: job.Plan, title: str) -> list[job.Failure]:
        planned.extend(plan.missing)
        return [job.Failure("fold 2 of 2", "not now", True)]

    monkeypatch.setattr(job, "train_missing", record)
    outcome = audit(quick_audit_recipe(), out=tmp_path / "again", data=data, folds=2)
    assert [run.title for run in planned] == ["label-embedding fold 2 of 2"]
    assert outcome.audit is None


def test_other_data_in_the_folder_is_refused_before_any_training(folder: Path, tmp_path: Path) -> None:
    other = write_intents(tmp_path / "other.csv", extra=[["one more about music", "music"]])
    with pytest.raises(UserError, match="holds a run of other data"):
        audit(quick_audit_recipe(), out=folder, data=other, folds=2)


def test_a_single_training_ranks_by_loss_and_says_that_it_hides_errors(data: Path, tmp_path: Path) -> None:
    outcome = audit(quick_audit_recipe(), out=tmp_path, data=data, folds=1, jobs=1, method="plain")
    assert outcome.audit is not None
    losses = [example.loss for example in outcome.audit.examples]
    assert losses == sorted(losses, reverse=True)
    assert "was trained on them: more labels are wrong than it shows" in str(outcome.audit)


def test_methods_that_reuse_labels_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="audit with label-embedding or plain"):
        audit(quick_audit_recipe(), out=tmp_path, data=data, method="reused-labels")


def test_a_full_disk_leaves_no_empty_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise UserError("cannot write recipe.toml: No space left on device")

    monkeypatch.setattr(job, "keep_recipe", refuse)
    with pytest.raises(UserError, match="No space left"):
        audit(quick_audit_recipe(), out=tmp_path / "new" / "audit", data=data)
    assert not (tmp_path / "new").exists()


def test_a_fold_travels_to_a_worker_process(tmp_path: Path) -> None:
    run = PlannedRun("plain", 0, tmp_path, fold=Fold(1, 3, ("train", "test"), 5))
    assert from_json(json.dumps(to_json(run.to_request())), RunRequest) == run.to_request()


def test_duplicates_that_cross_from_train_to_test_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    train = write_intents(folder / "train.csv").read_text()
    header, first = train.splitlines()[:2]
    (folder / "test.csv").write_text(f"{header}\n{first}\nhow is the weather in may,weather\n")
    read = read_audited(quick_audit_recipe(), folder, 2, ("train",))
    found = job.judge(read, even_folds(read), None)
    assert found.duplicates is not None
    crossing = [duplicate for duplicate in found.duplicates if duplicate.crosses_splits and duplicate.kind == "exact"]
    assert [duplicate.rows for duplicate in crossing] == [(0, 36)]


def test_an_image_is_named_by_its_file(tmp_path: Path) -> None:
    read = read_audited(load_recipe("image-folder"), write_image_folder(tmp_path / "pets"), 2, ("train",))
    found = job.judge(read, even_folds(read), None)
    assert read.files is not None
    assert found.examples[0].input == read.files[found.examples[0].index]

"""Records: what a run writes is read back with its type, and what it did not write is one clear line."""

import json
from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.tasks import make_task, read_result, task_of_result
from labelemb.lab.tasks.classification import Classification, ClassificationEvaluation, ClassificationResult
from labelemb.lab.tasks.records import CurvePoint, RunIdentity, RunResult, from_json, read_record, to_json
from labelemb.lab.tasks.translation import Translation, TranslationEvaluation, TranslationPoint, TranslationResult
from labelemb.support.errors import UserError
from tests.helpers.pages import ROOT
from tests.helpers.quick_runs import made_result
from tests.helpers.report_folders import write_translations


def short_result() -> RunResult:
    """A result with a curve of one epoch."""
    return made_result(curve=[{"epoch": 1, "test_error": 1.0}])


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "result.json"
    file.write_text(json.dumps(to_json(short_result()) | changes))
    return file


def test_a_result_comes_back_as_it_was_written(tmp_path: Path) -> None:
    bins = [{"count": 3, "confidence": 0.5, "accuracy": 1}]
    result = made_result(curve=[{"epoch": 1, "test_error": 2.5}], reliability=bins)
    (tmp_path / "result.json").write_text(json.dumps(to_json(result)))
    assert read_result(tmp_path / "result.json") == result
    assert result.curve == (CurvePoint(epoch=1, test_error=2.5),)


def test_the_task_of_a_file_decides_its_type(tmp_path: Path) -> None:
    file = write_translations(tmp_path, {"plain": 20.0}) / "plain" / "seed-0" / "result.json"
    result = read_result(file)
    assert isinstance(result, TranslationResult)
    assert isinstance(result.curve[0], TranslationPoint)
    assert task_of_result(result).main.reported == "bleu"
    assert isinstance(task_of_result(made_result()), Classification)


def test_a_result_without_a_task_is_of_classification(tmp_path: Path) -> None:
    values = to_json(short_result())
    assert values.pop("task") == "classification"
    (tmp_path / "result.json").write_text(json.dumps(values))
    assert isinstance(read_result(tmp_path / "result.json"), ClassificationResult)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"test_error": "low"}, r"Expected `float`, got `str` - at `\$.test_error`"),
        ({"curve": [{"epoch": 1}]}, r"missing required field `test_error` - at `\$.curve\[0\]`"),
        ({"seed": 1.5}, r"Expected `int`, got `float` - at `\$.seed`"),
        ({"task": "dancing"}, "the task 'dancing' is none of classification, translation"),
        ({"task": "translation", "main_score": "applause"}, "the main score 'applause' is none of bleu, rouge1"),
        ({"examples": []}, r"Expected `object`, got `array` - at `\$.examples`"),
    ],
)
def test_anything_unexpected_in_a_result_is_one_line_with_the_file(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    file = written(tmp_path, **changes)
    with pytest.raises(UserError, match=f"result.json is damaged .*{reason}"):
        read_result(file)


def test_keys_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    assert read_result(written(tmp_path, novelty=1)) == short_result()


def test_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    name = "caf\udce9"  # as Python reads such a file's name
    identity = RunIdentity(recipe=name, fingerprint="f", method="plain", seed=0, version="1")
    (tmp_path / "run.json").write_text(json.dumps(to_json(identity)))
    assert read_record(tmp_path / "run.json", RunIdentity) == identity


@pytest.mark.parametrize(
    "file", sorted((ROOT / "results" / "runs").rglob("seed-0/metrics.jsonl")), ids=lambda file: file.parts[-4]
)
def test_the_evaluations_of_kept_runs_can_be_read(file: Path) -> None:
    result = read_result(file.parent / "result.json")
    kind = task_of_result(result).evaluation_type
    records = [from_json(line, kind) for line in file.read_text().splitlines()]
    assert result.best_step in {record.step for record in records}


def test_a_recipe_knows_its_task_and_score() -> None:
    assert make_task(load_recipe("digits")).evaluation_type is ClassificationEvaluation
    task = make_task(load_recipe("numbers-en-vi", ["decode.metric=rouge1"]))
    assert isinstance(task, Translation)
    assert (task.main.dev_field, task.main.test_field) == ("dev_rouge1_greedy", "test_rouge1")


@pytest.mark.parametrize(
    "task", [Classification(), Translation("bleu"), Translation("rouge1")], ids=lambda task: task.main.title
)
def test_what_a_task_names_is_a_field_of_its_records(task: Classification | Translation) -> None:
    result, evaluation = (kind.__struct_fields__ for kind in (task.result_type, task.evaluation_type))
    assert {task.main.test_field, *task.summarised} <= set(result)
    assert {task.main.dev_field, task.main.curve_field} <= set(evaluation)
    assert task.goal_field in task.curve_type.__struct_fields__
    summarised = {*task.summarised, "epochs_to_plain", "fluctuation"}
    assert {column.field for columns in task.tables() for column in columns if column.field} <= summarised


def test_a_dev_score_of_either_direction_selects_the_better() -> None:
    error, bleu = Classification().main, Translation("bleu").main
    assert error.at_least_as_good(1.0, 2.0)
    assert not error.at_least_as_good(2.0, 1.0)
    assert bleu.at_least_as_good(2.0, 1.0)
    assert TranslationEvaluation(step=1, epoch=1.0).dev_bleu_greedy is None


def test_a_result_without_a_curve_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its curve has no point"):
        read_result(written(tmp_path, curve=[]))

"""`choose`: a search and its test in one folder, which nothing stops for good."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from labelemb.lab.jobs import choose as job
from labelemb.lab.jobs.choose import Choice, choose, show
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.messages import RunOptions
from labelemb.lab.search.space import Space
from labelemb.lab.search.study import Study
from labelemb.support.errors import UserError
from tests.helpers.command import error_line
from tests.helpers.pages import blocks
from tests.helpers.quick_runs import quick_recipe, quick_run

SMALL = ("train.epochs=4", "body.hidden=[16]", "train.lr=0.01")


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Choice:
    """The example of docs/choose.md with three trials, on digits without a dev set, split anew for every seed."""
    [code] = [block.code for block in blocks("docs/choose.md") if block.language == "python"]
    changed = '"train.lr=0.01", "data.dev_size=0", "train.dev=false", "data.split_seed=-1"'
    code = code.replace('"train.epochs=1"', f'"train.epochs=1", {changed}')
    out = tmp_path_factory.mktemp("choice")
    names: dict[str, Any] = {}
    exec(code.replace("trials=2", "trials=3").replace('"runs/choice"', repr(str(out))), names)
    choice = names["choice"]
    assert isinstance(choice, Choice)
    return choice


def test_the_folder_holds_table_picture_recipe_and_python(chosen: Choice) -> None:
    found = json.loads((chosen.out / "choice.json").read_text())
    assert found["method"] == chosen.method
    assert [trial["method"] for trial in found["trials"]] == ["plain", "label-smoothing@0.1", "label-embedding"]
    recipe = load_recipe(str(chosen.out / "choice.toml"))
    assert chosen.method in recipe.methods
    table = (chosen.out / "table.md").read_text()
    assert chosen.reason in table
    assert "\n".join(chosen.code) in table
    Image.open(chosen.out / "trials.png").verify()
    assert (chosen.out / "fresh" / "report.html").exists()


def test_a_terminal_of_80_columns_holds_what_the_verb_prints(chosen: Choice) -> None:
    printed = show(chosen, load_recipe("digits"))
    words, _, code = printed.rpartition("\n\n")
    assert max(map(len, words.splitlines())) <= 80
    assert " ".join(words.split()).endswith(chosen.reason)
    assert code.splitlines() == list(chosen.code)


def test_a_recipe_without_a_dev_set_gets_one_for_the_search_alone(chosen: Choice) -> None:
    searched, tested = (
        json.loads((chosen.out / part / "plain" / f"seed-{seed}" / "result.json").read_text())
        for part, seed in (("search", 0), ("fresh", 1))
    )
    assert searched["examples"]["dev"] > 0
    assert searched["examples"]["dev"] + searched["examples"]["train"] == tested["examples"]["train"]
    assert tested["examples"]["dev"] == 0


def test_data_is_split_once_so_that_nothing_of_the_search_is_tested(chosen: Choice) -> None:
    for file in ("search/recipe.toml", "fresh/recipe.toml", "choice.toml"):
        assert load_recipe(str(chosen.out / file)).data.split_seed == 0


def test_the_seed_is_never_searched_and_the_test_has_others(chosen: Choice) -> None:
    assert {path.name for path in (chosen.out / "search").glob("*/seed-*")} == {"seed-0"}
    assert chosen.summary is not None
    assert chosen.summary.methods["plain"].seeds == [1, 2]
    assert {"plain", "label-smoothing@0.1", chosen.searched} == set(chosen.summary.methods)
    assert chosen.simpler is None, "plain and label smoothing are all that was searched without learning"


def test_a_choice_that_learns_is_tested_beside_the_best_that_learns_nothing(tmp_path: Path) -> None:
    recipe = quick_recipe("train.epochs=1")
    study = Study(tmp_path / "search", seed=0, epochs=1, maximise=False, space=Space(10))
    for error in (9.0, 8.0, 7.0, 3.0, 4.0):
        trial = study.take(None)
        assert trial is not None
        study.report(trial.number, {1: error})
        study.end(trial.number, "complete", error)
    study.close()
    choice = choose(recipe, out=tmp_path, trials=5, fresh_seeds=2, jobs=1)
    assert (choice.searched, choice.simpler) == ("online-smoothing@0.5", "label-smoothing@rising")
    tested = ("plain", "label-smoothing@0.1", "online-smoothing@0.5", "label-smoothing@rising")
    assert choice.summary is not None
    assert {method: values.seeds for method, values in choice.summary.methods.items()} == {
        key: [1, 2] for key in tested
    }
    found = json.loads((tmp_path / "choice.json").read_text())
    assert found["simpler"] == "label-smoothing@rising"
    assert set(found["fresh"]["methods"]) == set(tested)
    assert (tmp_path / "table.md").read_text().count("\n| label-smoothing@rising ") == 1 + 2, "of trials and of tests"


def test_nothing_is_trained_again(chosen: Choice) -> None:
    before = {file: file.stat().st_mtime_ns for file in chosen.out.glob("*/*/seed-*/*")}
    recipe = quick_recipe("train.epochs=1", "data.dev_size=0", "train.dev=false")
    again = choose(recipe, out=chosen.out, trials=3, fresh_seeds=2, jobs=1)
    assert again.to_json() == chosen.to_json()
    assert {file: file.stat().st_mtime_ns for file in chosen.out.glob("*/*/seed-*/*")} == before


def test_a_budget_ends_the_search_with_nothing_lost(tmp_path: Path, capsys: Any) -> None:
    line = error_line(
        capsys,
        "choose",
        "digits",
        "--budget",
        "0.4s",
        "--jobs",
        "1",
        "--out",
        str(tmp_path),
        "--set",
        "train.epochs=5000",
    )
    assert "the budget of 0.4 seconds was over before one training was" in line
    assert "run the command again to go on" in line
    assert (tmp_path / "search" / "study.journal").exists()


def test_the_budget_keeps_time_for_the_fresh_seeds_but_no_more_than_half() -> None:
    search = job.Search(quick_recipe(), None, Path(), None, 100.0, 0, 5, 2, RunOptions(), begun=0.0)
    assert job._reserve(search, 2, longest=0.0) == 50.0, "nothing is known before the first training has ended"
    assert job._reserve(search, 2, longest=2.0) == pytest.approx(22.0)
    assert job._reserve(search, 2, longest=60.0) == 50.0
    assert job._reserve(dataclasses.replace(search, budget=float("inf")), 2, longest=9.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "soon"), "'soon' is not a duration: write 90s, 30m, 2h or 1h30m"),
        (("--budget", "0m"), "'0m' is not a duration"),
        (("--budget", "30"), "'30' is not a duration"),
        (("--trials", "0"), "'0' is not a whole number of at least 1"),
        (("--data", "/no/such/folder"), "digits"),
    ],
)
def test_bad_arguments_are_one_line(arguments: tuple[str, str], message: str, tmp_path: Path, capsys: Any) -> None:
    assert message in error_line(capsys, "choose", "digits", "--out", str(tmp_path / "out"), *arguments)


def test_a_folder_with_other_runs_or_of_another_recipe_is_refused(chosen: Choice, tmp_path: Path, capsys: Any) -> None:
    quick_run(tmp_path / "run", quick_recipe("train.epochs=1"), "plain")
    assert "holds runs that are not a search" in error_line(capsys, "choose", "digits", "--out", str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"is another recipe .*train\.epochs is 1 there and 2 here"):
        choose(quick_recipe("train.epochs=2", "data.dev_size=0", "train.dev=false"), out=chosen.out, jobs=1)
    with pytest.raises(UserError, match="the budget is -1 seconds, but must be above 0"):
        choose(quick_recipe(), out=tmp_path, budget=-1)


def command(out: Path) -> list[str]:
    settings = [word for setting in SMALL for word in ("--set", setting)]
    limits = ["--trials", "9", "--fresh-seeds", "2", "--jobs", "1", "--checkpoint-seconds", "0"]
    return [sys.executable, "-m", "labelemb.lab.cli", "choose", "digits", "--out", str(out), *limits, *settings]


def without_places(out: Path) -> dict[str, Any]:
    found = json.loads((out / "choice.json").read_text())
    for values in found["fresh"]["methods"].values():
        del values["seconds_per_epoch"]
    return found


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_ends_with_the_same_choice(tmp_path: Path) -> None:
    subprocess.run(command(tmp_path / "whole"), check=True, capture_output=True)
    for moment in range(12):
        process = subprocess.Popen(command(tmp_path / "killed"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(3.0 + 0.7 * moment)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            time.sleep(0.5)
    subprocess.run(command(tmp_path / "killed"), check=True, capture_output=True)
    assert without_places(tmp_path / "killed") == without_places(tmp_path / "whole")


@pytest.mark.slow
def test_two_processes_search_one_study_and_try_no_method_twice(tmp_path: Path) -> None:
    processes = [subprocess.Popen(command(tmp_path), stderr=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    trials = json.loads((tmp_path / "choice.json").read_text())["trials"]
    methods = [trial["method"] for trial in trials]
    assert len(methods) == len(set(methods)) == 9
    assert {trial["state"] for trial in trials} <= {"complete", "pruned"}


def test_a_full_disk_leaves_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise UserError("cannot write recipe.toml: No space left on device")

    monkeypatch.setattr(job, "keep_recipe", refuse)
    with pytest.raises(UserError, match="No space left"):
        choose(quick_recipe(*SMALL), out=tmp_path / "new" / "choice", trials=1)
    assert not (tmp_path / "new").exists()

"""Comparisons: everything that was asked for, nothing twice, and nothing lost."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from labelemb.lab.jobs.compare import Comparison, Outcome, check_folder, run_comparison, write_summary
from labelemb.lab.methods.method import parse_methods
from labelemb.lab.runs.folder import run_folder
from labelemb.lab.runs.messages import RunOptions
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import assert_same_run, quick_recipe, quick_run

# keeps the folder of one run until another is finished
HOLDER = """
import sys, time
from pathlib import Path
from labelemb.lab.runs.folder import RunFolder

with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.1)
"""
OVERRIDES = ["train.epochs=3", "body.hidden=[16]", "train.lr=0.01"]  # those of quick_recipe


def comparison(out: Path, methods: str = "plain,label-embedding", seeds: int = 2, *overrides: str) -> Comparison:
    return Comparison(
        recipe=quick_recipe(*overrides),
        methods=parse_methods(methods),
        seeds=range(seeds),
        data=None,
        out=out,
        jobs=1,
        options=RunOptions(threads=1, command="a test"),
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("compare")
    return out, run_comparison(dataclasses.replace(comparison(out), jobs=2))


def modified(out: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in out.glob("*/seed-*/*")}


def test_the_folder_holds_the_runs_and_their_summary(finished: tuple[Path, Outcome]) -> None:
    out, outcome = finished
    assert outcome.failures == []
    assert json.loads((out / "summary.json").read_text()) == outcome.summary.to_json()
    assert outcome.summary is not None
    for method in ("plain", "label-embedding"):
        values = outcome.summary.methods[method].scores["test_error"].values
        results = [json.loads((run_folder(out, method, seed) / "result.json").read_text()) for seed in range(2)]
        assert values == [result["test_error"] for result in results]
        assert {result["machine"]["threads"] for result in results} == {1}
    assert "| label-embedding |" in (out / "table.md").read_text()
    for picture in ("curves.png", "heatmap.png"):
        Image.open(out / picture).verify()


def test_a_run_of_a_comparison_is_the_run_alone(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    quick_run(tmp_path / "alone", method="label-embedding", seed=1, options=RunOptions(threads=1, command="a test"))
    assert_same_run(tmp_path / "alone", run_folder(finished[0], "label-embedding", 1))


@pytest.fixture(scope="module")
def extended(finished: tuple[Path, Outcome], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """The same with two more seeds of plain, of which the first cannot be trained."""
    out = Path(shutil.copytree(finished[0], tmp_path_factory.mktemp("extended") / "copy"))
    (out / "plain" / "seed-2").write_text("a file in the way of the run's folder")
    return out, run_comparison(comparison(out, "plain", 4))


def test_finished_runs_are_kept_and_more_seeds_extend_them(
    finished: tuple[Path, Outcome], extended: tuple[Path, Outcome]
) -> None:
    for file, time in modified(finished[0]).items():
        assert (extended[0] / file.relative_to(finished[0])).stat().st_mtime_ns == time
    summary = extended[1].summary
    assert summary is not None
    assert summary.methods["plain"].seeds == [0, 1, 3]
    assert summary.methods["label-embedding"].seeds == [0, 1], "what else is there stays in the summary"


def test_a_failing_run_does_not_stop_the_others(extended: tuple[Path, Outcome]) -> None:
    assert [failure.run for failure in extended[1].failures] == ["plain seed 2"]
    assert "seed-2" in extended[1].failures[0].message
    assert run_folder(extended[0], "plain", 3).joinpath("result.json").exists()


def test_results_and_metrics_alone_count_as_finished(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    for file in ("result.json", "metrics.jsonl"):
        for path in finished[0].glob(f"*/seed-*/{file}"):
            target = tmp_path / path.relative_to(finished[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    before = modified(tmp_path)
    outcome = run_comparison(comparison(tmp_path))
    assert outcome.summary == finished[1].summary
    assert modified(tmp_path) == before
    assert not (tmp_path / "heatmap.png").exists(), "there is no label space to draw"


def test_a_folder_of_another_recipe_or_version_is_refused(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.epochs is 3 there and 4 here"):
        check_folder(comparison(finished[0], "plain", 2, "train.epochs=4"))
    out = tmp_path / "older"
    shutil.copytree(finished[0], out)
    for path in out.glob("plain/seed-0/*.json"):
        path.write_text(path.read_text().replace('"version": "', '"version": "0.0.'))
    with pytest.raises(UserError, match=r"holds a run of labelemb 0\.0"):
        run_comparison(comparison(out))


def test_a_recipe_in_the_folder_is_kept_if_it_says_the_same_and_else_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    mine = "# chosen with care\n" + quick_recipe("train.epochs=1").to_toml()
    file.write_text(mine)
    with pytest.raises(UserError, match=r"recipe\.toml is another recipe .train\.epochs is 1 there and 2 here"):
        run_comparison(comparison(tmp_path, "plain", 1, "train.epochs=2"))
    with pytest.raises(UserError, match=r"recipe\.toml is another recipe"):
        quick_run(tmp_path, quick_recipe("train.epochs=2"), "plain")
    outcome = run_comparison(comparison(tmp_path, "plain", 1, "train.epochs=1"))
    assert outcome.failures == []
    assert file.read_text() == mine


def test_the_runs_of_another_comparison_are_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, other = run_folder(tmp_path, "plain", 0), run_folder(tmp_path, "label-smoothing", 0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(plain), str(other / "result.json")], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    outcome = run_comparison(comparison(tmp_path, "plain,label-smoothing", 1, "train.epochs=1"))
    assert holder.wait() == 0
    assert outcome.failures == []
    assert outcome.summary is not None
    assert set(outcome.summary.methods) == {"plain", "label-smoothing"}
    assert capsys.readouterr().err.count("plain seed 0: another process is training it") == 1


def test_a_single_run_leaves_a_comparison_in_its_folder_alone(finished: tuple[Path, Outcome]) -> None:
    with pytest.raises(UserError, match="holds a comparison, which a single run would spoil"):
        quick_run(finished[0], method="plain")
    assert not (finished[0] / "run.json").exists()


def test_what_is_wrong_for_all_runs_is_said_before_any_starts(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="method label-embedding@tau=0"):
        run_comparison(comparison(tmp_path, "plain,label-embedding@tau=0"))
    assert not list(tmp_path.iterdir())


def test_a_summary_of_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "plain" / "seed-²").mkdir(parents=True)
    assert write_summary(tmp_path) is None


def children_of(process: subprocess.Popen[str]) -> list[int]:
    listing = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in listing.stdout.split()]


def test_ctrl_c_ends_with_130_and_loses_nothing(tmp_path: Path) -> None:
    settings = [word for override in (*OVERRIDES[1:], "train.epochs=30") for word in ("--set", override)]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "labelemb.lab.cli", "compare", "digits", "--out", str(tmp_path)),
            *("--methods", "plain", "--seeds", "2", "--jobs", "1", *settings),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "[1/2] plain seed 0" in process.stderr.readline()
    children = children_of(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.strip() == "labelemb: interrupted; run the same command again to go on"
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()
    assert run_folder(tmp_path, "plain", 0).joinpath("result.json").exists()
    for out in (run_folder(tmp_path, "plain", 1), tmp_path / "never interrupted"):
        quick_run(out, quick_recipe("train.epochs=30"), "plain", seed=1)
    assert_same_run(run_folder(tmp_path, "plain", 1), tmp_path / "never interrupted")


def test_a_missing_tensorboard_is_said_before_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    asked = comparison(tmp_path, "plain", 1)
    with pytest.raises(UserError, match=r"needs the tensorboard package: pip install 'labelemb\[tensorboard\]'"):
        run_comparison(dataclasses.replace(asked, options=RunOptions(threads=1, trackers=("tensorboard",))))
    assert not (tmp_path / "plain").exists()

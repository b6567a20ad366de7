"""The kept tables of measured results follow from the kept runs, and the pages show them as they are."""

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import audit_trained, calibration, schedules
from labelemb.lab.comparison.summary import read_results
from labelemb.lab.comparison.tables import markdown, render, tables
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.search.advice import advise
from labelemb.lab.tasks.classification import Classification
from tests.helpers.pages import ROOT, text_of

RESULTS = ROOT / "results"
KEPT = sorted(file.parent.name for file in RESULTS.glob("*/summary.json"))
SHOWN = (
    *("mnist-mlp", "clinc150", "clinc150-10", "clinc150-10-vectors", "clinc150-10-minilm"),
    *("mnist-cnn-bf16", "mnist-cnn-narrow"),
    *("cifar10-few", "cifar100-few", "cifar100-small", "cifar100-pretrained"),
    *("multi30k-en-de-small", "en-vi-news-small", "en-vi-all", "zh-titles-small"),
)
"""Comparisons whose tables stand in results/README.md as the command prints them."""
MEASURED = {
    "audit-clinc150": audit_trained,
    "audit-mnist": audit_trained,
    "schedules-clinc150-10": schedules,
    "schedules-clinc150": schedules,
    "calibration-clinc150-10": calibration,
}
"""Scores kept by a benchmark, whose tables stand there too."""


@pytest.mark.parametrize("name", KEPT)
def test_the_kept_summary_and_table_follow_from_the_kept_runs(name: str) -> None:
    summary = read_results(RESULTS / "runs" / name).summary
    assert summary is not None
    kept = json.loads((RESULTS / name / "summary.json").read_text())
    assert json.loads(json.dumps(summary.to_json())) == kept, f"run `python results/refresh.py {name}`"
    assert (RESULTS / name / "table.md").read_text() == render(summary) + "\n"


@pytest.mark.parametrize("folder", sorted((RESULTS / "runs").iterdir()), ids=lambda folder: folder.name)
def test_kept_runs_belong_to_the_recipe_beside_them_and_have_canonical_names(folder: Path) -> None:
    recipe = load_recipe(str(folder / "recipe.toml"))
    for file in folder.glob("*/seed-*/result.json"):
        result = json.loads(file.read_text())
        assert result["fingerprint"] == recipe.fingerprint()
        assert result["method"] == file.parent.parent.name == parse_method(result["method"]).name
        assert result["method_settings"] == json.loads(json.dumps(parse_method(result["method"]).describe()))


@pytest.mark.parametrize(
    ("folder", "name", "overrides"),
    [
        ("mnist-mlp", "mnist-mlp", []),
        ("mnist-cnn-bf16", "mnist-cnn", ["train.precision=bf16-mixed"]),
        ("mnist-cnn-narrow", "mnist-cnn", ["body.width=0.25"]),
        ("clinc150-10", "text-csv", ["data.max_per_label=10"]),
        ("multi30k-en-de-small", "multi30k-en-de-small", []),
    ],
)
def test_kept_runs_can_be_extended_by_the_command_on_the_page(folder: str, name: str, overrides: list[str]) -> None:
    kept = load_recipe(str(RESULTS / "runs" / folder / "recipe.toml"))
    assert load_recipe(name, overrides).fingerprint() == kept.fingerprint()


@pytest.mark.parametrize("name", SHOWN)
def test_the_page_of_results_shows_the_rows_of_the_tables(name: str) -> None:
    shown = set(text_of("results/README.md").splitlines())
    summary = read_results(RESULTS / "runs" / name).summary
    assert summary is not None
    for table in tables(summary):
        lines = [line for line in markdown(table.header, table.rows).splitlines() if "| reused-labels" not in line]
        assert not [line for line in lines if line not in shown]


@pytest.mark.parametrize("name", sorted(folder.name for folder in RESULTS.glob("choose-*")))
def test_the_kept_answer_of_a_search_follows_from_its_fresh_runs_and_stands_on_the_page(name: str) -> None:
    choice = json.loads((RESULTS / name / "choice.json").read_text())
    summary = read_results(RESULTS / "runs" / name).summary
    assert summary is not None
    assert choice["fresh"] == json.loads(json.dumps(summary.to_json()))
    assert choice["reason"] == advise(choice["searched"], summary, Classification.main, choice["simpler"]).reason
    page = text_of("results/README.md")
    assert f"`{choice['searched']}`" in page
    errors = [method["test_error"] for method in choice["fresh"]["methods"].values()]
    assert not [error for error in errors if f"{error['mean']:.2f} ± {error['std']:.2f}" not in page]


@pytest.mark.parametrize(("name", "program"), MEASURED.items())
def test_the_page_of_results_shows_the_kept_scores_of_a_benchmark(name: str, program: Any) -> None:
    shown = set(text_of("results/README.md").splitlines())
    lines = program.table(program.read_scores(RESULTS / "runs" / name)).splitlines()
    assert len(lines) > 2
    assert not [line for line in lines if line not in shown]


@pytest.mark.parametrize(
    ("script", "table", "page"),
    [
        ("sgd.py", "table", "results/README.md"),
        ("headline.py", "readme_table", "README.md"),
        ("headline.py", "peers_table", "docs/peers.md"),
    ],
)
def test_a_page_shows_the_table_that_a_script_prints(script: str, table: str, page: str) -> None:
    shown = set(text_of(page).splitlines())
    lines = runpy.run_path(str(RESULTS / script))[table]().splitlines()
    assert len(lines) > 2
    assert not [line for line in lines if line not in shown]


def test_refresh_writes_the_tables_and_curves_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = shutil.copy(RESULTS / "refresh.py", tmp_path)
    name = "numbers-en-vi"
    shutil.copytree(RESULTS / "runs" / name, tmp_path / "runs" / name)
    monkeypatch.setattr(sys, "argv", ["refresh.py", name])
    runpy.run_path(script, run_name="__main__")
    for file in ("summary.json", "table.md"):
        assert (tmp_path / name / file).read_text() == (RESULTS / name / file).read_text()
    assert (tmp_path / name / "curves.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(sys, "argv", ["refresh.py", "mnist"])
    with pytest.raises(SystemExit, match=r"there are no finished runs in .*mnist; kept are numbers-en-vi"):
        runpy.run_path(script, run_name="__main__")

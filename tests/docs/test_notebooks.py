"""The notebooks in examples/ run from their first cell to their last, and are kept as they came out."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.pages import ROOT

EXAMPLES = ROOT / "examples"
NOTEBOOKS = ["which-of-my-intents-are-the-same.ipynb", "drop-it-into-your-loop.ipynb"]


def test_all_notebooks_are_tested() -> None:
    assert sorted(file.name for file in EXAMPLES.glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_cells_of_a_notebook_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its assertions are those of its text: what it says was found must be found again."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in nbformat.read(EXAMPLES / name, as_version=4).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, name, "exec"), namespace)
    plt.close("all")
    assert list(tmp_path.iterdir()) == [], "a notebook leaves no files behind"


@pytest.mark.slow  # a kernel imports everything anew
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_in_a_kernel(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_with_the_output_of_one_run(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}, "no errors"
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert (EXAMPLES / name).stat().st_size < 150_000

"""docs/scikit-learn.md says what is true: its blocks run, and its numbers are the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labelemb.integrations.sklearn import LabelEmbeddingClassifier
from tests.helpers.pages import ROOT

PAGE = ROOT / "docs" / "scikit-learn.md"


def test_the_python_blocks_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the page saves files
    text = PAGE.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": PAGE.name}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert blocks
    for block in blocks:
        line = text.count("\n", 0, block.start(1))  # the empty lines make tracebacks point into the page
        exec(compile("\n" * line + block.group(1), str(PAGE), "exec"), namespace)


@pytest.mark.parametrize("name", ["learning_rate_init", "alpha"])
def test_the_table_names_the_defaults(name: str) -> None:
    row = re.search(rf"^\| `{name}` \| [^|]+ \| ([\d.]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row
    assert float(row.group(1)) == getattr(LabelEmbeddingClassifier(), name)

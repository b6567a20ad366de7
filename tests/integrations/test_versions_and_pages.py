"""Adapters are imported on demand, warn of versions that were not tested, and their pages run."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import pytorch_lightning
import torch
import transformers

from labelemb.support.optional import require_version
from tests.helpers.pages import ROOT


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*exists and is not empty")
@pytest.mark.parametrize("page", ["docs/transformers.md", "docs/lightning.md"])
def test_the_python_blocks_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where pages save files
    torch.manual_seed(0)
    text = (ROOT / page).read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": page}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) > 2
    for block in blocks:
        # the empty lines make tracebacks point into the page
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block.group(1), str(ROOT / page), "exec"), namespace)


def test_the_core_imports_neither_library() -> None:
    program = (
        "import sys, labelemb, labelemb.integrations\n"
        "print([name for name in ('transformers', 'pytorch_lightning', 'lightning') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("version", ["4.57.6", "5.23.0", "6.0"])
def test_a_version_outside_the_tested_range_is_a_warning_with_the_range(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["transformers"], "__version__", version)
    expected = rf"transformers {re.escape(version)} is installed, but .* is tested with 5\.0 to 5\.22 only"
    with pytest.warns(UserWarning, match=expected):
        require_version("transformers", extra="transformers", oldest=(5, 0), newest=(5, 22))


@pytest.mark.parametrize("version", ["5.0.0", "5.22.2", "5.3.0.dev0"])
def test_a_tested_version_is_none(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["transformers"], "__version__", version)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_version("transformers", extra="transformers", oldest=(5, 0), newest=(5, 22))


@pytest.mark.parametrize("adapter", ["transformers", "lightning"])
def test_the_pages_name_the_tested_range_and_the_installed_version_is_in_it(adapter: str) -> None:
    module = importlib.import_module(f"labelemb.integrations.{adapter}")
    oldest, newest = (".".join(map(str, version)) for version in (module.OLDEST, module.NEWEST))
    page = (ROOT / "docs" / f"{adapter}.md").read_text(encoding="utf-8")
    assert f"{oldest} to {newest}; other versions give a warning" in page
    library = transformers if adapter == "transformers" else pytorch_lightning
    numbers = tuple(int(number) for number in library.__version__.split(".")[:2])
    assert module.OLDEST <= numbers <= module.NEWEST


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"needs the package no_such_library: pip install 'labelemb\[lightning\]'"):
        require_version("no_such_library", extra="lightning", oldest=(1, 0), newest=(2, 0))

"""Help, lists and mistyped names are answered without importing anything slow."""

import subprocess
import sys
from pathlib import Path

import pytest

SLOW = ("torch", "numpy", "torchmetrics", "lightning_fabric", "sklearn", "matplotlib")

PROGRAM = """
import sys
from labelemb.lab.cli import main

try:
    code = main(sys.argv[2:])
except SystemExit as ended:  # argparse, after --help and --version
    code = ended.code
imported = [name for name in sys.argv[1].split(",") if name in sys.modules]
sys.exit(f"imported: {imported}" if imported else code)
"""

TIMED = """
import sys, time
from labelemb.lab.cli import main

try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(time.process_time(), file=sys.stderr)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, ",".join(SLOW), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("compare", "--help"), ("recipes",), ("recipes", "show", "digits")]
)
def test_help_and_lists_import_nothing_slow(arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compair", "digits"), "invalid choice: 'compair'"),
        (("compare", "digts"), "unknown recipe 'digts'; did you mean 'digits'?"),
        (("train", "digts"), "unknown recipe 'digts'; did you mean 'digits'?"),
        (("compare", "digits", "--set", "train.epoch=3"), "unknown key 'train.epoch'"),
        (("recipes", "show", "digts"), "unknown recipe 'digts'"),
        (("compare", "digits", "--methods", "plain,label-embeding"), "did you mean 'label-embedding'?"),
        (("train", "digits", "--method", "plane"), "unknown method 'plane'; did you mean 'plain'?"),
        (("train", "digits", "--method", "label-embedding@taw=1"), "unknown option 'taw=1'"),
        (("evaluate", "runs/digts"), "there is no run folder runs/digts"),
        (("nearest", "runs/digts", "8"), "there is no run folder or file runs/digts"),
        (("report", "runs/digts"), "there is no folder runs/digts"),
        (("report", ".", "-o", ""), "argument -o/--out: the path is empty: name a file or a folder"),
        (("evaluate", "COMPARISON"), "COMPARISON holds a comparison: name one of its runs, as COMPARISON/plain/seed-0"),
        (("nearest", "COMPARISON", "8"), "COMPARISON holds a comparison: name one of its runs, as COMPARISON/plain"),
        (("evaluate", "RUN", "--csv"), "--csv writes what --worst lists"),
        (("predict", "RUN", "nosuch.png"), "there is no file or folder nosuch.png"),
        (("heatmap", "RUN", "-o", "x.txt"), "x.txt is not a picture file: name a .png, .svg or .pdf file"),
        (("export", "RUN", "-o", "missing/x"), "there is no folder missing"),
        (("compare", "text-csv", "--data", "nosuch.csv"), "there is no file or folder nosuch.csv"),
        (("train", "mnist-mlp", "--data", "nosuch"), "there is no file or folder nosuch"),
        (("evaluate", "a" * 300), "cannot be a path: File name too long"),
    ],
)
def test_mistyped_names_import_nothing_slow(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("RUN"), Path("COMPARISON", "plain", "seed-0")):
        folder.mkdir(parents=True)
        for name in ("result.json", "labels.safetensors"):
            (folder / name).touch()
    ended = run(*arguments)
    assert ended.returncode == 2, ended.stderr
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [("--help",), ("recipes",), ("compare", "digts"), ("train", "digits", "--method", "plane")]
)
def test_what_needs_no_model_takes_a_moment_of_processor_time(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", TIMED, *arguments]
    times = [subprocess.run(command, capture_output=True, text=True, check=True).stderr for _ in range(3)]
    assert min(float(text.splitlines()[-1]) for text in times) < 0.6, "0.3 s on a machine that does nothing else"


def test_importing_the_package_and_the_lab_imports_no_torch() -> None:
    program = "import sys, labelemb, labelemb.lab; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)

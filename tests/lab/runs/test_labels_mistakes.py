"""What is wrong with labels to reuse is one line that names it, and exit code 2, before anything is trained."""

from pathlib import Path

import pytest
import torch

from labelemb import LabelSpace
from labelemb.lab.cli import main
from tests.helpers.quick_runs import quick_run

SMALL = ("--set", "train.epochs=1", "--set", "body.hidden=[16]")
DIGITS = [str(digit) for digit in range(10)]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def error_line(capsys: Capture, *arguments: str) -> str:
    """Runs the command, which must fail with one line on standard error and train nothing."""
    capsys.readouterr()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert not list(Path().rglob("run.json"))
    return lines[0]


def table(*rows: str, path: str = "expert.csv") -> str:
    Path(path).write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("train", "digits", "--labels-subset"),
            "--labels-subset needs labels to reuse: pass --labels FILE as well",
        ),
        (
            ("compare", "digits", "--warm-start"),
            "pass --labels FILE as well, or compare label-embedding,reused-labels@warm-start",
        ),
        (("train", "digits", "--method", "reused-labels"), "needs labels that were learned before: pass --labels FILE"),
        (
            ("train", "digits", "--labels", "x.safetensors", "--method", "plain"),
            "for the method reused-labels, not plain",
        ),
        (("train", "digits", "--labels", "missing.safetensors"), "there is no run folder or file missing.safetensors"),
        (
            ("compare", "digits", "--methods", "plain,reused-labels"),
            "add label-embedding to --methods, or pass --labels",
        ),
        (("compare", "digits", "--labels", "x.safetensors"), "add it to --methods"),
        (("train", "digits", "--labels", "."), "holds no finished run"),
    ],
)
def test_options_that_do_not_go_together(capsys: Capture, arguments: tuple[str, ...], message: str) -> None:
    assert message in error_line(capsys, *arguments)


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        (DIGITS[:-1], (), "it lacks '9' of the data"),
        ([*DIGITS, "a", "b"], (), "it has 'a', 'b', which the data lacks; --labels-subset leaves such labels out"),
        ([*DIGITS[:-1], "a"], ("--labels-subset",), "it lacks '9' of the data"),
        (
            list("abcdefghij"),
            (),
            "it lacks '0', '1', '2', '3', '4' and 5 more of the data; it has 'a', 'b', 'c', 'd', 'e'",
        ),
    ],
)
@pytest.mark.parametrize("verb", [("train",), ("compare", "--methods", "reused-labels")], ids=["train", "compare"])
def test_labels_of_another_set_are_listed(
    capsys: Capture, names: list[str], more: tuple[str, ...], message: str, verb: tuple[str, ...]
) -> None:
    LabelSpace.from_matrix(torch.eye(len(names)), names).save("labels.safetensors")
    line = error_line(capsys, *verb, "digits", "--labels", "labels.safetensors", *more, *SMALL)
    assert "labels.safetensors is of another label set" in line
    assert message in line


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((",a,b", "a,1,0"), "1 rows and 2 named columns: the table must be square"),
        ((",a,b", "a,1,0", "b,1"), "row 'b' has 1 numbers, the first row names 2 labels"),
        ((",a,b", "a,1,-0.5", "b,0,1"), "-0.5 in row 'a', column 'b' is negative"),
        ((",a,b", "a,1,nan", "b,0,1"), "nan in row 'a', column 'b' is not finite"),
        ((",a,b", "a,1,inf", "b,0,1"), "inf in row 'a', column 'b' is not finite"),
        ((",a,a", "a,1,0", "b,0,1"), "names must be unique, but more than once there is 'a'"),
        ((",a,b", "a,1,0", "c,0,1"), "must name the same labels, see 'b', 'c'"),
        ((",a,b", "a,0,0", "b,0,1"), "only zeros in row 'a'"),
        ((",a,b", "a,1,much", "b,0,1"), "row 'a': could not convert string to float: 'much'"),
        (("",), "the table is empty"),
    ],
)
def test_a_table_that_is_no_similarity_matrix(capsys: Capture, rows: tuple[str, ...], message: str) -> None:
    line = error_line(capsys, "train", "digits", "--labels", table(*rows), *SMALL)
    assert line.startswith("labelemb: expert.csv: ")
    assert message in line


def test_a_file_that_holds_no_label_space(capsys: Capture, tmp_path: Path) -> None:
    Path("noise.safetensors").write_bytes(b"this is not a label space")
    Path("empty.safetensors").write_bytes(b"")
    for name in ("noise.safetensors", "empty.safetensors"):
        assert f"{name}: not a readable safetensors file" in error_line(capsys, "train", "digits", "--labels", name)


def test_runs_that_have_no_labels(capsys: Capture, tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = tmp_path_factory.mktemp("plain")
    quick_run(plain, method="plain")
    assert "the method plain learns none" in error_line(capsys, "train", "digits", "--labels", str(plain))
    model = str(plain / "model.safetensors")
    assert "not a valid label space" in error_line(capsys, "train", "digits", "--labels", model)


def test_a_doubtful_table_trains_with_a_warning(capsys: Capture) -> None:
    rows = [",".join([name, *("2" if other == "0" else "1" for other in DIGITS)]) for name in DIGITS]
    path = table(",".join(["", *DIGITS]), *rows)
    assert main(["train", "digits", "--labels", path, *SMALL]) == 0
    warned = capsys.readouterr().err.splitlines()
    assert warned == [
        "labelemb: expert.csv: another label is more similar than itself to '1', '2', '3', '4', '5' and 4 more"
    ]
    assert Path("runs/digits/reused-labels/seed-0/result.json").exists()


def test_flags_name_the_run(capsys: Capture) -> None:
    LabelSpace.from_matrix(torch.eye(12), [*DIGITS, "a", "b"]).save("twelve.safetensors")
    more = ("--labels-subset", "--warm-start", "--method", "reused-labels@paper")
    assert main(["train", "digits", "--labels", "twelve.safetensors", *more, *SMALL]) == 0
    assert "runs/digits/reused-labels@paper+warm-start/seed-0" in capsys.readouterr().out

"""The verb audit: mistakes are one line with exit code 2, and corrections are applied."""

from pathlib import Path

import pytest

from labelemb.findings.table import write_csv
from labelemb.lab.cli import main
from tests.helpers.audits import write_intents
from tests.helpers.command import Capture, error_line
from tests.helpers.tiny_data import text_rows, write_image_folder
from tests.helpers.tiny_data import write_csv as write_table


@pytest.fixture
def intents(tmp_path: Path) -> str:
    return str(write_intents(tmp_path / "intents.csv"))


@pytest.mark.parametrize("folds", [20, 2**63])  # the second is more than a tensor of whole numbers holds
def test_folds_larger_than_the_examples_of_a_label(folds: int, intents: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    line = error_line(capsys, "audit", "text-csv", "--data", intents, "--folds", str(folds), "--out", str(out))
    assert (
        f"label 'music' has 11 of the audited examples, {folds} folds need one in each (2 more labels have too few)"
        in line
    )
    assert not out.exists()


def test_one_label_only(tmp_path: Path, capsys: Capture) -> None:
    file = write_table(tmp_path / "one.csv", text_rows(labels=("music",)))
    out = tmp_path / "out"
    assert "one label only" in error_line(capsys, "audit", "text-csv", "--data", str(file), "--out", str(out))
    assert not out.exists()


def test_an_image_that_cannot_be_read(tmp_path: Path, capsys: Capture) -> None:
    folder = write_image_folder(tmp_path / "images")
    (folder / "red" / "broken.png").write_bytes(b"no picture")
    line = error_line(capsys, "audit", "image-folder", "--data", str(folder), "--out", str(tmp_path / "out"))
    assert "broken.png cannot be read as an image" in line
    assert not (tmp_path / "out").exists()


def test_pairs_of_texts_have_nothing_to_audit(tmp_path: Path, capsys: Capture) -> None:
    line = error_line(capsys, "audit", "numbers-en-vi", "--out", str(tmp_path / "out"))
    assert "an audit needs examples with one label each" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "digits", "--parts", "train,all"], "'train,all' is not a list of different parts"),
        (["audit", "digits", "--folds", "0"], "'0' is not a whole number of at least 1"),
        (["audit", "digits", "file.csv"], "to pass the data, write --data file.csv"),
        (["audit", "digits", "--new-labels"], "--new-labels is for `labelemb audit apply`"),
        (["audit", "digits", "--method", "reused-labels"], "audit with label-embedding or plain"),
        (["audit", "apply", "audit.csv"], "usage: labelemb audit apply audit.csv corrections.csv --out cleaned.csv"),
        (["audit", "apply", "a.csv", "b.csv", "--out", "c.csv"], "there is no file a.csv"),
        (["audit", "apply", "a.csv", "b.csv", "--out", "c.csv", "--folds", "5"], "--folds is for audits that train"),
        (["audit", "apply", "a.csv", "b.csv", "--out", "c.csv", "--data", "d"], "--data is for audits that train"),
    ],
)
def test_mistakes_in_the_arguments(arguments: list[str], message: str, capsys: Capture) -> None:
    assert message in error_line(capsys, *arguments)


def test_apply_writes_a_corrected_table(tmp_path: Path, capsys: Capture) -> None:
    columns = ["index", "id", "split", "given_label", "text"]
    rows = [[0, "a", "train", "music", "play"], [1, "b", "train", "alarm", "wake me"]]
    write_csv(tmp_path / "audit.csv", columns, rows)
    write_csv(tmp_path / "corrections.csv", ["index", "id", "mark", "label"], [[0, "a", "wrong", "alarm"]])
    paths = [str(tmp_path / name) for name in ("audit.csv", "corrections.csv", "cleaned.csv")]
    assert main(["audit", "apply", *paths[:2], "--out", paths[2]]) == 0
    assert capsys.readouterr().out == f"1 example relabelled, 0 removed: {paths[2]}\n"
    assert (tmp_path / "cleaned.csv").read_text() == "text,label,split\nplay,alarm,train\nwake me,alarm,train\n"


def test_corrections_of_another_data_set_change_nothing(tmp_path: Path, capsys: Capture) -> None:
    columns = ["index", "id", "split", "given_label", "text"]
    write_csv(tmp_path / "audit.csv", columns, [[0, "a", "train", "music", "play"]])
    write_csv(tmp_path / "other.csv", ["index", "id", "mark", "label"], [[0, "b", "wrong", "music"]])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    paths = [str(tmp_path / name) for name in ("audit.csv", "other.csv", "cleaned.csv")]
    line = error_line(capsys, "audit", "apply", *paths[:2], "--out", paths[2])
    assert "these are corrections of another data set" in line
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before

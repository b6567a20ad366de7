"""Text tables: CSV, TSV, JSON lines and CLINC150's JSON; splits; every bad row named by its line."""

import gzip
import json
from pathlib import Path

import pytest
import torch

from labelemb.lab.data import Dataset, TextExamples, TextInputs, load_data
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.tiny_data import text_rows, write_csv


def load(path: Path, *overrides: str, seed: int = 1) -> Dataset:
    return load_data(load_recipe("text-csv", overrides), path, seed)


def sizes(dataset: Dataset) -> list[int]:
    assert dataset.dev is not None
    return [len(dataset.train), len(dataset.dev), len(dataset.test)]


def texts_of(dataset: Dataset, examples: TextExamples) -> list[set[str]]:
    """The single words of each text, looked up in the vocabulary."""
    assert isinstance(dataset.inputs, TextInputs)
    vocabulary = dataset.inputs.vocabulary
    bounds = zip(examples.starts[:-1].tolist(), examples.starts[1:].tolist(), strict=True)
    return [{vocabulary[number] for number in examples.features[begin:end]} for begin, end in bounds]


def write_jsonl(path: Path, rows: list[list[str]]) -> Path:
    header, *body = rows
    path.write_text("".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in body), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "T.CSV.GZ", "t.tsv", "t.jsonl"])
def test_every_format_gives_the_same_texts_and_labels(name: str, tmp_path: Path) -> None:
    rows = text_rows()
    if name.endswith("jsonl"):
        path = write_jsonl(tmp_path / name, rows)
    else:
        path = write_csv(tmp_path / name, rows, delimiter="\t" if "tsv" in name else ",")
    dataset = load(path)
    assert dataset.label_names == ["music", "weather"]
    assert sizes(dataset) == [16, 2, 2]
    assert isinstance(dataset.train, TextExamples)
    for words, target in zip(texts_of(dataset, dataset.train), dataset.train.targets.tolist(), strict=True):
        assert ("weather" in words) == (target == 1)
        assert "please tell" in words  # a run of two words


def test_a_random_split_is_stratified_and_follows_the_seed(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", text_rows(per_label=30))
    first, again, other = load(path, seed=1), load(path, seed=1), load(path, seed=2)
    for dataset in (first, other):
        assert sizes(dataset) == [48, 6, 6]
        assert dataset.test.targets.bincount().tolist() == [3, 3]

    def test_texts(dataset: Dataset) -> list[set[str]]:
        assert isinstance(dataset.test, TextExamples)
        return texts_of(dataset, dataset.test)

    assert test_texts(first) == test_texts(again)
    fixed = [load(path, "data.split_seed=7", seed=seed) for seed in (1, 2)]
    assert test_texts(fixed[0]) == test_texts(fixed[1])
    assert load(path, "data.dev_size=4", "data.test_size=10").test.targets.bincount().tolist() == [5, 5]


@pytest.mark.parametrize("count", [6, 20, 33, 61])
def test_a_split_by_count_has_that_many(tmp_path: Path, count: int) -> None:
    header, *rows = text_rows(per_label=60, labels=("music", "sports", "weather", "food", "cars", "art"))
    places = [place for place in range(len(rows)) if place % 7 or place < 100]  # labels of different frequency
    path = write_csv(tmp_path / "t.csv", [header, *(rows[place] for place in places)])
    dataset = load(path, f"data.dev_size={count}", f"data.test_size={count}")
    assert sizes(dataset) == [len(places) - 2 * count, count, count]
    spread = dataset.test.targets.bincount(minlength=6)
    assert (spread >= 1).all()
    assert spread.max() - spread.min() <= 1 + count // 30


def test_a_size_that_is_neither_share_nor_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.dev_size is 1.5, but must be a share below 1 or a whole number"):
        load(write_csv(tmp_path / "t.csv", text_rows()), "data.dev_size=1.5")


def test_split_files_in_a_folder_are_kept(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", text_rows(10))
    write_csv(tmp_path / "valid.csv", text_rows(4))
    write_csv(tmp_path / "test.csv", text_rows(3))
    assert sizes(load(tmp_path)) == [20, 8, 6]
    (tmp_path / "valid.csv").unlink()
    assert sizes(load(tmp_path)) == [18, 2, 6]  # development rows come out of the training rows


def test_a_split_column_is_kept(tmp_path: Path) -> None:
    rows = text_rows(10)
    parts = ["train"] * 6 + ["validation"] * 2 + ["test"] * 2
    table = [["text", "label", "part"], *([*row, parts[number % 10]] for number, row in enumerate(rows[1:]))]
    path = write_csv(tmp_path / "t.csv", table)
    assert sizes(load(path, "data.split_column=part")) == [12, 4, 4]
    table[3][2] = "tset"
    write_csv(path, table)
    with pytest.raises(UserError, match=r"t.csv, line 4: the split is 'tset' \(column 'part'\), allowed are train, "):
        load(path, "data.split_column=part")


@pytest.mark.parametrize("packed", [True, False])
def test_the_json_of_clinc150_is_read_without_its_out_of_scope_parts(packed: bool, tmp_path: Path) -> None:
    def pairs(count: int) -> list[list[str]]:
        return text_rows(count)[1:]

    document = {"oos_train": [["what", "oos"]], "val": pairs(2), "train": pairs(5), "test": pairs(3)}
    content = json.dumps(document).encode()
    path = tmp_path / ("data_full.json.gz" if packed else "data_full.json")
    path.write_bytes(gzip.compress(content) if packed else content)
    for place in (path, tmp_path):
        dataset = load(place)
        assert dataset.label_names == ["music", "weather"]
        assert sizes(dataset) == [10, 4, 6]


def test_few_examples_per_label_are_the_same_in_every_run(tmp_path: Path) -> None:
    for part, count in (("train", 30), ("dev", 5), ("test", 5)):
        write_csv(tmp_path / f"{part}.csv", text_rows(count))
    runs = [load(tmp_path, "data.max_per_label=4", seed=seed) for seed in (1, 2)]
    assert [sizes(run) for run in runs] == [[8, 10, 10]] * 2
    assert runs[0].train.targets.bincount().tolist() == [4, 4]
    examples = [run.train for run in runs]
    assert isinstance(examples[0], TextExamples)
    assert isinstance(examples[1], TextExamples)
    assert torch.equal(examples[0].features, examples[1].features)


def test_columns_can_be_named_and_others_are_ignored(tmp_path: Path) -> None:
    rows = [["id", "utterance", "intent"], *(["7", *row] for row in text_rows()[1:])]
    path = write_csv(tmp_path / "t.csv", rows)
    assert sizes(load(path, "data.text_column=utterance", "data.label_column=intent")) == [16, 2, 2]
    with pytest.raises(
        UserError, match=r"no column 'text' \(columns there: id, utterance, intent\); name yours in data"
    ):
        load(path)


def test_quoted_fields_may_hold_commas_and_line_breaks(tmp_path: Path) -> None:
    rows = text_rows()
    rows[1][0] = 'a "quoted" text,\nwith weather in it'
    assert sizes(load(write_csv(tmp_path / "t.csv", rows))) == [16, 2, 2]


def test_long_texts_and_spaces_after_commas_are_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", text_rows())
    text = path.read_text().replace(",", ", ")
    path.write_text(text + f'"{"word " * 40_000}", "music"\n')
    assert load(path).label_names == ["music", "weather"]


@pytest.mark.parametrize(("separator", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_is_named(tmp_path: Path, separator: str, name: str) -> None:
    path = write_csv(tmp_path / "t.csv", text_rows(), delimiter=separator)
    with pytest.raises(UserError, match=f"its columns are separated by {name}: save it with commas, or as .tsv"):
        load(path)
    path.write_text('\ufeff"text"' + separator + '"label"\n"a"' + separator + '"b"\n', encoding="utf-8")
    with pytest.raises(UserError, match=f"its columns are separated by {name}"):
        load(path)


def test_quotes_have_no_meaning_in_tsv(tmp_path: Path) -> None:
    rows = text_rows()
    rows[1][0] = '"never closed'
    path = tmp_path / "t.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert sizes(load(path)) == [16, 2, 2]


def test_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", text_rows())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\n\n")
    assert sizes(load(path)) == [16, 2, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"only text", "line 4: short row, 1 values for the 2 columns text, label"),
        (b"a,b,c", "line 4: long row, 3 values for the 2 columns text, label"),
        (b"text,", "line 4: the label is empty (column 'label')"),
        (b"text,  ", "line 4: the label is empty (column 'label')"),
        (b"caf\xe9,music", "line 4: not UTF-8 (byte 0xe9)"),
        (b'"open,music', "unexpected end of data"),
    ],
)
def test_a_bad_row_is_named_by_its_line(line: bytes, message: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", text_rows())
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: not JSON"),
        ("[1]", "line 3: expected an object with the keys text, label"),
        ('{"text": "a"}', "line 3: no column 'label'"),
        ('{"text": "a", "label": null}', "line 3: the label is empty"),
        ('{"text": "a", "label": ["music", "weather"]}', "line 3: 'label' is a list, but must be one text or number"),
        ('{"text": {"a": 1}, "label": "music"}', "line 3: 'text' is a dict, but must be one text or number"),
        ("[" * 100_000, "line 3: nested too deeply"),
        (f'{{"text": "a", "label": {"1" * 5000}}}', "line 3: a number has too many digits"),
        ('{"text": "broken \\ud83d emoji", "label": "music"}', "line 3: 'text' has half of a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", text_rows())
    lines = path.read_text().split("\n")
    path.write_text("\n".join([*lines[:2], line, *lines[2:]]))
    with pytest.raises(UserError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", r"t.json, line 1: not JSON"),
        ("[" * 100_000, r"t.json: nested too deeply"),
        ("1" * 5000, r"t.json: a number has too many digits"),
        ('{"train": [["a", ["x"]]]}', r"train entry 1: 'label' is a list, but must be one text or number"),
        ("[]", r'expected an object with "train"'),
        ('{"train": 3}', r"'train' must be a list of \[text, label\]"),
        ('{"train": [["a"]]}', r"train entry 1: expected an object with the keys text, label"),
        ('{"train": [["a", "x"], ["b", ""]]}', r"train entry 2: the label is empty"),
        ('{"train": []}', r"has no training rows"),
    ],
)
def test_json_of_another_layout_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(UserError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["text", "label"]], r"t.csv has no rows"),
        ([], "t.csv is empty"),
        (text_rows(labels=["music"]), "one label only"),
        ([*text_rows(), ["hello", "rare"]], "label 'rare' has 1 example,"),
        ([["text", "label"], *([["", "a"]] * 3), *([["", "b"]] * 3)], "the training texts hold no words"),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_refused(rows: list[list[str]], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load(write_csv(tmp_path / "t.csv", rows))


def test_labels_that_only_one_part_has_are_named(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", [*text_rows(), ["hello there", "greeting"]])
    write_csv(tmp_path / "test.csv", text_rows())
    with pytest.raises(UserError, match="label 'greeting' has no test example"):
        load(tmp_path, "data.dev_size=0", "train.dev=false")
    write_csv(tmp_path / "train.csv", text_rows())
    write_csv(tmp_path / "test.csv", [*text_rows(), ["hello", "new1"], ["hello", "new2"]])
    with pytest.raises(UserError, match="label 'new1' and 1 more have no training example"):
        load(tmp_path)


def test_a_folder_with_several_tables_asks_for_one(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, text_rows())
    with pytest.raises(UserError, match=r"holds 2 tables, give one of them: a.csv, b.csv"):
        load(tmp_path)


def test_two_files_for_one_part_are_refused(tmp_path: Path) -> None:
    for name in ("train.csv", "dev.csv", "val.csv"):
        write_csv(tmp_path / name, text_rows())
    with pytest.raises(UserError, match=r"two dev files, dev.csv and val.csv"):
        load(tmp_path)


def test_a_table_beside_the_split_files_is_not_passed_over(tmp_path: Path) -> None:
    for name in ("train.csv", "testing.csv"):
        write_csv(tmp_path / name, text_rows())
    assert len(load(tmp_path).test) == 20
    write_csv(tmp_path / "eval.csv", text_rows())
    with pytest.raises(UserError, match=r"a training part, and beside it eval.csv: known parts are train, training"):
        load(tmp_path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    rows = [[*row, row[1]] for row in text_rows()]
    with pytest.raises(UserError, match="2 columns have the name 'label'"):
        load(write_csv(tmp_path / "t.csv", rows))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(UserError, match=r"wanted: a .csv, .tsv, .jsonl or .json file"):
        load(path)

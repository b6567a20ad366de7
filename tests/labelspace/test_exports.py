"""Label spaces as text files: tables that come back, and vectors that other tools read."""

import csv

import pytest
import torch

from labelemb.labelspace import LabelSpace, LabelSpaceError
from labelemb.labelspace.exports import word2vec_words

NAMES = ["cat", 'say "hi", dog', "空 白", "two\nlines"]


def files_in(folder):
    return [entry.name for entry in folder.iterdir()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.csv"


def some_space():
    logits = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)) + 4 * torch.eye(4)
    return LabelSpace.from_matrix(logits, NAMES, kind="logit")


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_table_comes_back_as_the_same_space(path, delimiter):
    space = some_space()
    space.to_csv(path, delimiter=delimiter)
    loaded = LabelSpace.from_csv(path, counts=[1, 2, 3, 4])
    assert loaded.names == tuple(NAMES)
    assert loaded.counts.tolist() == [1, 2, 3, 4]
    torch.testing.assert_close(loaded.matrix(), space.matrix(), atol=1e-7, rtol=1e-6)


def test_a_table_has_names_around_the_numbers_of_matrix(path):
    space = some_space()
    space.to_csv(path, labels=iter([2, "cat"]), kind="logit")
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["", "空 白", "cat"]
    assert [row[0] for row in rows] == ["空 白", "cat"]
    numbers = torch.tensor([[float(cell) for cell in row[1:]] for row in rows])
    assert torch.equal(numbers, space.matrix([2, 0], kind="logit"))


def test_rows_are_divided_by_their_sums(path):
    space = LabelSpace.from_csv(written(path, ",a,b\na,3,1\nb,0,5\n"))
    torch.testing.assert_close(space.matrix(), torch.tensor([[0.75, 0.25], [0.0, 1.0]]))


@pytest.mark.parametrize("size", ["1e308", "1e-310"])
def test_similarities_may_be_of_any_size(path, size):
    space = LabelSpace.from_csv(written(path, f",a,b\na,{size},{size}\nb,0,5\n"))
    torch.testing.assert_close(space.distribution("a"), torch.tensor([0.5, 0.5]))


def test_tables_of_other_programs_are_read(path):
    expected = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    for text in ("\ufefflabel,a,b\r\na,3,1\r\nb,0,5\r\n", ",b,a\na,1,3\n\nb,5,0\n", "\ta\tb\na\t3\t1\nb\t0\t5"):
        space = LabelSpace.from_csv(written(path, text))
        assert space.names == ("a", "b")
        torch.testing.assert_close(space.matrix(), expected)
    space = LabelSpace.from_csv(written(path, ";a;b\na;3;1\nb;0;5\n"), delimiter=";")
    torch.testing.assert_close(space.matrix(), expected)


def test_a_label_less_similar_to_itself_than_another_is_a_warning(path):
    with pytest.warns(UserWarning, match="more similar than itself to 'b'") as caught:
        LabelSpace.from_csv(written(path, ",a,b\na,1,1\nb,2,1\n"))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (",a,b\n", "0 rows and 2 named columns"),
        (",a,b\na,1,0\n", "1 rows and 2 named columns: the table must be square"),
        (",a,b\na,1,0\nb,1\n", "row 'b' has 1 numbers, the first row names 2"),
        (",a,b\na,1,0\nc,0,1\n", "same labels, see 'b', 'c'"),
        (",a,a\na,1,0\na,0,1\n", "unique.*'a'"),
        (",a,b\na,1,-2\nb,0,1\n", "-2 in row 'a', column 'b' is negative"),
        (",a,b\na,1,0\nb,nan,1\n", "nan in row 'b', column 'a' is not finite"),
        (",a,b\na,1,inf\nb,0,1\n", "inf in row 'a', column 'b' is not finite"),
        (",a,b\na,1,x\nb,0,1\n", "row 'a': could not convert string to float: 'x'"),
        (",a,b\na,0,0\nb,0,1\n", "only zeros in row 'a'"),
        (',a,b\na,1,"0\nb,0,1\n', "not a table"),
    ],
)
def test_a_wrong_table_is_refused_with_its_path(path, text, message):
    with pytest.raises(LabelSpaceError, match=rf"table\.csv: .*{message}"):
        LabelSpace.from_csv(written(path, text))


def test_what_is_no_table_is_refused_with_its_path(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, message in (("binary", "UTF-8"), ("missing", "No such file"), ("", "directory")):
        with pytest.raises(LabelSpaceError, match=message):
            LabelSpace.from_csv(tmp_path / name)


def read_word2vec(path):
    """Words and vectors as gensim reads them: by lines, then by single spaces."""
    first, *lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
    count, width = map(int, first.split(b" "))
    words = [line.rstrip().split(b" ")[0].decode() for line in lines]
    vectors = torch.tensor([[float(cell) for cell in line.rstrip().split(b" ")[1:]] for line in lines])
    assert vectors.shape == (count, width)
    return words, vectors


def test_word2vec_holds_the_rows_of_the_first_factor(path):
    A = torch.randn(4, 3)
    LabelSpace.from_factors(A, torch.randn(3, 4), names=NAMES).to_word2vec(path)
    words, vectors = read_word2vec(path)
    assert words == ["cat", 'say_"hi",_dog', "空_白", "two_lines"]
    assert torch.equal(vectors, A)


def test_word2vec_holds_the_logits_of_a_dense_space(path):
    space = some_space()
    space.to_word2vec(path)
    assert torch.equal(read_word2vec(path)[1], space.matrix(kind="logit"))


def test_word2vec_holds_the_probabilities_of_the_stored_largest(path, monkeypatch):
    monkeypatch.setattr("labelemb.labelspace.forms.BLOCK_NUMBERS", 4)
    space = LabelSpace.from_top_k([[0], [1], [2]], [[0.5], [0.8], [1.0]])
    space.to_word2vec(path)
    torch.testing.assert_close(read_word2vec(path)[1], space.matrix(), atol=1e-7, rtol=1e-6)


def test_word2vec_words_stay_unique_and_good_names_stay_themselves():
    names = ["a b", "a_b", "a\tb", "a_b_2", "", "_", "c\u3000d", "e\x1cf", "plain"]
    words = word2vec_words(names)
    assert words == ["a_b_3", "a_b", "a_b_4", "a_b_2", "__2", "_", "c_d", "e_f", "plain"]
    assert len(set(words)) == len(names)


def test_texts_beyond_two_gigabytes_are_refused(path):
    count = 30_000
    space = LabelSpace.from_top_k(torch.arange(count)[:, None], torch.ones(count, 1))
    with pytest.raises(LabelSpaceError, match=r"3\.6 GB .*select"):
        space.to_word2vec(path)
    with pytest.raises(LabelSpaceError, match=r"3\.6 GB .*labels="):
        space.to_csv(path)
    assert files_in(path.parent) == []


def test_a_failing_export_leaves_the_old_file(path):
    written(path, "precious")
    with pytest.raises(TypeError, match="delimiter"):
        some_space().to_csv(path, delimiter="too long")
    assert path.read_text() == "precious"
    assert files_in(path.parent) == [path.name]


def test_a_spreadsheet_executes_no_name_and_reading_gives_the_names_back(path):
    names = ["=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "'=quoted", "plain"]
    LabelSpace.from_matrix([[1 / 6] * 6] * 6, names).to_csv(path)
    with path.open(encoding="utf-8", newline="") as text:
        rows = list(csv.reader(text))
    cells = [*rows[0][1:], *(row[0] for row in rows[1:])]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert list(LabelSpace.from_csv(path).names) == names

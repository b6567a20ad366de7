"""The verbs for words: translate and nearest, and one line with exit code 2 for what goes wrong."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labelemb.lab.cli import main
from labelemb.lab.tasks.beam import Hypothesis
from labelemb.lab.trained.model import TrainedModel
from tests.helpers.quick_runs import quick_run
from tests.helpers.text_models import color_run, write_colors
from tests.helpers.tiny_data import color_pairs

Capture = pytest.CaptureFixture[str]
Translate = Callable[..., list[str]]
SOURCES = [source for source, _ in color_pairs()]
REFERENCES = [target for _, target in color_pairs()]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_colors(tmp_path_factory.mktemp("colors"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Twenty phrases learned by heart."""
    out = tmp_path_factory.mktemp("run")
    color_run(out, data, "train.epochs=25", method="label-embedding@authors-text+soft_start=0.1")
    return out


@pytest.fixture
def translate(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Translate:
    """A function from input and options to the lines that are printed."""

    def call(text: str, *options: str) -> list[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", str(run), *options]) == 0
        printed = capsys.readouterr().out
        assert printed.endswith("\n") or not printed
        return printed.split("\n")[:-1]

    return call


def failure(capsys: Capture, *arguments: str) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_lines_come_back_translated_in_their_order(translate: Translate) -> None:
    assert translate("\n".join(SOURCES) + "\n") == REFERENCES


def test_an_empty_line_gives_an_empty_line(translate: Translate) -> None:
    assert translate(f"\n{SOURCES[3]}\n  \n{SOURCES[0]}") == ["", REFERENCES[3], "", REFERENCES[0]]
    assert translate("") == []


@pytest.mark.parametrize("options", [(), ("--beam", "1"), ("--length-penalty", "1")])
def test_the_batch_size_changes_nothing(translate: Translate, options: tuple[str, ...]) -> None:
    text = "\n".join([*SOURCES, "red red the", "cat", "old old old the cat"])
    one, many = (translate(text, "--batch-size", size, *options) for size in ("1", "64"))
    assert one == many


def test_several_hypotheses_are_numbered_with_their_scores_and_alignments(translate: Translate) -> None:
    lines = translate(f"{SOURCES[0]}\n{SOURCES[1]}\n", "--n-best", "3", "--scores", "--alignments")
    fields = [line.split("\t") for line in lines]
    assert [number for number, *_ in fields] == ["1"] * 3 + ["2"] * 3
    assert (fields[0][1], fields[3][1]) == (REFERENCES[0], REFERENCES[1])
    scores = [float(score) for _, _, score, _ in fields[:3]]
    assert scores == sorted(scores, reverse=True)
    pairs = [tuple(map(int, pair.split("-"))) for pair in fields[0][3].split()]
    assert [target for _, target in pairs] == [0, 1, 2]
    assert all(0 <= source < 3 for source, _ in pairs)


def test_scores_are_calibrated_unless_a_temperature_is_given(translate: Translate, run: Path) -> None:
    fitted = json.loads((run / "result.json").read_text())["temperature"]
    usual, same, raw = (
        translate(SOURCES[0], "--scores", *options)[0].split("\t")
        for options in ((), ("--temperature", str(fitted)), ("--temperature", "3"))
    )
    assert usual == same
    assert float(raw[1]) < float(usual[1])


def test_lengths_can_be_set(translate: Translate) -> None:
    assert len(translate(SOURCES[0], "--max-length", "2")[0].split()) == 2
    assert len(translate(SOURCES[0], "--min-length", "5")[0].split()) >= 5
    words = translate(SOURCES[0], "--min-length", "5", "--no-repeat-ngram", "1")[0].split()
    assert len(words) == len(set(words)) >= 5


def test_a_line_of_two_thousand_words_is_translated(translate: Translate) -> None:
    long, short = translate(" ".join(["cat"] * 2000) + f"\n{SOURCES[0]}\n")
    assert len(long.split()) <= 8
    assert short == REFERENCES[0]


def test_an_unknown_word_becomes_the_source_word_that_was_looked_at(run: Path) -> None:
    generator = TrainedModel(run).generator
    unknown = generator.encoder.target.unknown
    die = generator.encoder.target.numbers["die"]
    hypothesis = Hypothesis([die, unknown, unknown], -1.0, -1.0, [0, 2, 1])
    source = ["the", "Oslo", "Bergen"]
    assert generator.words(hypothesis, source, replace_unknown=True) == ["die", "Bergen", "Oslo"]
    assert generator.words(hypothesis, source, replace_unknown=False) == ["die", "<unk>", "<unk>"]


def test_bad_input_is_named_with_its_line(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfab\xff\n")))
    assert "line 1 of the input is not UTF-8 (byte 0xff)" in failure(capsys, "translate", str(run))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nb\xff\n")))
    assert "line 2 of the input is not UTF-8" in failure(capsys, "translate", str(run))
    text = ("cat\n" + "cat " * 6000).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert "line 2 of the input has 6000 words, at most 5000" in failure(capsys, "translate", str(run))


def test_a_beam_that_does_not_fit_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat\n")))
    assert "a beam of 99 is wider than the vocabulary of 12" in failure(capsys, "translate", str(run), "--beam", "99")
    assert "3 best hypotheses need a beam" in failure(capsys, "translate", str(run), "--beam", "2", "--n-best", "3")
    # asking for more hypotheses than the recipe's beam of 3 holds must not change the search unseen
    assert "the beam is 3, pass --beam 5" in failure(capsys, "translate", str(run), "--n-best", "5")


def test_a_recipe_with_a_beam_wider_than_its_vocabulary_searches_with_what_there_is(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    result = color_run(tmp_path, data, "decode.beam=99", "train.epochs=1")
    assert result.beam == 12
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat\n")))
    assert main(["translate", str(tmp_path), "--n-best", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("penalty", ["nan", "1000", "-inf", "much"])
def test_a_length_penalty_out_of_bounds_is_refused(run: Path, capsys: Capture, penalty: str) -> None:
    assert f"'{penalty}' is not a number from -10 to 10" in failure(
        capsys, "translate", str(run), f"--length-penalty={penalty}"
    )


def test_a_search_without_finite_probabilities_ends_with_a_word(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat\n")))
    assert "the temperature 1e-39 is too small" in failure(capsys, "translate", str(run), "--temperature", "1e-39")


def test_lines_are_written_in_utf8_whatever_the_locale(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the white cat\n")))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert main(["translate", str(run)]) == 0
    assert written.getvalue().decode("utf-8") == "die weiße katze\n"


def test_a_typed_line_is_answered_before_the_next_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    answers_so_far = []

    class Typed(io.BytesIO):
        def __next__(self) -> bytes:
            answers_so_far.append(written.getvalue().count("\n"))
            return super().__next__()

    typed = io.TextIOWrapper(Typed(f"{SOURCES[0]}\n{SOURCES[1]}\n".encode()))
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    monkeypatch.setattr(sys, "stdout", written)
    assert main(["translate", str(run)]) == 0
    assert answers_so_far == [0, 1, 2]


def test_runs_are_not_taken_for_what_they_are_not(run: Path, tmp_path: Path, capsys: Capture) -> None:
    quick_run(tmp_path / "digits", method="plain")
    assert "learned classification and cannot generate text" in failure(capsys, "translate", str(tmp_path / "digits"))
    (tmp_path / "lines.txt").write_text("cat\n")
    assert "use `labelemb translate`" in failure(capsys, "predict", str(run), str(tmp_path / "lines.txt"))


def test_a_vocabulary_of_another_size_is_refused(run: Path, data: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("all.en", "all.de.gz"):
        (other / name).write_bytes((data / name).read_bytes())
    (other / "all.en").write_text("\n".join(["the green dog"] * 20), encoding="utf-8")
    assert "its labels or its vocabulary differ" in failure(capsys, "evaluate", str(run), "--data", str(other))
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in run.iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes())
    about = json.loads((broken / "model.json").read_text())
    about["label_names"].append("dog")
    (broken / "model.json").write_text(json.dumps(about))
    assert "model.json is damaged (12 label_counts for 13 labels)" in failure(capsys, "translate", str(broken))


def test_evaluate_prints_the_scores_of_texts(run: Path, data: Path, capsys: Capture) -> None:
    assert main(["evaluate", str(run), "--data", str(data)]) == 0
    *table, signature = capsys.readouterr().out.splitlines()  # of several parts, for 80 columns
    assert "nrefs:1|case:mixed|eff:no|tok:none" in signature
    for column in ("raw BLEU", "ROUGE-L"):
        assert any(column in line for line in table)
    for part in ("dev", "test"):
        assert any(part in line and "100.000" in line for line in table)


def test_nearest_takes_words_lists_and_the_most_frequent(run: Path, tmp_path: Path, capsys: Capture) -> None:
    words = tmp_path / "words.txt"
    words.write_text("blume\n\nkatze\n", encoding="utf-8")
    assert main(["nearest", str(run), "rote", "--list", str(words), "--frequent", "3", "-k", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["rote", "blume", "katze", "die", "alte"]
    assert all(len(neighbors) <= 2 for neighbors in found.values())
    assert "no label given" in failure(capsys, "nearest", str(run))

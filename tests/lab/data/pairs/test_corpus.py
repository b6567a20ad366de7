"""Pairs of texts: reading, splitting, vocabularies, batches of like length, and what is refused."""

import gzip
from pathlib import Path

import pytest
import torch

from labelemb.lab.data import PairEncoder, SequenceExamples, load_data
from labelemb.lab.data.pairs.corpus import number_pairs
from labelemb.lab.data.pairs.sequences import IGNORED
from labelemb.lab.data.pairs.units import TextUnits
from labelemb.lab.data.pairs.vocabulary import SPECIALS
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.text_models import color_recipe, make_examples, write_colors
from tests.helpers.tiny_data import color_pairs, title_pairs, write_lcsts, write_pairs


def load(folder: Path, *overrides: str) -> tuple[SequenceExamples, list[str]]:
    data = load_data(color_recipe(*overrides), folder, 0)
    assert isinstance(data.train, SequenceExamples)
    return data.train, data.label_names


def error_of(folder: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        load_data(color_recipe(*overrides), folder, 0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pairs_are_encoded_and_read_back(tmp_path: Path) -> None:
    data = load_data(color_recipe(), write_colors(tmp_path), 0)
    encoder = PairEncoder.from_form(data.inputs, data.label_names)
    (source, lengths, shifted), targets = data.train.batch(torch.tensor([0, 3]))
    assert encoder.source.decode(source[0, : lengths[0]].tolist()) == ["the", "red", "cat"]
    assert encoder.target.decode(targets[1].tolist()) == ["die", "rote", "alte", "blume", "</s>"]
    assert targets[0].tolist()[-1] == IGNORED
    assert encoder.target.decode(shifted[1].tolist()) == ["<s>", "die", "rote", "alte", "blume"]
    assert data.specials == SPECIALS
    assert data.label_counts is not None
    assert data.label_counts[data.label_names.index("die")] == 20


def test_all_words_of_the_targets_are_the_rows_of_an_epoch(tmp_path: Path) -> None:
    train, _ = load(write_colors(tmp_path))
    assert train.rows == sum(len(target.split()) + 1 for _, target in color_pairs())
    assert train.count_rows(torch.tensor([0, 3])) == 4 + 5


@pytest.mark.parametrize("batch_tokens", [0, 40])
def test_batches_hold_every_pair_once_and_their_number_is_always_the_same(batch_tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 30, (2, 500), generator=generator).tolist()
    examples = make_examples(*lengths)
    examples.batch_tokens = batch_tokens
    plain = examples.batches(16, None)
    for seed in range(3):
        shuffled = examples.batches(16, torch.Generator().manual_seed(seed))
        assert torch.equal(torch.cat(shuffled).sort().values, torch.arange(500))
        assert len(shuffled) == len(plain)
        assert not torch.equal(torch.cat(shuffled), torch.cat(plain))


def test_a_batch_stays_within_its_token_budget() -> None:
    examples = make_examples([3] * 300, [1 + i % 20 for i in range(300)])
    examples.batch_tokens = 60
    assert all(examples.batch(index)[1].numel() <= 60 for index in examples.batches(16, None))


@pytest.mark.parametrize("batch_tokens", [0, 800])
def test_padding_is_under_a_tenth_of_the_positions(batch_tokens: int) -> None:
    torch.manual_seed(0)
    target = torch.poisson(torch.full((4000,), 14.0)).long().clamp_min(1)
    source = (target + torch.randn(4000) * 3).round().long().clamp_min(1)
    examples = make_examples(source.tolist(), target.tolist())
    examples.batch_tokens = batch_tokens
    positions = padded = 0
    for index in examples.batches(64, torch.Generator().manual_seed(0)):
        (sources, lengths, _), targets = examples.batch(index)
        positions += sources.numel() + targets.numel()
        padded += sources.numel() - int(lengths.sum()) + int((targets == IGNORED).sum())
    assert padded < 0.1 * positions


def test_long_pairs_are_left_out_of_the_training_only(tmp_path: Path) -> None:
    data = load_data(color_recipe("data.max_length=3"), write_colors(tmp_path), 0)
    assert (len(data.train), len(data.test)) == (10, 20)


def test_rare_words_are_unknown(tmp_path: Path) -> None:
    train, names = load(write_colors(tmp_path), "data.min_count=10")
    assert set(names) == {*SPECIALS, "die", "katze", "blume", "alte"}
    assert int((train.targets == names.index("<unk>")).sum()) == 20
    assert len(load(tmp_path, "data.vocabulary=5")[1]) == 5
    assert "a vocabulary of 3 has no room for a word" in error_of(tmp_path, "data.vocabulary=3")


def test_vocabularies_from_files_keep_their_order(tmp_path: Path) -> None:
    folder = write_colors(tmp_path)
    (folder / "vocab.en").write_text("<unk>\n<s>\n</s>\nthe\n", encoding="utf-8")
    (folder / "vocab.de.gz").write_bytes(gzip.compress(b"</s>\nkatze\n<unk>\n<s>\ndie\n"))
    _, names = load(folder, 'data.vocabulary_files=["vocab.en", "vocab.de"]')
    assert names == ["</s>", "katze", "<unk>", "<s>", "die"]
    (folder / "vocab.de.gz").write_bytes(gzip.compress(b"katze\n<unk>\n<s>\n"))
    text = error_of(folder, 'data.vocabulary_files=["vocab.en", "vocab.de"]')
    assert "vocab.de.gz lacks the special symbol </s>" in text
    assert "no vocabulary file vocab.xx" in error_of(folder, 'data.vocabulary_files=["vocab.en", "vocab.xx"]')


def test_parts_that_are_missing_are_held_out_the_same_in_every_run(tmp_path: Path) -> None:
    changes = ["data.dev_files=[]", "data.test_files=[]", "data.dev_size=3", "data.test_size=0.2", "data.split_seed=0"]
    one, other = (load_data(color_recipe(*changes), write_colors(tmp_path), seed) for seed in (0, 1))
    assert (len(one.train), len(one.dev or ()), len(one.test)) == (13, 3, 4)
    assert one.test.references == other.test.references  # type: ignore[attr-defined]
    assert "none are left to train on" in error_of(tmp_path, *changes, "data.test_size=17")


def test_files_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    folder = write_colors(tmp_path)
    (folder / "all.en").write_text("one\ntwo\n", encoding="utf-8")
    assert "has 2 lines and" in error_of(folder)
    assert "has 20" in error_of(folder)


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    write_pairs(tmp_path, ["all"], ("en", "de"), [("a\u2028b\x0cc", "x\x85y"), ("a b", "x y")])
    assert len(load(tmp_path)[0]) == 2


def test_bad_files_are_named_with_the_line(tmp_path: Path) -> None:
    folder = write_colors(tmp_path)
    (folder / "all.en").write_bytes(b"good\n\xff\xfe bad\n")
    assert "all.en, line 2: not UTF-8 (byte 0xff)" in error_of(folder)
    (folder / "all.en").write_bytes(b"\xef\xbb\xbfgood\n\xff\xfe bad\n")
    assert "all.en, line 2: not UTF-8 (byte 0xff)" in error_of(folder)
    (folder / "all.en").write_bytes(b"")
    assert "all.en is empty" in error_of(folder)
    (folder / "all.en").unlink()
    assert "lacks the file all.en" in error_of(folder)


def test_task_and_data_must_go_together() -> None:
    with pytest.raises(UserError, match=r"task = classification does not go with data\.kind = numbers"):
        load_data(load_recipe("digits", ["data.kind=numbers"]), None, 0)
    with pytest.raises(UserError, match="translation needs parallel_text"):
        load_data(load_recipe("digits", ["task=translation"]), None, 0)


def test_the_published_files_of_lcsts_and_line_files_give_the_same(tmp_path: Path) -> None:
    recipe = load_recipe("lcsts")
    parts = load_data(recipe, write_lcsts(tmp_path / "parts", title_pairs()), 0)
    lines = write_pairs(tmp_path / "lines", ["train", "dev", "test"], ("src", "tgt"), title_pairs())
    files = load_data(recipe, lines, 0)
    assert parts.label_names == files.label_names
    assert torch.equal(parts.train.targets, files.train.targets)
    assert parts.test.references[0] == "天 地 玄 黄"  # type: ignore[attr-defined]
    (tmp_path / "parts" / "PART_II.txt").write_text("nothing\n")
    with pytest.raises(UserError, match=r"PART_II.txt holds no <doc>"):
        load_data(recipe, tmp_path / "parts", 0)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("</doc>\n<doc id=3>", "<doc id=3>", "line 24: a document begins before the one above it has ended"),
        (None, None, "the last document does not end"),
    ],
)
def test_a_damaged_file_of_lcsts_is_refused(tmp_path: Path, before: str, after: str, message: str) -> None:
    file = write_lcsts(tmp_path, title_pairs()) / "PART_I.txt"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(before, after) if before else text[:-30], encoding="utf-8")
    with pytest.raises(UserError, match=f"PART_I.txt.*{message}"):
        load_data(load_recipe("lcsts"), tmp_path, 0)


@pytest.mark.parametrize("part", ["PART_II", "PART_III"])
def test_a_part_of_lcsts_that_is_missing_is_not_drawn_from_the_training(tmp_path: Path, part: str) -> None:
    (write_lcsts(tmp_path, title_pairs()) / f"{part}.txt").unlink()
    with pytest.raises(UserError, match=f"lacks the file {part}.txt"):
        load_data(load_recipe("lcsts"), tmp_path, 0)


def test_the_numbers_are_spelled_out() -> None:
    pairs = number_pairs()
    assert len(pairs) == 10_000
    assert pairs[9999] == ("nine thousand nine hundred and ninety nine", "chín nghìn chín trăm chín mươi chín")


def test_characters_keep_their_spaces_and_scores_leave_them_out() -> None:
    units = TextUnits("char")
    assert units.split(" 共护 一江 ") == ["共", "护", "▁", "一", "江"]
    assert units.join(units.split("共护 一江")) == "共护 一江"
    assert units.scored(units.split("共护 一江")) == "共 护 一 江"


def test_marks_are_split_off_and_accents_are_not() -> None:
    units = TextUnits("word", lower=True, split_marks=True)
    assert units.split("Đo\u0309, “Hà Nội”.") == ["đỏ", ",", "“", "hà", "nội", "”", "."]


def test_word_pieces_are_learned_and_read_back(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    recipe = color_recipe("data.unit=sentencepiece", "data.vocabulary=40")
    data = load_data(recipe, write_colors(tmp_path), 0)
    encoder = PairEncoder.from_form(data.inputs, data.label_names)
    assert encoder.units.join(encoder.units.split("die schwarze katze")) == "die schwarze katze"
    assert data.test.references[0] == "die rote katze"  # type: ignore[attr-defined]
    assert any(word.startswith("▁") for word in data.label_names)

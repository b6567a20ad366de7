"""Word n-grams as features."""

import pytest

from labelemb.lab.data.texts.vocabulary import Vocabulary, split_words


def features_of(vocabulary: Vocabulary, text: str) -> list[str]:
    features, starts = vocabulary.encode([text])
    assert starts.tolist() == [0, len(features)]
    return [vocabulary.features[number] for number in features]


def test_words_are_lower_cased_and_punctuation_stands_alone() -> None:
    assert split_words("What's UP, Đà-Nẵng?") == ["what", "'", "s", "up", ",", "đà", "-", "nẵng", "?"]


def test_a_text_has_its_words_and_runs_of_words_as_features() -> None:
    vocabulary = Vocabulary.from_texts(["a b c"], longest=3, limit=100, min_count=1)
    assert features_of(vocabulary, "a b c") == ["a", "b", "c", "a b", "b c", "a b c"]
    assert features_of(vocabulary, "c new b") == ["c", "b"]
    assert features_of(vocabulary, "") == []


def test_the_frequent_features_are_kept_and_ties_go_by_the_alphabet() -> None:
    vocabulary = Vocabulary.from_texts(["b a", "b c", "b c"], longest=1, limit=2, min_count=1)
    assert vocabulary.features == ["b", "c"]
    assert Vocabulary.from_texts(["y x"], longest=1, limit=1, min_count=1).features == ["x"]


@pytest.mark.parametrize(("min_count", "runs"), [(1, ["a b", "b a", "b c"]), (2, ["a b"])])
def test_rare_runs_are_left_out_but_no_words(min_count: int, runs: list[str]) -> None:
    vocabulary = Vocabulary.from_texts(["a b a b c"], longest=2, limit=100, min_count=min_count)
    assert sorted(vocabulary.features) == sorted(["a", "b", "c", *runs])

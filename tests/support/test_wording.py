"""Names and texts of strangers as they are printed, and suggestions for misspelt ones."""

import json

import pytest

from labelemb.support.errors import UserError
from labelemb.support.wording import (
    closest,
    did_you_mean,
    display_width,
    escape_text,
    json_line,
    one_line,
    padded,
    quote_few,
    shorten,
)

TITLE_ESCAPE = "\x1b]0;owned\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TITLE_ESCAPE, "\\x1b]0;owned\\x07"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2067a\u2069", "\\u2067a\\u2069"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_steers_a_terminal_or_turns_the_text_round_is_escaped(text: str, shown: str) -> None:
    assert escape_text(text) == shown
    assert one_line(text) == shown
    assert str(UserError(f"unknown label {text}")) == f"unknown label {shown}"


@pytest.mark.parametrize("text", ["straße", "Việt", "中文", "עברית", "👩\u200d🚀", "می\u200cخواهم", "a\\b"])
def test_letters_of_all_scripts_stay(text: str) -> None:
    assert one_line(text) == text


def test_white_space_becomes_single_spaces() -> None:
    assert one_line(" a\n\tb\u2028c\u3000d ") == "a b c d"


def test_json_for_a_terminal_is_safe_and_says_the_same() -> None:
    value = {"label": f"中\u202e{TITLE_ESCAPE}\x7f\U000e0041"}
    line = json_line(value)
    assert json.loads(line) == value
    assert line.isprintable()
    assert "中" in line


def test_long_names_are_cut() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert shorten(" " * 1000 + "a", 6) == "…"


def test_columns_are_counted_as_a_terminal_does() -> None:
    assert [display_width(text) for text in ("abc", "中文", "e\u0301", "한국어x")] == [3, 4, 1, 7]
    assert padded("中文", 6) == "中文  "


def test_few_names_are_quoted_and_the_rest_is_counted() -> None:
    assert quote_few(["a", "b"]) == "'a', 'b'"
    assert quote_few("abcdefg", limit=2) == "'a', 'b' and 5 more"


def test_a_quoted_name_that_is_cut_says_so() -> None:
    assert quote_few(["a" * 80, "b" * 81]) == f"'{'a' * 80}', '{'b' * 80}'…"


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    assert did_you_mean("epoch", ["epochs", "lr"], prefix="train.") == "; did you mean 'train.epochs'?"
    assert did_you_mean("zzz", ["epochs", "lr"]) == ""
    assert closest("MINST", ["mnist", "cifar10"]) == ["mnist"]

"""Text for messages: quoted and shortened names, did-you-mean, and escaping for terminals."""

import difflib
import heapq
import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST_QUOTE = 80
COMPARED_NAMES = 200
"""difflib compares two names in tens of microseconds: only this many candidates are worth it."""
UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format (direction marks such as U+202E), surrogate and line-separating characters."""
JOINERS = frozenset("\u200c\u200d")
"""Format characters that emoji and several scripts need to be readable, and that move nothing."""


def escape_text(text: str) -> str:
    """The text with every character replaced by its escape that could steer a terminal or reverse what is read."""
    if text.isprintable():
        return text
    return "".join(sign.encode("unicode_escape").decode() if _unsafe(sign) else sign for sign in text)


def escape_lines(text: str) -> str:
    """`escape_text` of every line of a text; line ends and tabs stay as they are."""
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join("\t".join(map(escape_text, line.split("\t"))) for line in text.split("\n"))


def one_line(text: str) -> str:
    """A name or a text as one line: white space of any kind becomes single spaces, and `escape_text` is applied."""
    return escape_text(" ".join(text.split()))


def shorten(text: str, longest: int) -> str:
    """`one_line` of a text, cut to at most `longest` characters."""
    line = one_line(text[: 10 * longest])
    return line if max(len(line), len(text) // 10) <= longest else f"{line[: longest - 1]}…"


def display_width(text: str) -> int:
    """Columns of a terminal: East Asian wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


def padded(text: str, width: int) -> str:
    """The text with spaces behind it, to so many columns of a terminal."""
    return text + " " * (width - display_width(text))


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 example", "1,200 examples"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def json_line(value: Any) -> str:
    """A value as one line of JSON that keeps letters of all scripts and escapes what `escape_text` escapes."""
    line = json.dumps(value, ensure_ascii=False)
    if line.isprintable():
        return line
    return "".join(json.dumps(sign)[1:-1] if _unsafe(sign) else sign for sign in line)


def quote(name: str) -> str:
    """The name in quotes, and an ellipsis behind them if it is cut."""
    return repr(name[:LONGEST_QUOTE]) + ("…" if len(name) > LONGEST_QUOTE else "")


def quote_few(names: Iterable[str], limit: int = 5) -> str:
    """`'a', 'b' and 7 more`, for error messages."""
    listed = list(names)
    text = ", ".join(map(quote, listed[:limit]))
    return text if len(listed) <= limit else f"{text} and {len(listed) - limit} more"


def did_you_mean(name: str, known: Iterable[str], prefix: str = "", limit: int = 1) -> str:
    """`; did you mean 'x'?` for the known names most like `name`, each after `prefix`; empty if none is like it."""
    near = closest(name, list(known), limit)
    return f"; did you mean {' or '.join(repr(prefix + match) for match in near)}?" if near else ""


def closest(name: str, known: Sequence[str], limit: int = 3) -> list[str]:
    """The known names most like `name`, best first, whatever their number; none where nothing resembles it."""
    wanted = name[:LONGEST_QUOTE].casefold()
    slack = max(2, len(wanted) // 3)
    candidates = [candidate for candidate in known if abs(len(candidate) - len(wanted)) <= slack]
    if len(candidates) > COMPARED_NAMES:
        pairs = _letter_pairs(wanted)
        candidates = heapq.nlargest(
            COMPARED_NAMES, candidates, key=lambda candidate: len(pairs & _letter_pairs(candidate.casefold()))
        )
    folded: dict[str, list[str]] = {}
    for candidate in candidates:
        folded.setdefault(candidate.casefold(), []).append(candidate)
    matches = difflib.get_close_matches(wanted, list(folded), n=limit)
    return [candidate for match in matches for candidate in folded[match]][:limit]


def _letter_pairs(text: str) -> set[str]:
    padded = f" {text} "
    return {padded[start : start + 2] for start in range(len(padded) - 1)}


def _unsafe(character: str) -> bool:
    return unicodedata.category(character) in UNSAFE_CATEGORIES and character not in JOINERS

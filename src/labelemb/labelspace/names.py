"""Label names: unique, valid text, and found again when they are misspelt."""

import difflib
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from labelemb.labelspace.errors import LabelSpaceError

# difflib compares two names in tens of microseconds: only this many candidates are worth it.
CANDIDATES = 200
LONGEST_QUOTE = 80


def check_names(names: Iterable[str] | None, num_labels: int) -> tuple[str, ...]:
    """The names as a tuple; "0", "1", ... without any. Raises when they are not `num_labels` different texts."""
    if names is None:
        return tuple(str(index) for index in range(num_labels))
    if isinstance(names, str):
        raise TypeError(f"names must be a sequence of strings, not the one string {names!r}")
    checked = tuple(names)
    for name in checked:
        if not isinstance(name, str):
            raise TypeError(f"names must be strings, not {type(name).__name__}: {name!r}")
    if len(checked) != num_labels:
        raise LabelSpaceError(f"{len(checked)} names for {num_labels} labels: pass one name a label")
    refuse_repeated(checked)
    for name in checked:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise LabelSpaceError(f"the name {name!r} is not valid Unicode: UTF-8 cannot hold it") from None
    return checked


def refuse_repeated(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise LabelSpaceError(f"names must be unique, but more than once there is {quote_few(repeated)}")


def quote_few(names: Iterable[str], limit: int = 5) -> str:
    """`'a', 'b' and 7 more`, for error messages."""
    listed = list(names)
    text = ", ".join(repr(name[:LONGEST_QUOTE]) for name in listed[:limit])
    return text if len(listed) <= limit else f"{text} and {len(listed) - limit} more"


def in_a_line(text: str) -> str:
    """A name or a text as it is shown in a line: white space of any kind becomes single spaces."""
    return " ".join(text.split())


def shortened(name: str, longest: int) -> str:
    """A name on one line of a picture or a table: white space is one space each, and too long a name is cut."""
    line = in_a_line(name[: 10 * longest])
    return line if max(len(line), len(name) // 10) <= longest else f"{line[: longest - 1]}…"


def closest(name: str, names: Sequence[str], limit: int = 3) -> list[str]:
    """The most similar of `names`, best first, whatever their number; none when nothing resembles `name`."""
    wanted = name[:LONGEST_QUOTE].casefold()
    slack = max(2, len(wanted) // 3)
    candidates = [known for known in names if abs(len(known) - len(wanted)) <= slack]
    if len(candidates) > CANDIDATES:
        pairs = _letter_pairs(wanted)
        candidates = heapq.nlargest(
            CANDIDATES, candidates, key=lambda known: len(pairs & _letter_pairs(known.casefold()))
        )
    folded: dict[str, list[str]] = {}
    for known in candidates:
        folded.setdefault(known.casefold(), []).append(known)
    matches = difflib.get_close_matches(wanted, list(folded), n=limit)
    return [known for match in matches for known in folded[match]][:limit]


def _letter_pairs(text: str) -> set[str]:
    padded = f" {text} "
    return {padded[start : start + 2] for start in range(len(padded) - 1)}

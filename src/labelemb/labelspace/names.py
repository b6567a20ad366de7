"""Label names: unique, valid text, and found again when they are misspelt."""

from collections import Counter
from collections.abc import Iterable, Sequence

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.support.wording import quote_few


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

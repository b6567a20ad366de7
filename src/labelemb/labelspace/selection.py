"""A part of a label space, or all of it in another order: what becomes of its names, counts, groups and specials."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.labels import LabelIndex
from labelemb.labelspace.names import refuse_repeated
from labelemb.support.wording import quote_few

if TYPE_CHECKING:
    from labelemb.labelspace.space import LabelSpace


def about_selection(space: "LabelSpace", indices: Tensor) -> dict[str, Any]:
    """The facts about the labels at these places; groups and specials lose the labels that are gone."""
    names = [space.names[index] for index in indices.tolist()]
    if not names:
        raise LabelSpaceError("select needs at least one label")
    refuse_repeated(names)
    chosen = set(names)
    groups = {group: [name for name in members if name in chosen] for group, members in (space.groups or {}).items()}
    return {
        "names": names,
        "counts": None if space.counts is None else space.counts[indices],
        "specials": [name for name in space.specials if name in chosen],
        "objective": space.objective,
        "groups": None if space.groups is None else {group: members for group, members in groups.items() if members},
    }


def refuse_other_names(names: Sequence[str], ordered: Sequence[str]) -> None:
    """An error unless `ordered` is `names` in another order."""
    known, order = LabelIndex(names, len(names)), LabelIndex(ordered, len(ordered))
    missing = [name for name in names if name not in order]
    extra = [name for name in ordered if name not in known]
    if missing or extra:
        parts = [f"missing {quote_few(missing)}"] * bool(missing) + [f"unknown {quote_few(extra)}"] * bool(extra)
        raise LabelSpaceError(f"reorder needs the same names in another order: {'; '.join(parts)}")

"""Base classes for tables of settings: documented fields with limits, for checks, error messages and recipe files."""

import sys
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

LARGEST = 2**31 - 1
"""Largest whole number of a setting: torch counts no further in places."""

Count = Annotated[int, Meta(le=LARGEST)]
Number = Annotated[float, Meta(le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, lt=1)]
Names = tuple[str, ...]


def doc(description: str, *, changes_result: bool = True) -> Meta:
    """Documentation of a setting. `changes_result=False` leaves it out of the recipe's fingerprint."""
    return Meta(description=description, extra={"changes_result": changes_result})


class Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all tables of settings."""

    @property
    def kind(self) -> str:
        """Value of the key `kind` that chooses this table; empty for a table without kinds."""
        return kind_of(type(self))


class Setting:
    """One field of a table: its type, its limits and its documentation, read from the annotation."""

    def __init__(self, field: msgspec.structs.FieldInfo) -> None:
        self.name: str = field.name
        self.default = field.default
        self.type, self.metas = unwrapped(field.type)
        described = [meta for meta in self.metas if meta.description]
        self.help: str = described[-1].description or "" if described else ""
        extra = described[-1].extra or {} if described else {}
        self.changes_result: bool = extra.get("changes_result", True)

    @property
    def tables(self) -> tuple[type[Table], ...]:
        """Tables that may stand here; empty for a value."""
        found = get_args(self.type) if get_origin(self.type) not in (tuple, Literal) else ()
        return tuple(kind for kind in found or (self.type,) if isinstance(kind, type) and issubclass(kind, Table))

    @property
    def default_table(self) -> type[Table]:
        """Table that stands here where none is given."""
        return type(self.default)

    @property
    def is_text(self) -> bool:
        """Whether the value is a text, or a list of texts."""
        inner = unwrapped(get_args(self.type)[0])[0] if get_origin(self.type) is tuple else self.type
        return inner is str or get_origin(inner) is Literal

    @property
    def choices(self) -> tuple[str, ...]:
        """Texts that are allowed; empty where every text is."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


def settings_of(table: type[Table]) -> list[Setting]:
    """Settings of a table in the order in which they are written."""
    return [Setting(field) for field in msgspec.structs.fields(table)]


def unwrapped(annotation: Any) -> tuple[Any, tuple[Meta, ...]]:
    """An annotation without `Annotated`, and the limits and documentation that it carried."""
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    inner, *metas = get_args(annotation)
    return inner, tuple(meta for meta in metas if isinstance(meta, Meta))


def kind_of(table: type[Table]) -> str:
    """Value of `kind` that chooses the table; empty for a table without kinds."""
    return str(table.__struct_config__.tag or "")

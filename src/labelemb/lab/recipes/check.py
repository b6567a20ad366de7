"""Checks TOML tables of settings, and explains errors in one line.

msgspec checks types, limits, kinds and unknown keys. Its message has the place of the first mistake; the line for the
user is made from the value at that place and the annotation of the setting.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from labelemb.lab.recipes.schema import Setting, Table, kind_of, settings_of, unwrapped
from labelemb.support.errors import UserError
from labelemb.support.wording import did_you_mean

T = TypeVar("T", bound=Table)

UNKNOWN_KEY = "Object contains unknown field `"
EXPECTED = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def read_table(root: type[T], table: Mapping[str, Any], where: str) -> T:
    """Settings from nested TOML tables. Errors call them `where`."""
    prepared = _prepared(root, table)
    try:
        return msgspec.convert(prepared, root)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_explain(root, prepared, str(error))}") from error


def keys_of(root: type[Table], name: str, kind: str) -> list[str] | None:
    """Keys of the table `name` for a kind, `kind` included; None if there is no such kind."""
    setting = next(setting for setting in settings_of(root) if setting.name == name)
    chosen = next((table for table in setting.tables if kind_of(table) == kind), None)
    return None if chosen is None else ["kind", *(setting.name for setting in settings_of(chosen))]


def _chosen(setting: Setting, table: Mapping[str, Any]) -> type[Table] | None:
    """The table that a setting's `kind` names, or its only one."""
    if len(setting.tables) == 1:
        return setting.tables[0]
    return next((kind for kind in setting.tables if kind_of(kind) == table.get("kind")), None)


def _prepared(owner: type[Table], table: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with the default kind where none is given, and numbers as texts where texts are wanted."""
    prepared = dict(table)
    for setting in settings_of(owner):
        value = prepared.get(setting.name)
        if setting.tables and isinstance(value, Mapping):
            if len(setting.tables) > 1 and "kind" not in value:
                value = {"kind": kind_of(setting.default_table), **value}
            chosen = _chosen(setting, value)
            prepared[setting.name] = _prepared(chosen, value) if chosen is not None else value
        elif setting.is_text:
            prepared |= {setting.name: _as_text(value)} if setting.name in prepared else {}
    return prepared


def _as_text(value: Any) -> Any:
    """A number as its text, so that `precision=32` needs no quotes."""
    if isinstance(value, list):
        return [_as_text(entry) for entry in value]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _explain(root: type[Table], table: Mapping[str, Any], message: str) -> str:
    problem, _, path = message.partition(" - at `$")
    owner, prefix, setting, value = root, "", None, table
    position: int | None = None
    for part in re.findall(r"\w+|\[\d+\]", path):
        if part.startswith("["):
            position = int(part[1:-1])
            continue
        value = value[part]
        if part == "kind" and setting is not None and setting.tables:
            choices = [kind_of(kind) for kind in setting.tables]
            return f"{prefix}kind is {value!r}, allowed are {', '.join(choices)}{did_you_mean(str(value), choices)}"
        setting = next(known for known in settings_of(owner) if known.name == part)
        if setting.tables and isinstance(value, Mapping):
            owner, prefix = _chosen(setting, value) or owner, f"{part}."
    if problem.startswith(UNKNOWN_KEY):
        key = problem.removeprefix(UNKNOWN_KEY).rstrip("`")
        return f"unknown key {prefix + key!r}{_suggest_key(root, owner, prefix, key)}"
    assert setting is not None
    if setting.tables:
        return f"{setting.name!r} must be a table, not {value!r}"
    return f"{prefix}{setting.name} {_value_problem(setting, value, position)}"


def _suggest_key(root: type[Table], owner: type[Table], prefix: str, key: str) -> str:
    """The kinds that have the key, or the table that has it, or the nearest key of the same table, or all keys."""
    group = [setting for setting in settings_of(root) if setting.tables]
    having = {setting.name: [table for table in setting.tables if key in _names(table)] for setting in group}
    own_kinds = [kind_of(table) for table in having.pop(prefix.rstrip("."), [])]
    if own_kinds:
        verb = "has" if len(own_kinds) == 1 else "have"
        return f" of {prefix}kind = {kind_of(owner)}: {', '.join(own_kinds)} {verb} it"
    elsewhere = [f"{name}.{key}" for name, tables in having.items() if tables]
    if elsewhere or key in _names(root):
        return f"; did you mean {(elsewhere or [key])[0]!r}?"
    return did_you_mean(key, _names(owner), prefix) or f"; there are {', '.join(_names(owner))}"


def _names(table: type[Table]) -> list[str]:
    return [setting.name for setting in settings_of(table)]


def _value_problem(setting: Setting, value: Any, position: int | None) -> str:
    kind, metas = setting.type, setting.metas
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            return f"must be a list, not {value!r}"
        if position is not None:
            value = value[position]
        kind, metas = unwrapped(get_args(kind)[0])
    plain = str if get_origin(kind) is Literal else kind
    fits = isinstance(value, (int, float) if plain is float else plain)
    if not fits or (isinstance(value, bool) and plain is not bool):
        return f"must be {EXPECTED[plain]}, not {value!r}"
    if setting.choices:
        return f"is {value!r}, allowed are {', '.join(setting.choices)}{did_you_mean(value, setting.choices)}"
    if plain is float and not math.isfinite(value):
        return f"must be finite, not {value}"
    return f"is {plain(value)}, must be {_limit(metas, value)}"


def _limit(metas: Iterable[Meta], value: float) -> str:
    """The limit that the value breaks."""
    holds = {"ge": lambda limit: value >= limit, "gt": lambda limit: value > limit}
    holds |= {"le": lambda limit: value <= limit, "lt": lambda limit: value < limit}
    for meta in metas:
        for name, words in LIMITS.items():
            limit = getattr(meta, name)
            if limit is not None and not holds[name](limit):
                return f"{words} {limit}"
    raise AssertionError(f"{value} breaks no limit of {list(metas)}")

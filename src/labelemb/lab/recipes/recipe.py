"""Reading, checking and writing recipes.

A recipe is a TOML file with the tables `data`, `body`, `head`, `train` and `decode` (`settings.py` has the keys). A key
that does not exist, a value of the wrong type and one outside its limits are one-line errors with the file and what is
allowed.
"""

import dataclasses
import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from labelemb.lab.recipes.settings import (
    BodySettings,
    DataSettings,
    DecodeSettings,
    HeadSettings,
    TrainSettings,
    setting,
)
from labelemb.support.errors import UserError
from labelemb.support.wording import did_you_mean

__all__ = [
    "BodySettings",
    "DataSettings",
    "DecodeSettings",
    "HeadSettings",
    "Recipe",
    "TrainSettings",
    "load_recipe",
    "recipe_names",
    "recipe_text",
]

LARGEST = 2**31 - 1
"""Of a whole number: nothing that is counted here is more, and torch counts no further in places."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One experiment: data, body, head, training and, for text, decoding. Made by `load_recipe`."""

    name: str = setting("", "the recipe's name", changes_result=False)
    task: str = setting("classification", "what is learned", choices=("classification", "translation"))
    data: DataSettings = dataclasses.field(default_factory=DataSettings)
    body: BodySettings = dataclasses.field(default_factory=BodySettings)
    head: HeadSettings = dataclasses.field(default_factory=HeadSettings)
    train: TrainSettings = dataclasses.field(default_factory=TrainSettings)
    decode: DecodeSettings = dataclasses.field(default_factory=DecodeSettings)

    def to_toml(self) -> str:
        """A TOML text that `load_recipe` reads back to an equal recipe, every key commented."""
        return "\n".join(_write_table(self)) + "\n"

    def fingerprint(self) -> str:
        """SHA-256 over every setting that changes the result of a run."""
        return hashlib.sha256(json.dumps(_relevant(self), sort_keys=True).encode()).hexdigest()


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the package."""
    folder = resources.files("labelemb.lab.recipes").joinpath("shipped")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The TOML text of a shipped recipe, comments included: what to copy and edit."""
    if name not in recipe_names():
        raise UserError(f"unknown recipe {name!r}{did_you_mean(name, recipe_names())}: see `labelemb recipes`")
    return resources.files("labelemb.lab.recipes").joinpath("shipped", f"{name}.toml").read_text(encoding="utf-8")


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that TOML file, with overrides such as `"train.epochs=3"` applied."""
    text, where, name = _find(name_or_path)
    return parse_recipe(text, where, name, overrides)


def parse_recipe(text: str, where: str, name: str = "", overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its TOML text. Errors call it `where`; `name` is for a text that has none."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{where} is not a TOML file: {error}") from error
    table.setdefault("name", name)
    for override in overrides:
        _apply_override(table, override)
    recipe = _read_table(Recipe, table, prefix="", where=where)
    _check_objective(recipe.head, where)
    return recipe


def _find(name_or_path: str) -> tuple[str, str, str]:
    """Text, how errors call it, and default name of a recipe."""
    if name_or_path in recipe_names():
        return recipe_text(name_or_path), f"recipe {name_or_path}", name_or_path
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        raise UserError(
            f"unknown recipe {name_or_path!r}{did_you_mean(name_or_path, recipe_names())}: "
            "see `labelemb recipes`, or give a .toml file"
        )
    try:
        return path.read_text(encoding="utf-8-sig"), str(path), path.stem
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"cannot read the recipe {path}: {reason}") from error


def _apply_override(table: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UserError(f"{override!r} is not an override: write table.key=value, as train.epochs=3")
    inner = table
    for part in parts[:-1]:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(f"override {override!r}: {part!r} is a value, not a table")
    inner[parts[-1]] = _parse_value(value.strip())


def _parse_value(text: str) -> Any:
    """A value as TOML writes it; text that is no TOML value is a string, so that quotes may be left out."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _read_table(kind: type, table: Mapping[str, Any], prefix: str, where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            raise UserError(f"{where}: unknown key {prefix + key!r}{_suggest_key(key, prefix)}")
        if dataclasses.is_dataclass(types[key]):
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {key!r} must be a table, not {value!r}")
            values[key] = _read_table(types[key], value, f"{key}.", where)
        else:
            values[key] = _read_value(types[key], fields[key].metadata, value, f"{where}: {prefix}{key}")
    return kind(**values)


def _suggest_key(key: str, prefix: str) -> str:
    """The nearest key of the same table, or the one of that name in another table, or all keys there are."""
    tables = {
        "": Recipe,
        **{name: kind for name, kind in get_type_hints(Recipe).items() if dataclasses.is_dataclass(kind)},
    }
    keys = {table: [field.name for field in dataclasses.fields(kind)] for table, kind in tables.items()}
    own = keys[prefix.rstrip(".")]
    elsewhere = [f"{table}.{key}" for table, names in keys.items() if key in names]
    if elsewhere:
        return f"; did you mean {elsewhere[0]!r}?"
    return did_you_mean(key, own, prefix) or f"; there are {', '.join(own)}"


def _read_value(kind: Any, metadata: Mapping[str, Any], value: Any, where: str) -> Any:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise UserError(f"{where} must be a list, not {value!r}")
        return tuple(_read_value(get_args(kind)[0], metadata, entry, where) for entry in value)
    if get_origin(kind) is Mapping:
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must be a table, not {value!r}")
        return dict(value)
    value = _convert(kind, value, where)
    _check_limits(metadata, value, where)
    return value


def _convert(kind: type, value: Any, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)  # `precision=32` on the command line
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        expected = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]
        raise UserError(f"{where} must be {expected}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be finite, not {value}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise UserError(f"{where} is {value}, must be at most {LARGEST}")
    return value


def _check_limits(metadata: Mapping[str, Any], value: Any, where: str) -> None:
    if metadata["choices"] and value not in metadata["choices"]:
        raise UserError(
            f"{where} is {value!r}, allowed are {', '.join(metadata['choices'])}"
            f"{did_you_mean(str(value), metadata['choices'])}"
        )
    for limit, holds, words in (
        ("at_least", lambda bound: value >= bound, "at least"),
        ("above", lambda bound: value > bound, "above"),
        ("below", lambda bound: value < bound, "below"),
    ):
        if metadata[limit] is not None and not holds(metadata[limit]):
            raise UserError(f"{where} is {value}, must be {words} {metadata[limit]}")


def _check_objective(head: HeadSettings, where: str) -> None:
    if not head.overrides:
        return
    from labelemb import Objective

    known = [field.name for field in dataclasses.fields(Objective)]
    for key in head.overrides:
        if key not in known:
            raise UserError(f"{where}: unknown key 'head.overrides.{key}'{did_you_mean(key, known)}")
    try:
        Objective(**head.overrides)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: head.overrides: {error}") from error


def _write_table(settings: Any) -> list[str]:
    lines: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            lines += ["", f"# {(type(value).__doc__ or '').strip()}", f"[{field.name}]", *_write_table(value)]
        else:
            choices = f" ({', '.join(field.metadata['choices'])})" if field.metadata["choices"] else ""
            lines += [f"# {field.metadata['help']}{choices}", f"{field.name} = {_write_value(value)}"]
    return lines


def _write_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_write_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_write_value(entry) for entry in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # a JSON string is a TOML string
    return repr(value)


def _relevant(settings: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            inner = _relevant(value)
            if inner:
                values[field.name] = inner
        elif field.metadata["changes_result"] and not (field.metadata["added"] and value == field.default):
            values[field.name] = value
    return values

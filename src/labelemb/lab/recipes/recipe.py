"""`Recipe`: reads, checks and writes recipes.

A recipe is a TOML file with the tables `data`, `body`, `head`, `train` and `decode` (`settings.py` has the keys). A key
that does not exist, a value of the wrong type and one outside its limits are one-line errors with the file and what is
allowed.
"""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from labelemb.lab.recipes.check import keys_of, read_table
from labelemb.lab.recipes.pretrained_settings import PretrainedBody, TokenVectorsBody
from labelemb.lab.recipes.schema import Names, Table, doc, kind_of, settings_of
from labelemb.lab.recipes.settings import (
    Cifar10Data,
    Cifar100Data,
    CnnBody,
    DecodeSettings,
    DigitsData,
    EmbeddingBagBody,
    HeadSettings,
    IdxData,
    ImageFolderData,
    LcstsData,
    MlpBody,
    NumbersData,
    ParallelTextData,
    ResNet8Body,
    ResNet18Body,
    Seq2SeqBody,
    TextPairData,
    TextTableData,
    TrainSettings,
)
from labelemb.support.errors import UserError
from labelemb.support.files import read_whole
from labelemb.support.wording import did_you_mean, quote_few

__all__ = ["Recipe", "load_recipe", "parse_recipe", "recipe_names", "recipe_text"]

LARGEST_RECIPE = 2**20
"""Bytes: a recipe with every key and its comment has a hundredth of that."""

AnyData = (
    DigitsData
    | IdxData
    | Cifar10Data
    | Cifar100Data
    | ImageFolderData
    | TextTableData
    | ParallelTextData
    | LcstsData
    | NumbersData
)
AnyBody = (
    MlpBody | CnnBody | ResNet8Body | ResNet18Body | EmbeddingBagBody | Seq2SeqBody | TokenVectorsBody | PretrainedBody
)


class Recipe(Table, frozen=True):
    """One experiment: data, body, head, training and, for text, decoding. Made by `load_recipe`."""

    name: Annotated[str, doc("the recipe's name", changes_result=False)] = ""
    task: Annotated[Literal["classification", "translation"], doc("the task of the model")] = "classification"
    methods: Annotated[
        Names, doc("methods to compare unless others are given, with their options", changes_result=False)
    ] = ("plain", "label-embedding")
    data: AnyData = DigitsData()
    body: AnyBody = MlpBody()
    head: HeadSettings = HeadSettings()
    train: TrainSettings = TrainSettings()
    decode: DecodeSettings = DecodeSettings()

    def to_toml(self) -> str:
        """A TOML text that `load_recipe` reads back to an equal recipe, every key commented."""
        return "\n".join(_write_table(self)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """All settings as nested tables, as TOML has them."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        if self.task != "translation":
            del table["decode"]
        return table

    def fingerprint(self) -> str:
        """SHA-256 over every setting that changes the result of a run."""
        return hashlib.sha256(json.dumps(_relevant(self, self.to_dict()), sort_keys=True).encode()).hexdigest()


def recipe_names() -> list[str]:
    """Names of the recipes that ship with the package."""
    folder = resources.files("labelemb.lab.recipes").joinpath("shipped")
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The TOML text of a shipped recipe, comments included: what to copy and edit."""
    if name not in recipe_names():
        raise UserError(f"unknown recipe {name!r}{did_you_mean(name, recipe_names())} (see `labelemb recipes`)")
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
    written = {key: dict(value) for key, value in table.items() if isinstance(value, Mapping)}
    for override in overrides:
        _apply_override(table, override)
    _forget_other_kind(table, written, overrides)
    recipe = read_table(Recipe, table, where)
    _check_task(recipe, table, where)
    return recipe


def _find(name_or_path: str) -> tuple[str, str, str]:
    """Text, how errors call it, and default name of a recipe."""
    if name_or_path in recipe_names():
        return recipe_text(name_or_path), f"recipe {name_or_path}", name_or_path
    path = Path(name_or_path)
    if path.suffix != ".toml" and not _is_file(path):
        raise UserError(
            f"unknown recipe {quote_few([name_or_path])}{did_you_mean(name_or_path, recipe_names())} "
            "(see `labelemb recipes`, or give a .toml file)"
        )
    try:
        return read_whole(path, LARGEST_RECIPE).decode("utf-8-sig"), str(path), path.stem
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UserError(f"cannot read the recipe {path}: {reason}") from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for any file
        return False


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


def _forget_other_kind(table: dict[str, Any], written: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Where an override changes a kind, drop the keys that the recipe's text has for the kind it replaces."""
    overridden = {override.partition("=")[0].strip() for override in overrides}
    for name in ("data", "body"):
        if f"{name}.kind" not in overridden:
            continue
        known = keys_of(Recipe, name, table[name]["kind"])
        for key in written.get(name, {}) if known is not None else ():
            if key not in (known or ()) and f"{name}.{key}" not in overridden:
                del table[name][key]


def _check_task(recipe: Recipe, table: Mapping[str, Any], where: str) -> None:
    """Refuse a task that the data is not for, and settings of texts where there are none."""
    translates = recipe.task == "translation"
    if isinstance(recipe.data, TextPairData) != translates:
        kinds = [kind_of(kind) for kind in (ParallelTextData, LcstsData, NumbersData)]
        raise UserError(
            f"{where}: task = {recipe.task} does not go with data.kind = {recipe.data.kind}: translation needs "
            f"{', '.join(kinds)}"
        )
    if not translates and ("decode" in table or recipe.train.batch_tokens):
        given = "decode" if "decode" in table else "train.batch_tokens"
        raise UserError(f"{where}: {given!r} is about texts to generate, task = {recipe.task} has none: leave it out")


def _write_table(table: Table) -> list[str]:
    lines: list[str] = []
    for setting in settings_of(type(table)):
        value = getattr(table, setting.name)
        if not setting.tables:
            choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
            lines += [f"# {setting.help}{choices}", f"{setting.name} = {_write_value(value)}"]
        elif setting.name != "decode" or (isinstance(table, Recipe) and table.task == "translation"):
            lines += ["", f"# {(type(value).__doc__ or '').strip()}", f"[{setting.name}]"]
            if len(setting.tables) > 1:
                kinds = ", ".join(kind_of(kind) for kind in setting.tables)
                lines += [f"# one of {kinds}", f"kind = {_write_value(value.kind)}"]
            lines += _write_table(value)
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


def _relevant(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a table without those that change no result."""
    idle = {setting.name for setting in settings_of(type(table)) if not setting.changes_result}
    return {
        key: _relevant(inner, value) if isinstance(inner := getattr(table, key), Table) else value
        for key, value in values.items()
        if key not in idle
    }

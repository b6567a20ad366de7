"""Options after a method's @: the known ones, parsing, and the canonical spelling."""

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labelemb.losses.objective import Objective
from labelemb.support.errors import UserError
from labelemb.support.wording import did_you_mean

PRESETS: dict[str, Callable[..., Objective]] = {
    "halves": Objective,
    "paper": Objective.paper,
    "authors-vision": Objective.authors_vision,
    "authors-text": Objective.authors_text,
    "rising-floor": Objective.rising_floor,
    "fading": Objective.fading,
}
OBJECTIVE_FIELDS = tuple(field.name for field in dataclasses.fields(Objective))
REGISTRY = "labelemb.heads.registry"
MOST_DIGITS = 18
"""Of a whole number: what 64 bits hold."""


@dataclass(frozen=True)
class Options:
    """The options of one method."""

    switches: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    main: str = ""
    """The setting that a bare number stands for."""


OPTIONS: dict[str, Options] = {
    "plain": Options(),
    "label-embedding": Options(
        switches=(*PRESETS, "no-cap", "no-gate", "no-identity", "clean-observer", "single-output", "flat"),
        settings=(*OBJECTIVE_FIELDS, "embedding", "rank", "prior_rows", "observe_rows", "embedding_lr"),
    ),
    "label-smoothing": Options(switches=("rising",), settings=("smoothing",), main="smoothing"),
    "online-smoothing": Options(switches=("floor",), settings=("soft_weight",), main="soft_weight"),
    "confidence-penalty": Options(settings=("penalty",), main="penalty"),
    "teacher-free": Options(settings=("correct_probability", "temperature", "teacher_weight")),
    "reused-labels": Options(switches=(*PRESETS, "warm-start", "flat"), settings=(*OBJECTIVE_FIELDS, "embedding_lr")),
}

TEXTS = ("cap_reduction", "embedding_reduction", "embedding")
SWITCHED = ("two_sided_cap", "correct_only")
WHOLE = ("cap_power", "rank", "observe_rows")


def options_of(kind: str) -> Options:
    """Options of a method; a method that was only added to the registry of heads has none."""
    return OPTIONS.get(kind, Options())


def check_methods(text: str) -> None:
    """Refuse misspelt methods between commas before anything slow is imported.

    A name unlike all of `OPTIONS` may be one that was only added to the registry of heads, which knows it.
    """
    for method in text.split(","):
        kind, at, rest = method.strip().partition("@")
        if kind not in OPTIONS and REGISTRY not in sys.modules and (hint := did_you_mean(kind, OPTIONS)):
            raise UserError(f"unknown method {kind!r}{hint}")
        if kind in OPTIONS and at:
            read_options(kind, rest)


def read_options(kind: str, text: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Switches and settings from `paper+tau=1`, in the order in which the method lists them."""
    switches: list[str] = []
    settings: dict[str, Any] = {}
    for option in text.split("+"):
        _read_option(kind, option.strip(), switches, settings)
    presets = [switch for switch in switches if switch in PRESETS]
    if len(presets) > 1:
        raise UserError(f"method '{kind}@{text}' names two presets, {' and '.join(presets)}: choose one")
    ordered = tuple(switch for switch in options_of(kind).switches if switch in switches)
    return ordered, {key: settings[key] for key in options_of(kind).settings if key in settings}


def canonical_name(kind: str, switches: tuple[str, ...], settings: dict[str, Any]) -> str:
    """The method as text: what `read_options` reads back."""
    main = options_of(kind).main
    written = [("" if key == main else f"{key}=") + _write_value(value) for key, value in settings.items()]
    options = "+".join([*switches, *written])
    return f"{kind}@{options}" if options else kind


def _read_option(kind: str, option: str, switches: list[str], settings: dict[str, Any]) -> None:
    options = options_of(kind)
    key, equals, value = option.partition("=")
    if equals and key in options.settings:
        settings[key] = _read_value(kind, key, value)
    elif option.replace("_", "-") in options.switches:  # authors_vision is read as authors-vision
        switches.append(option.replace("_", "-"))
    elif options.main and _is_number(option):
        settings[options.main] = _read_value(kind, options.main, option)
    elif option in options.settings:
        raise UserError(f"option {option!r} of method {kind!r} needs a value: {option}=...")
    else:
        known = [*options.switches, *(f"{name}=..." for name in options.settings)]
        if not known:
            raise UserError(f"method {kind!r} takes no options, but {option!r} was given")
        hint = did_you_mean(key, (*options.switches, *options.settings)) or f": known are {', '.join(known)}"
        raise UserError(f"unknown option {option!r} of method {kind!r}{hint}")


def _read_value(kind: str, key: str, text: str) -> Any:
    """A value of the setting's type. `soft_start` is a number of updates, or with a point a share of the training."""
    if key in TEXTS:
        return text
    where = f"option {key!r} of method {kind!r}"
    if key in SWITCHED:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UserError(f"{where} must be true or false, not {text!r}")
    is_whole = text.isdecimal() and len(text) <= MOST_DIGITS
    if key in WHOLE and not is_whole:
        raise UserError(f"{where} must be a whole number, not {text!r}")
    if key in WHOLE or (key == "soft_start" and is_whole):
        return int(text)
    if not _is_number(text) or not math.isfinite(float(text)):
        raise UserError(f"{where} must be a number, not {text!r}")
    if key == "embedding_lr" and float(text) < 0:
        raise UserError(f"{where} is {text}, must be at least 0")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _write_value(value: Any) -> str:
    """All digits, so that no two values share a name, and no +, which separates options."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0").replace("e+", "e")

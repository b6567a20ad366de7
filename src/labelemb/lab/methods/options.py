"""What may stand after a method's @, how it is read, and the one way it is written."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from labelemb import Objective
from labelemb.support.errors import UserError
from labelemb.support.wording import did_you_mean

OBJECTIVE_FIELDS = tuple(field.name for field in dataclasses.fields(Objective))
OBJECTIVES = ("default", "paper", "authors_vision", "authors_text", "recommended")
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
        switches=(*OBJECTIVES, "no-cap", "no-gate", "no-identity", "single-output", "flat"),
        settings=(*OBJECTIVE_FIELDS, "rank", "embedding_lr"),
    ),
    "label-smoothing": Options(settings=("smoothing",), main="smoothing"),
    "online-smoothing": Options(switches=("floor",), settings=("soft_weight",), main="soft_weight"),
    "confidence-penalty": Options(settings=("penalty",), main="penalty"),
    "teacher-free": Options(settings=("correct_probability", "temperature", "weight")),
    "reused-labels": Options(
        switches=(*OBJECTIVES, "warm-start", "flat"), settings=(*OBJECTIVE_FIELDS, "embedding_lr")
    ),
}


def read_options(kind: str, text: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Switches and settings from `paper+tau=1`, in the order in which the method lists them."""
    switches: list[str] = []
    settings: dict[str, Any] = {}
    for option in text.split("+"):
        _read_option(kind, option.strip(), switches, settings)
    presets = [switch for switch in switches if switch in OBJECTIVES]
    if len(presets) > 1:
        raise UserError(f"method '{kind}@{text}' names two presets, {' and '.join(presets)}: choose one")
    ordered = tuple(switch for switch in OPTIONS[kind].switches if switch in switches)
    return ordered, {key: settings[key] for key in OPTIONS[kind].settings if key in settings}


def canonical_name(kind: str, switches: tuple[str, ...], settings: dict[str, Any]) -> str:
    """The method as text: what `read_options` reads back."""
    main = OPTIONS[kind].main
    written = [("" if key == main else f"{key}=") + _write_value(value) for key, value in settings.items()]
    options = "+".join([*switches, *written])
    return f"{kind}@{options}" if options else kind


def _read_option(kind: str, option: str, switches: list[str], settings: dict[str, Any]) -> None:
    options = OPTIONS[kind]
    spelled = option.replace("-", "_")
    key, equals, value = option.partition("=")
    if equals and key in options.settings:
        settings[key] = _read_value(kind, key, value)
    elif option in options.switches:
        switches.append(option)
    elif spelled in options.switches:  # authors-vision
        switches.append(spelled)
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
    """A value with the type of the setting's default."""
    default = getattr(Objective(), key, None)
    if key == "soft_start" and not text.isdecimal():
        default = 0.0  # a share of the training
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise UserError(f"option {key!r} of method {kind!r} must be true or false, not {text!r}")
    if isinstance(default, int) or key == "rank":
        if text.isdecimal() and len(text) <= MOST_DIGITS:
            return int(text)
        raise UserError(f"option {key!r} of method {kind!r} must be a whole number, not {text!r}")
    if not _is_number(text) or not math.isfinite(float(text)):
        raise UserError(f"option {key!r} of method {kind!r} must be a number, not {text!r}")
    if key == "embedding_lr" and float(text) < 0:
        raise UserError(f"option {key!r} of method {kind!r} is {text}, must be at least 0")
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

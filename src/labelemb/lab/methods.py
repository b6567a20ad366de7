"""Methods by name: from `label-embedding@recommended+tau=1.5` to a head.

A method is a name, and after an @ its options, separated by +. An option is a preset, a switch, a number for the
method's main setting, or `setting=value`:

    plain                cross entropy
    label-embedding      presets default, paper, authors_vision, authors_text, recommended; switches no-cap, no-gate,
                         no-identity, single-output, flat; every field of `Objective`, rank and embedding_lr
    label-smoothing      @0.2 mixes a fifth of the uniform distribution into the target (0.1)
    online-smoothing     @0.8 weighs the soft term with 0.8 and the hard one with the rest (0.5); @floor lets the true
                         label's share of the target rise as `label-embedding@recommended` does
    confidence-penalty   @0.3 weighs the entropy with 0.3 (0.1)
    teacher-free         temperature, correct_probability and weight of the hand-made teacher

A preset replaces the recipe's objective whole; single settings then change it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from labelemb import (
    ConfidencePenaltyHead,
    DenseEmbedding,
    FlatTargetHead,
    Head,
    LabelEmbeddingHead,
    Objective,
    OnlineSmoothingHead,
    PlainHead,
    SingleOutputHead,
    TeacherFreeHead,
)
from labelemb.lab.errors import LabError
from labelemb.lab.recipe import Recipe, nearest_name
from labelemb.lab.settings import OBJECTIVES

RECOMMENDED = Objective.recommended()
OBJECTIVE_FIELDS = tuple(field.name for field in dataclasses.fields(Objective))


@dataclass(frozen=True)
class Options:
    """What may stand after a method's @."""

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
}
METHOD_NAMES = tuple(OPTIONS)
CONTROLS: dict[str, type[LabelEmbeddingHead]] = {"single-output": SingleOutputHead, "flat": FlatTargetHead}


@dataclass(frozen=True)
class HeadSizes:
    """What a head must know of the body and the data."""

    in_features: int
    num_labels: int
    rows_per_epoch: int
    total_steps: int | None


@dataclass(frozen=True)
class Method:
    """A way to train the layers after the hidden state."""

    kind: str
    switches: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """The canonical spelling, which names folders and rows of tables."""

    def make_head(
        self,
        recipe: Recipe,
        in_features: int,
        num_labels: int,
        rows_per_epoch: int,
        total_steps: int | None = None,
    ) -> Head:
        """A fresh head; its initial weights come from torch's global generator.

        `total_steps`, the updates of the training, turns head.soft_after_fraction into a number of updates.
        """
        seed = int(torch.randint(2**62, ()))  # drawn first: heads of other methods draw more or fewer weights than this
        try:
            head = MAKERS[self.kind](self, recipe, HeadSizes(in_features, num_labels, rows_per_epoch, total_steps))
        except (TypeError, ValueError) as error:
            raise LabError(f"method {self.name}: {error}") from error
        if recipe.head.init_std:
            _initialise(head, recipe.head.init_std, seed)
        return head

    def objective(self, recipe: Recipe, total_steps: int | None = None) -> Objective:
        """Label embedding's objective: the recipe's, or the preset of this method, with single settings changed."""
        preset = next((switch for switch in self.switches if switch in OBJECTIVES), None)
        changes = {} if preset else dict(recipe.head.overrides)
        changes |= {key: value for key, value in self.settings.items() if key in OBJECTIVE_FIELDS}
        if "no-cap" in self.switches:
            changes["cap_weight"] = 0.0
        if "no-gate" in self.switches:
            changes["correct_only"] = False
        objective = _preset(preset or recipe.head.objective).replace(**changes)
        fraction = recipe.head.soft_after_fraction
        if fraction and total_steps and objective.soft_after and "soft_after" not in changes:
            objective = objective.replace(soft_after=max(1, round(fraction * total_steps)))
        return objective

    def soft_term_note(self, recipe: Recipe, total_steps: int) -> str:
        """What to tell the user of a training that ends before its soft term starts; empty for any other."""
        if self.kind != "label-embedding":
            return ""
        start = self.objective(recipe, total_steps).soft_after
        if start < total_steps:
            return ""
        return (
            f"the soft term never starts: it waits for update {start:,}, and the training has {total_steps:,}; set "
            "head.soft_after_fraction, or train longer"
        )

    def clean_observer(self, recipe: Recipe) -> bool:
        """Whether the observer reads a second, gradient-free pass without dropout."""
        if self.kind != "label-embedding":
            return False
        preset = next((switch for switch in self.switches if switch in OBJECTIVES), recipe.head.objective)
        return preset == "recommended"

    def embedding_lr(self, recipe: Recipe) -> float | None:
        """The learning rate of a learned embedding; None for that of the other parameters."""
        return self.settings.get("embedding_lr", recipe.train.embedding_lr) or None

    def describe(self, recipe: Recipe, total_steps: int | None = None) -> dict[str, Any]:
        """All settings of the method as they came out, for the record of a run."""
        described: dict[str, Any] = {"name": self.name, "kind": self.kind, "switches": list(self.switches)}
        if self.kind == "label-embedding":
            described["objective"] = dataclasses.asdict(self.objective(recipe, total_steps))
        return described | {"settings": self.settings}


def parse_method(text: str) -> Method:
    """The method that a text such as `label-embedding@paper+tau=1` names."""
    kind, at, rest = text.strip().partition("@")
    if kind not in OPTIONS:
        hint = nearest_name(kind, METHOD_NAMES) or f": known are {', '.join(METHOD_NAMES)}"
        raise LabError(f"unknown method {kind!r}{hint}")
    switches: list[str] = []
    settings: dict[str, Any] = {}
    for option in rest.split("+") if at else ():
        _read_option(kind, option.strip(), switches, settings)
    presets = [switch for switch in switches if switch in OBJECTIVES]
    if len(presets) > 1:
        raise LabError(f"method {text!r} names two presets, {' and '.join(presets)}: choose one")
    ordered = tuple(switch for switch in OPTIONS[kind].switches if switch in switches)
    settings = {key: settings[key] for key in OPTIONS[kind].settings if key in settings}
    return Method(kind, ordered, settings, _canonical(kind, ordered, settings))


def parse_methods(text: str) -> list[Method]:
    """Methods separated by commas, in their order, each once."""
    methods: dict[str, Method] = {}
    for part in text.split(","):
        if part.strip():
            method = parse_method(part)
            methods.setdefault(method.name, method)
    if not methods:
        raise LabError(f"no method given: known are {', '.join(METHOD_NAMES)}")
    return list(methods.values())


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
    else:
        known = [*options.switches, *(f"{name}=..." for name in options.settings)]
        if not known:
            raise LabError(f"method {kind!r} takes no options, but {option!r} was given")
        hint = nearest_name(key, (*options.switches, *options.settings)) or f": known are {', '.join(known)}"
        raise LabError(f"unknown option {option!r} of method {kind!r}{hint}")


def _read_value(kind: str, key: str, text: str) -> Any:
    """A value with the type of the setting's default."""
    default = getattr(Objective(), key, None) if kind == "label-embedding" else None
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise LabError(f"option {key!r} of method {kind!r} must be true or false, not {text!r}")
    if isinstance(default, int) or key == "rank":
        if text.isdigit():
            return int(text)
        raise LabError(f"option {key!r} of method {kind!r} must be a whole number, not {text!r}")
    if not _is_number(text):
        raise LabError(f"option {key!r} of method {kind!r} must be a number, not {text!r}")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _canonical(kind: str, switches: tuple[str, ...], settings: dict[str, Any]) -> str:
    main = OPTIONS[kind].main
    written = [f"{value:g}" if key == main else f"{key}={_write_value(value)}" for key, value in settings.items()]
    options = "+".join([*switches, *written])
    return f"{kind}@{options}" if options else kind


def _write_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _preset(name: str) -> Objective:
    return Objective() if name == "default" else getattr(Objective, name)()


def _make_plain(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    return PlainHead(sizes.in_features, sizes.num_labels)


def _make_label_smoothing(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    return PlainHead(sizes.in_features, sizes.num_labels, label_smoothing=method.settings.get("smoothing", 0.1))


def _make_label_embedding(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    objective = method.objective(recipe, sizes.total_steps)
    rank = method.settings.get("rank", recipe.head.rank) or None
    embedding = None
    if "no-identity" in method.switches:
        if rank is not None or objective.mass_floor > 0:
            raise ValueError("no-identity is about a dense embedding that starts as the identity matrix")
        embedding = DenseEmbedding(sizes.num_labels, identity_scale=0.0)
    controls = [CONTROLS[switch] for switch in method.switches if switch in CONTROLS]
    if len(controls) > 1:
        raise ValueError(f"{' and '.join(CONTROLS)} are two controls: choose one")
    make = controls[0] if controls else LabelEmbeddingHead
    return make(
        sizes.in_features,
        sizes.num_labels,
        rank=rank,
        objective=objective,
        embedding=embedding,
        impl=cast(Any, recipe.head.impl),
        rows_per_epoch=sizes.rows_per_epoch,
    )


def _make_online_smoothing(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    floor = RECOMMENDED.mass_floor if "floor" in method.switches else 0.0
    soft_weight = method.settings.get("soft_weight", RECOMMENDED.soft_weight if floor else 0.5)
    return OnlineSmoothingHead(
        sizes.in_features,
        sizes.num_labels,
        rows_per_epoch=sizes.rows_per_epoch,
        hard_weight=1 - soft_weight,
        soft_weight=soft_weight,
        mass_floor=floor,
    )


def _make_confidence_penalty(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    return ConfidencePenaltyHead(sizes.in_features, sizes.num_labels, penalty=method.settings.get("penalty", 0.1))


def _make_teacher_free(method: Method, recipe: Recipe, sizes: HeadSizes) -> Head:
    names = {"weight": "weight_of_teacher"}
    settings = {names.get(key, key): value for key, value in method.settings.items()}
    return TeacherFreeHead(sizes.in_features, sizes.num_labels, **settings)


MAKERS: dict[str, Callable[[Method, Recipe, HeadSizes], Head]] = {
    "plain": _make_plain,
    "label-embedding": _make_label_embedding,
    "label-smoothing": _make_label_smoothing,
    "online-smoothing": _make_online_smoothing,
    "confidence-penalty": _make_confidence_penalty,
    "teacher-free": _make_teacher_free,
}


def _initialise(head: Head, std: float, seed: int) -> None:
    """Output layers from a normal distribution cut at two standard deviations, the same predictor in every method."""
    generator = torch.Generator().manual_seed(seed)
    for layer in (head.predictor, getattr(head, "observer", None)):
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

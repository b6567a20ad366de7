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
    reused-labels        labels that were learned before, fixed; the presets, hard_weight, soft_weight and mass_floor;
                         @flat keeps each label's own share and spreads the rest evenly; @warm-start learns on from
                         them, with every field of `Objective` and embedding_lr

A preset replaces the recipe's objective whole; single settings then change it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from labelemb import Head, LabelSpace, Objective
from labelemb.lab.methods.make import HeadNeeds, make_head
from labelemb.lab.methods.options import OBJECTIVE_FIELDS, OBJECTIVES, OPTIONS, canonical_name, read_options
from labelemb.lab.recipes.recipe import Recipe
from labelemb.support.errors import UserError, enough_memory
from labelemb.support.wording import did_you_mean

METHOD_NAMES = tuple(OPTIONS)
LEARNS = "label-embedding"
REUSES = "reused-labels"
WARM_START = "warm-start"
PRESETS: dict[str, Callable[[], Objective]] = {
    "default": Objective,
    "paper": Objective.paper,
    "authors_vision": Objective.authors_vision,
    "authors_text": Objective.authors_text,
    "recommended": Objective.rising_floor,
}


@dataclass(frozen=True)
class Method:
    """A way to train the layers after the hidden state."""

    kind: str
    switches: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """The canonical spelling, which names folders and rows of tables."""

    @property
    def reuses_labels(self) -> bool:
        """Whether it needs labels that were learned before."""
        return self.kind == REUSES

    @property
    def observes(self) -> bool:
        """Whether an observer teaches the labels while the network trains."""
        return self.kind == LEARNS or (self.reuses_labels and WARM_START in self.switches)

    def warm_started(self) -> "Method":
        """The same with labels that are learned further."""
        return parse_method(self.name + ("+" if "@" in self.name else "@") + WARM_START)

    def make_head(
        self,
        recipe: Recipe,
        in_features: int,
        num_labels: int,
        rows_per_epoch: int,
        total_steps: int | None = None,
        space: LabelSpace | None = None,
    ) -> Head:
        """A fresh head; its initial weights come from torch's global generator.

        `total_steps` are the updates of the training; with them head.soft_after_fraction says when the soft term
        starts. `space` holds the labels to reuse, in the order of the data's; only a method that reuses labels uses it.
        """
        needs = HeadNeeds(in_features, num_labels, rows_per_epoch, total_steps, space)
        try:
            with enough_memory("head", f"change [head] or the options of {self.name}"):
                return make_head(self, recipe, needs)
        except (TypeError, ValueError) as error:
            raise UserError(f"method {self.name}: {error}") from error

    def objective(self, recipe: Recipe, total_steps: int | None = None) -> Objective:
        """Label embedding's objective: the recipe's, or the preset of this method, with single settings changed."""
        preset = self._preset()
        changes = {} if preset else dict(recipe.head.overrides)
        changes |= {key: value for key, value in self.settings.items() if key in OBJECTIVE_FIELDS}
        if "no-cap" in self.switches:
            changes["cap_weight"] = 0.0
        if "no-gate" in self.switches:
            changes["correct_only"] = False
        name = preset or recipe.head.objective
        try:
            objective = PRESETS[name]().replace(**changes)
        except (TypeError, ValueError) as error:
            raise UserError(f"method {self.name}: {error}") from error
        fraction = recipe.head.soft_after_fraction
        if fraction and total_steps and objective.soft_start and "soft_start" not in changes:
            return objective.replace(soft_start=fraction)
        return objective

    def _preset(self) -> str | None:
        return next((switch for switch in self.switches if switch in OBJECTIVES), None)

    def soft_term_note(self, recipe: Recipe, total_steps: int) -> str:
        """What to tell the user of a training that ends before its soft term starts; empty for any other."""
        if not self.observes:
            return ""
        start = self.objective(recipe, total_steps).soft_start
        if isinstance(start, float) or start < total_steps:
            return ""
        return (
            f"the soft term never starts: it waits for update {start:,}, and the training has {total_steps:,}; set "
            "head.soft_after_fraction, or train longer"
        )

    def split_note(self, recipe: Recipe, processes: int) -> str:
        """What to tell the user of a training whose batches are split though its loss depends on how; else empty."""
        parts = [f"train.accumulate = {recipe.train.accumulate}"] if recipe.train.accumulate > 1 else []
        parts += [f"{processes} processes"] if processes > 1 else []
        if not parts or not self.observes:
            return ""
        objective = self.objective(recipe)
        chosen = [f"cap_reduction={objective.cap_reduction}"] if objective.cap_reduction == "sum" else []
        chosen += ["embedding_reduction=correct"] if objective.embedding_reduction == "correct" else []
        if not chosen:
            return ""
        return (
            f"batches are split ({', '.join(parts)}), and {' and '.join(chosen)} look at one part at a time: the "
            "result is not that of whole batches; label-embedding@default does not depend on it"
        )

    def clean_observer(self, recipe: Recipe) -> bool:
        """Whether the observer reads a second, gradient-free pass without dropout."""
        return self.observes and (self._preset() or recipe.head.objective) == "recommended"

    def embedding_lr(self, recipe: Recipe) -> float | None:
        """The learning rate of a learned embedding; None for that of the other parameters."""
        return self.settings.get("embedding_lr", recipe.train.embedding_lr) or None

    def describe(self, recipe: Recipe, total_steps: int | None = None) -> dict[str, Any]:
        """All settings of the method as they came out, for the record of a run."""
        described: dict[str, Any] = {"name": self.name, "kind": self.kind, "switches": list(self.switches)}
        if self.kind == LEARNS or self.reuses_labels:
            described["objective"] = dataclasses.asdict(self.objective(recipe, total_steps))
        return described | {"settings": self.settings}


def parse_method(text: str) -> Method:
    """The method that a text such as `label-embedding@paper+tau=1` names."""
    kind, at, rest = text.strip().partition("@")
    if kind not in OPTIONS:
        hint = did_you_mean(kind, METHOD_NAMES) or f": known are {', '.join(METHOD_NAMES)}"
        raise UserError(f"unknown method {kind!r}{hint}")
    switches, settings = read_options(kind, rest) if at else ((), {})
    return Method(kind, switches, settings, canonical_name(kind, switches, settings))


def parse_methods(text: str) -> list[Method]:
    """Methods separated by commas, in their order, each once."""
    methods: dict[str, Method] = {}
    for part in text.split(","):
        if part.strip():
            method = parse_method(part)
            methods.setdefault(method.name, method)
    if not methods:
        raise UserError(f"no method given: known are {', '.join(METHOD_NAMES)}")
    return list(methods.values())

"""Methods by name: from `label-embedding@paper+tau=1.5` to a head.

A method is a name, and after an @ its options, separated by +. An option is a preset, a switch, a number for the
method's main setting, or `setting=value`:

    plain                cross entropy
    label-embedding      without options the library's default, whose learned embedding has a learning rate of its own.
                         Presets: halves (`Objective()`), paper, authors-vision and authors-text, all with a learned
                         embedding (dense, or compressed with the recipe's head.rank) at the rate of the network;
                         rising-floor (a running mean without a prior) and fading (a running mean with a
                         prior of one row for each label). Switches no-cap, no-gate,
                         no-identity, clean-observer (it reads a pass without dropout), single-output, flat; every
                         field of `Objective`; embedding=running, dense or compressed; rank, prior_rows,
                         observe_rows (presets observe all rows), embedding_lr
    label-smoothing      @0.2 mixes a fifth of the uniform distribution into the target (0.1); @rising begins with nine
                         tenths and lets the true label's share rise to 0.9 by the end of the training
    online-smoothing     @0.8 weighs the soft term with 0.8 and the hard one with the rest (0.5); @floor lets the true
                         label's share of the target rise as `label-embedding@rising-floor` does
    confidence-penalty   @0.3 weighs the entropy with 0.3 (0.1)
    teacher-free         temperature, correct_probability and teacher_weight of the hand-made teacher
    reused-labels        labels that were learned before, fixed; the presets, hard_weight, soft_weight and mass_floor;
                         @flat keeps each label's own share and spreads the rest evenly; @warm-start learns on from
                         them, with every field of `Objective` and embedding_lr
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DENSE_LIMIT_BYTES, DenseEmbedding
from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.heads import registry
from labelemb.heads.base import Head
from labelemb.heads.defaults import DEFAULT, prior_rows
from labelemb.lab.methods.controls import CONTROLS
from labelemb.lab.methods.options import OBJECTIVE_FIELDS, OPTIONS, PRESETS, canonical_name, read_options
from labelemb.lab.recipes.recipe import Recipe
from labelemb.labelspace import LabelSpace
from labelemb.losses.objective import Objective
from labelemb.support.errors import UserError, enough_memory
from labelemb.support.wording import did_you_mean

METHOD_NAMES = tuple(OPTIONS)
LEARNS = "label-embedding"
REUSES = "reused-labels"
WARM_START = "warm-start"
RISING_FLOOR = "rising-floor"
FADING = "fading"
CLEAN_OBSERVER = "clean-observer"
PRIORS: dict[str, Callable[[int], float]] = {RISING_FLOOR: lambda _: 0.0, FADING: prior_rows}
"""Presets with a running embedding, and the rows of its prior for a number of labels."""
RISING_SMOOTHING = {"label_smoothing": 0.9, "mass_floor": 0.9}
FIXED_SETTINGS = ("hard_weight", "soft_weight", "mass_floor")
"""Fields of an objective that have an effect where labels are fixed."""


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

    @property
    def preset(self) -> str | None:
        """The preset among its options."""
        return next((switch for switch in self.switches if switch in PRESETS), None)

    @property
    def clean_observer(self) -> bool:
        """Whether the observer reads a second, gradient-free pass without dropout."""
        return self.observes and (self.preset == RISING_FLOOR or CLEAN_OBSERVER in self.switches)

    @cached_property
    def objective(self) -> Objective:
        """Label embedding's objective: the preset's or the library's default, with single settings changed."""
        changes = {key: value for key, value in self.settings.items() if key in OBJECTIVE_FIELDS}
        if "no-cap" in self.switches:
            changes["cap_weight"] = 0.0
        if "no-gate" in self.switches:
            changes["correct_only"] = False
        base = DEFAULT.objective if self.preset is None else PRESETS[self.preset]()
        try:
            return base.replace(**changes)
        except (TypeError, ValueError) as error:
            raise UserError(f"method {self.name}: {error}") from error

    def warm_started(self) -> "Method":
        """The same method with labels that are learned further."""
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

        `total_steps` are the updates of the training. `space` holds the labels to reuse, in the order of the data's;
        only a method that reuses labels uses it.
        """
        seed = int(torch.randint(2**62, ()))  # drawn first: heads of other methods draw more or fewer weights than this
        try:
            with enough_memory("head", f"change [head] or the options of {self.name}"):
                head = registry.make(
                    self._registered_name(),
                    in_features,
                    num_labels,
                    rows_per_epoch=rows_per_epoch,
                    total_steps=total_steps,
                    **self._head_options(recipe, num_labels, space),
                )
            self._check_embedding_lr(head)
        except (TypeError, ValueError) as error:
            raise UserError(f"method {self.name}: {error}") from error
        if recipe.head.init_std:
            _initialise(head, recipe.head.init_std, seed)
        return head

    def soft_term_note(self, total_steps: int) -> str:
        """Warning for a training that ends before its soft term starts; empty for any other."""
        start = self.objective.soft_start if self.observes else 0
        if isinstance(start, float) or start < total_steps:
            return ""
        return (
            f"the soft term never starts: it waits for update {start:,}, and the training has {total_steps:,}; add "
            f"soft_start=0.38 to {self.name} (a share of the training), or train longer"
        )

    def split_note(self, recipe: Recipe, processes: int) -> str:
        """Warning for a training whose loss depends on how batches are split, if they are; else empty."""
        parts = [f"train.accumulate = {recipe.train.accumulate}"] if recipe.train.accumulate > 1 else []
        parts += [f"{processes} processes"] if processes > 1 else []
        if not parts or not self.observes:
            return ""
        chosen = [f"cap_reduction={self.objective.cap_reduction}"] if self.objective.cap_reduction == "sum" else []
        chosen += ["embedding_reduction=correct"] if self.objective.embedding_reduction == "correct" else []
        if not chosen:
            return ""
        return (
            f"batches are split ({', '.join(parts)}), and {' and '.join(chosen)} are computed for each part: the "
            "result differs from that of whole batches; label-embedding without options does not depend on the split"
        )

    def embedding_lr(self, recipe: Recipe) -> float | None:
        """The learning rate of a learned embedding; None for that of the other parameters.

        That of the options, that of the recipe, or without a preset the library's default.
        """
        if "embedding_lr" in self.settings:
            return self.settings["embedding_lr"] or None
        default = DEFAULT.embedding_lr if self.observes and self.preset is None else None
        return recipe.train.embedding_lr or default

    def describe(self) -> dict[str, Any]:
        """All settings of the method, for the record of a run."""
        described: dict[str, Any] = {"name": self.name, "kind": self.kind, "switches": list(self.switches)}
        if self.kind == LEARNS or self.reuses_labels:
            described["objective"] = dataclasses.asdict(self.objective)
        return described | {"settings": self.settings}

    def _registered_name(self) -> str:
        controls = [switch for switch in self.switches if switch in CONTROLS]
        if len(controls) > 1:
            raise ValueError(f"{' and '.join(controls)} are two controls: choose one")
        if CLEAN_OBSERVER in self.switches and self.preset == RISING_FLOOR:
            raise ValueError(f"{CLEAN_OBSERVER} would change nothing: {RISING_FLOOR} has it")
        if controls:
            return CONTROLS[controls[0]]
        return LEARNS if self.reuses_labels else self.kind

    def _head_options(self, recipe: Recipe, num_labels: int, space: LabelSpace | None) -> dict[str, Any]:
        """Options of the head in the registry."""
        if self.kind == LEARNS:
            return self._objective_options(recipe) | self._learned(recipe, num_labels)
        if self.kind == REUSES:
            return self._objective_options(recipe) | {"embedding": self._reused(space)}
        if self.kind == "label-smoothing":
            rising = RISING_SMOOTHING if "rising" in self.switches else {}
            return rising | ({"label_smoothing": self.settings["smoothing"]} if self.settings else {})
        if self.kind == "online-smoothing":
            return self._online_smoothing()
        return dict(self.settings)

    def _objective_options(self, recipe: Recipe) -> dict[str, Any]:
        controlled = any(switch in CONTROLS for switch in self.switches)  # which have one implementation
        return {"objective": self.objective} | ({} if controlled else {"impl": recipe.head.impl})

    def _learned(self, recipe: Recipe, num_labels: int) -> dict[str, Any]:
        """Options of the head about the embedding that is learned, and about the rows that it is learned from."""
        name = self._embedding_name(recipe)
        options = {key: self.settings[key] for key in ("rank", "prior_rows", "observe_rows") if key in self.settings}
        if self.preset is not None:
            options.setdefault("observe_rows", None)
        if self.preset in PRIORS and name == "running" and "embedding" not in self.settings:
            options.setdefault("prior_rows", PRIORS[self.preset](num_labels))
        if name == "compressed" and recipe.head.rank:
            options.setdefault("rank", recipe.head.rank)
        if recipe.head.embedding_bias and self.preset is not None and self.preset not in PRIORS:
            if name != "compressed" or "rank" not in options:
                raise ValueError("head.embedding_bias is about a compressed embedding: set a rank")
            rank = options.pop("rank")
            return options | {"embedding": CompressedEmbedding(num_labels, rank, bias=True)}
        if "no-identity" in self.switches:
            if (name or DEFAULT.embedding(num_labels)) != "dense":
                raise ValueError("no-identity is about a dense embedding that starts as the identity matrix")
            return options | {"embedding": DenseEmbedding(num_labels, identity_scale=0.0)}
        return options | ({} if name is None else {"embedding": name})

    def _embedding_name(self, recipe: Recipe) -> str | None:
        """The embedding of the options, or of the preset; None for the library's default."""
        if "embedding" in self.settings or "rank" in self.settings:
            return self.settings.get("embedding", "compressed")
        if self.preset is None:
            return None
        if self.preset in PRIORS:
            return "running"
        return "compressed" if recipe.head.rank else "dense"

    def _reused(self, space: LabelSpace | None) -> LabelEmbedding:
        """Appendix B: the labels' soft targets are there from the start, fixed; or an embedding goes on from them."""
        if space is None:
            raise ValueError("there are no labels to reuse: pass --labels FILE")
        idle = [key for key in self.settings if key not in FIXED_SETTINGS]
        if idle and not self.observes:
            raise ValueError(
                f"{idle[0]} is about learning labels, and these are fixed: leave it out, or add warm-start"
            )
        return _trainable(space) if self.observes else FixedEmbedding(space)

    def _online_smoothing(self) -> dict[str, Any]:
        floor = PRESETS[RISING_FLOOR]() if "floor" in self.switches else None
        soft_weight = self.settings.get("soft_weight", 0.5 if floor is None else floor.soft_weight)
        if floor is None:
            return {"hard_weight": 1 - soft_weight, "soft_weight": soft_weight}
        return {"soft_weight": soft_weight, "mass_floor": floor.mass_floor}

    def _check_embedding_lr(self, head: Head) -> None:
        embedding = getattr(head, "embedding", None)
        if "embedding_lr" in self.settings and embedding is not None and not embedding.trained_by_gradient:
            raise ValueError(f"embedding_lr would be ignored: a {type(embedding).__name__} is not trained by gradient")


def parse_method(text: str) -> Method:
    """The method that a text such as `label-embedding@paper+tau=1` names."""
    kind, at, rest = text.strip().partition("@")
    if kind not in (*OPTIONS, *registry.names()):
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


def _trainable(space: LabelSpace) -> LabelEmbedding:
    """An embedding that starts at the space: compressed if the space is, else dense."""
    if space.rank is not None:
        return CompressedEmbedding.from_space(space)
    if space.form.storage == "top_k" and 4 * space.num_labels**2 > DENSE_LIMIT_BYTES:
        raise ValueError(
            f"of these {space.num_labels:,} labels only the largest entries are kept, and a dense embedding of them "
            "would take more than 2 GB: leave out warm-start"
        )
    return DenseEmbedding.from_space(space)


def _initialise(head: Head, std: float, seed: int) -> None:
    """Output layers from a normal distribution cut at two standard deviations, the same predictor in every method."""
    generator = torch.Generator().manual_seed(seed)
    for layer in (head.predictor, getattr(head, "observer", None)):
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

"""`Objective`: the settings of the label embedding objective, and its presets.

The five terms that it weighs are in `labelemb.losses.terms`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from numbers import Integral, Real
from types import MethodType
from typing import Any, Literal

Reduction = Literal["mean", "sum"]
EmbeddingReduction = Literal["all", "correct"]


@dataclass(frozen=True)
class Objective:
    """Weights and options of the label embedding loss. Frozen; `replace` gives a changed copy.

    With the defaults the loss is on the scale of cross entropy, so a learning rate found for cross entropy still fits,
    and it does not depend on how a batch is split. docs/options.md says when to change which option.
    """

    tau: float = 2.0
    """Temperature of the observer's predictions from which the embedding learns, above 0. Higher: softer targets."""
    alpha: float = 0.9
    """Probability of the true label above which the cap penalises the observer, in (0, 1]. 1: no one-sided cap."""
    cap_power: int = 1
    """Power of the cap: 1 or 2."""
    two_sided_cap: bool = False
    """Whether the cap also pulls the probability up to alpha from below (the authors' text code)."""
    hard_weight: float | None = None
    """Weight of the cross entropy with the true label. None: 0.5, or with a mass floor 1 minus the soft share."""
    soft_weight: float = 0.5
    """Weight of the cross entropy with the label's soft target; with a mass floor, its largest share (at most 1)."""
    cap_weight: float = 1.0
    """Weight of the cap. A weight of 1 slows the observer down; cap_weight * alpha > 1 holds it at alpha."""
    cap_reduction: Reduction = "mean"
    """"mean", or "sum" over the rows of a call, which depends on the batch size (the authors' vision code)."""
    embedding_reduction: EmbeddingReduction = "all"
    """Rows over which the embedding term is averaged: "all", or "correct", those that the observer gets right."""
    correct_only: bool = True
    """Whether the embedding learns only from rows that the observer gets right."""
    soft_start: float | int = 0
    """Start of the soft term: a float in [0, 1) is a share of the training, an int a number of optimiser updates."""
    mass_floor: float = 0.0
    """Share of the target that the true label keeps at the end of the training, in [0, 1]; it rises linearly from 0.

    Without progress= or total_steps= (see `LabelEmbeddingHead`) it has this value from the first call on. 0: off."""

    def __post_init__(self) -> None:
        _require(self.tau > 0, "tau", self.tau, "above 0")
        _require(0 < self.alpha <= 1, "alpha", self.alpha, "in (0, 1]")
        _require(self.cap_power in (1, 2), "cap_power", self.cap_power, "1 or 2")
        for name in ("hard_weight", "soft_weight", "cap_weight"):
            value = getattr(self, name)
            if value is not None or name != "hard_weight":
                _require(0 <= value < float("inf"), name, value, "finite and 0 or more")
        _require(self.cap_reduction in ("mean", "sum"), "cap_reduction", self.cap_reduction, '"mean" or "sum"')
        reduction = self.embedding_reduction
        _require(reduction in ("all", "correct"), "embedding_reduction", reduction, '"all" or "correct"')
        _require(
            _is_start(self.soft_start),
            "soft_start",
            self.soft_start,
            "a share of the training in [0, 1), or an int: updates, 0 or more",
        )
        kind = int if isinstance(self.soft_start, Integral) else float  # numpy's numbers too
        object.__setattr__(self, "soft_start", kind(self.soft_start))
        _require(0 <= self.mass_floor <= 1, "mass_floor", self.mass_floor, "in [0, 1]")
        if self.mass_floor > 0:
            share = "at most 1 with a mass floor: it is a share"
            _require(self.soft_weight <= 1, "soft_weight", self.soft_weight, share)
            rest = "None with a mass floor: the hard term then weighs what the soft term leaves of 1"
            _require(self.hard_weight is None, "hard_weight", self.hard_weight, rest)

    @classmethod
    def paper(cls, **changes: Any) -> Objective:
        """The paper's equation: hard and soft have weight 1, and all terms are averaged over the batch."""
        return cls(**{"hard_weight": 1.0, "soft_weight": 1.0} | changes)

    @classmethod
    def authors_vision(cls, **changes: Any) -> Objective:
        """The authors' image code: the cap is summed over the batch, the embedding averaged over right rows."""
        return cls(**{"cap_reduction": "sum", "embedding_reduction": "correct"} | changes)

    @classmethod
    def authors_text(cls, **changes: Any) -> Objective:
        """The authors' text code: weights of 1, a two-sided cap, and the soft term only after 20,000 updates."""
        return cls(**{"hard_weight": 1.0, "soft_weight": 1.0, "two_sided_cap": True, "soft_start": 20_000} | changes)

    @classmethod
    def rising_floor(cls, **changes: Any) -> Objective:
        """Beyond the paper: the true label's share of the target rises to 0.75. For `embedding="running"`.

        There is no cap, and the embedding learns from all rows. Early in the training nine tenths of the target are the
        learned distribution; at the end the true label has at least 0.75.

        When it helps: MLPs and text networks that are trained from scratch. On CLINC150 with 10 examples per label it
        is ahead of label smoothing of 0.1 (1.4 points) and behind label smoothing of 0.6 (0.9 points).

        When it does not: a small convolutional network with few examples (level with cross entropy on CIFAR, with a
        higher mean error), and text with many examples per label, where the default has the lower mean.
        docs/results.md has the numbers. Raw probabilities are underconfident: use `calibrate`.
        """
        settings: dict[str, Any] = {
            "tau": 1.25,
            "soft_weight": 0.9,
            "cap_weight": 0.0,
            "correct_only": False,
            "mass_floor": 0.75,
        }
        return cls(**settings | changes)

    @classmethod
    def fading(cls, **changes: Any) -> Objective:
        """Beyond the paper: the true label's share of the target rises to 0.9. For `embedding="running"` with a prior.

        Targets are almost entirely soft at the start and nine tenths hard at the end. The cap, tau and `correct_only`
        are as in the paper. With `prior_rows` the soft target of a label that was hardly seen is close to even.

        When it helps: texts and MLPs that are trained from scratch, most with few examples per label. When it hurts: a
        small convolutional network under Adam (half a point to two points behind cross entropy on CIFAR-10 with few
        images), a text network under SGD, and fine-tuning a trained network for a few epochs. docs/results.md has the
        numbers.
        """
        return cls(**{"soft_weight": 0.9, "mass_floor": 0.9} | changes)

    def replace(self, **changes: Any) -> Objective:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)

    def __repr__(self) -> str:
        """Only the fields that differ from the default."""
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Objective({', '.join(changed)})"


def checked_objective(objective: object) -> Objective:
    """The objective, if it is one."""
    if not isinstance(objective, Objective):
        shown = objective.__qualname__ if isinstance(objective, MethodType) else repr(objective)
        raise TypeError(
            f"objective is {shown}, but must be an Objective: pass Objective(...), or call a preset, Objective.paper()"
        )
    return objective


def _is_start(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return float(value) >= 0 if isinstance(value, Integral) else 0 <= float(value) < 1


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{name} is {value!r}, but must be {allowed}")

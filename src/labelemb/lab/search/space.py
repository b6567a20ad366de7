"""The search space: which methods and strengths a search tries, and with which it begins."""

from dataclasses import dataclass, field
from typing import Any

from labelemb.heads.defaults import MANY_LABELS
from labelemb.lab.methods.method import parse_method

BASELINE = "plain"
SMOOTHING = "label-smoothing@0.1"
"""What a search has to beat, beside plain."""
FEW_LABELS = 100
"""With fewer labels a compressed embedding saves nothing, and is not tried."""
METHOD, ONLINE = "method", "online-smoothing"


@dataclass(frozen=True)
class Start:
    """A trial that every search begins with: a method by name, or values of the parameters."""

    method: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return parse_method(self.method).name


STARTS = (
    Start(BASELINE),
    Start(SMOOTHING, {METHOD: "label-smoothing", "smoothing": 0.1}),
    Start("label-embedding"),
    Start("online-smoothing@0.5", {METHOD: ONLINE, "online_weight": 0.5}),
    Start("label-smoothing@rising"),
    Start("label-embedding@rising-floor"),
    Start("label-embedding@fading"),
)


class Space:
    """The methods and strengths that fit a number of labels."""

    def __init__(self, num_labels: int) -> None:
        many = num_labels >= MANY_LABELS  # no table of labels x labels then
        self.starts = [start for start in STARTS if not (many and start.method.startswith(ONLINE))]
        self.methods = ["label-smoothing", *([] if many else [ONLINE]), "label-embedding"]
        compressed = [f"compressed+rank={min(100, num_labels // 2)}"] if num_labels >= FEW_LABELS else []
        self.embeddings = ["running", *([] if many else ["dense"]), *compressed]

    def suggest(self, trial: Any) -> str:
        """The name of the method that an Optuna trial proposes."""
        kind = trial.suggest_categorical(METHOD, self.methods)
        if kind == "label-smoothing":
            return _named(f"{kind}@{trial.suggest_float('smoothing', 0.05, 0.6, step=0.05):.2f}")
        if kind == ONLINE:
            return _named(f"{kind}@{trial.suggest_float('online_weight', 0.3, 0.9, step=0.05):.2f}")
        embedding = trial.suggest_categorical("embedding", self.embeddings)
        soft_weight = trial.suggest_float("soft_weight", 0.1, 0.9, step=0.1)
        tau = trial.suggest_float("tau", 1.0, 4.0, step=0.5)
        if trial.suggest_categorical("floor", ["none", "rising"]) == "rising":
            rest = f"mass_floor={trial.suggest_float('mass_floor', 0.6, 0.9, step=0.15):.2f}"
        else:
            rest = f"hard_weight={1 - soft_weight:.1f}"
        # from a named preset: the library's default may change, a method that was chosen must not
        return _named(f"{kind}@halves+embedding={embedding}+soft_weight={soft_weight:.1f}+tau={tau:.1f}+{rest}")


def _named(text: str) -> str:
    """The canonical spelling, so that a method that was tried is recognised."""
    return parse_method(text).name

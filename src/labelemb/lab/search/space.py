"""`Space`: the methods and strengths that a search tries, and its first trials."""

from dataclasses import dataclass, field
from typing import Any

from labelemb.heads.defaults import DEFAULT, MANY_LABELS
from labelemb.lab.methods.method import parse_method

BASELINE = "plain"
SMOOTHING = "label-smoothing@0.1"
"""What a search has to beat, beside plain."""
FEW_LABELS = 100
"""With fewer labels a compressed embedding saves nothing, and is not tried."""
EVEN, ONLINE, LEARNED = "label-smoothing", "online-smoothing", "label-embedding"


def is_simple(method: str) -> bool:
    """Whether a method learns nothing about labels: plain, and label smoothing of any strength."""
    return method.partition("@")[0] in (BASELINE, EVEN)


@dataclass(frozen=True)
class Start:
    """A trial that every search begins with: a method by name, or values of the parameters of its kind."""

    method: str
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return parse_method(self.method).name

    @property
    def kind(self) -> str:
        return self.method.partition("@")[0]


STARTS = (
    Start(BASELINE),
    Start(SMOOTHING, {"smoothing": 0.1}),
    Start(LEARNED),
    Start("online-smoothing@0.5", {"online_weight": 0.5}),
    Start("label-smoothing@rising"),
    Start("label-embedding@rising-floor"),
    Start("label-embedding@fading"),
)


class Space:
    """The methods and strengths that fit a number of labels.

    After the named methods the kinds take turns, every second one label embedding's, which has the most parameters: a
    sampler that may also choose the kind spends most trials on strengths of one kind that hardly differ. A proposal
    that was tried before passes its turn on, so label embedding gets more trials where strengths run out.
    """

    def __init__(self, num_labels: int) -> None:
        many = num_labels >= MANY_LABELS  # no table of labels x labels then
        self.starts = [start for start in STARTS if not (many and start.kind == ONLINE)]
        self.turns = [LEARNED, EVEN] if many else [LEARNED, EVEN, LEARNED, ONLINE]
        own_rate = f"embedding_lr={DEFAULT.embedding_lr:g}"
        compressed = f"compressed+rank={min(100, num_labels // 2)}+{own_rate}"
        self.embeddings = [
            "running",
            f"running+prior_rows={DEFAULT.prior_rows(num_labels):g}",
            *([] if many else [f"dense+{own_rate}"]),
            *([compressed] if num_labels >= FEW_LABELS else []),
        ]

    @property
    def signature(self) -> str:
        """What a search can try, in a line: another space cannot go on with its trials."""
        return " ".join([*(start.name for start in self.starts), *self.turns, *self.embeddings])

    def kind(self, number: int) -> str:
        """The kind of method of a trial, repeated proposals counted."""
        turn = number - len(self.starts)
        return self.starts[number].kind if turn < 0 else self.turns[turn % len(self.turns)]

    def suggest(self, trial: Any) -> str:
        """The name of the method that an Optuna trial proposes."""
        kind = self.kind(trial.number)
        if kind == EVEN:
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

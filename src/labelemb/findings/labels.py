"""Findings about labels: labels that overlap, are never predicted right, or have too few examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from labelemb.findings.examples import ErrorEstimate
from labelemb.findings.predictions import Predictions
from labelemb.support.wording import counted

if TYPE_CHECKING:
    from labelemb.labelspace import LabelSpace

FEWEST_EXAMPLES = 5
"""A label with fewer examples is reported: each fold then trains on a handful of them."""
FEWEST_CONFUSIONS = 2
"""A pair confused less often is no finding: one example is a finding about that example."""
MOST_PAIRS = 200
"""Pairs that are kept, those confused most often first."""
EXAMPLES_OF_A_PAIR = 3
HARD_TO_TELL = 0.8
"""Two labels whose own examples are told apart less often than this, in both directions, are one label to the model."""
LARGE_PART = 0.2
"""The share of a label's examples that another one must take before splitting it is suggested."""

LabelProblem = Literal["never right", "too few examples", "absent from training"]
Suggestion = Literal["merge", "split", "relabel", "keep"]


@dataclass(frozen=True)
class LabelFinding:
    """One label with a problem, the number of its examples, and the reason in words."""

    label: str
    problem: LabelProblem
    examples: int
    reason: str


@dataclass(frozen=True)
class PairFinding:
    """Two labels that are confused with each other.

    Attributes:
        label, other: the two labels, the one that loses more examples first.
        label_as_other, other_as_label: examples of the first that are taken for the second, and the reverse.
        label_examples, other_examples: rows (up to three) of such examples, the most confident first.
        likeness, other_likeness: `space.similarity(label, other)` and the reverse; None without a space.
        suggestion: "merge", "split", "relabel", or "keep" where nothing speaks for any of these.
        error_before, error_merged: share of wrong predictions over all labels, now and with both labels as one.
        reason: why this is suggested.
    """

    label: str
    other: str
    label_as_other: int
    other_as_label: int
    label_examples: tuple[int, ...]
    other_examples: tuple[int, ...]
    likeness: float | None
    other_likeness: float | None
    suggestion: Suggestion
    error_before: float
    error_merged: float
    reason: str


class LabelScore(NamedTuple):
    """How the examples of one label fare: their number, the share predicted right, their mean probability of the label
    (its threshold), and how many of them are expected to carry it wrongly."""

    label: str
    examples: int
    accuracy: float
    self_confidence: float
    expected_errors: float


def score_labels(predictions: Predictions, estimate: ErrorEstimate, names: Sequence[str]) -> tuple[LabelScore, ...]:
    """One score for each label, in the order of the labels; NaN where a label has no prediction."""
    given = predictions.given
    examples = np.bincount(given, minlength=predictions.num_labels)
    counted = np.bincount(given[predictions.predicted_rows], minlength=predictions.num_labels)
    right = np.bincount(given[_right(predictions)], minlength=predictions.num_labels)
    accuracy = np.divide(right, counted, out=np.full(len(names), np.nan), where=counted > 0)
    columns = (examples.tolist(), accuracy.tolist(), estimate.thresholds.tolist(), estimate.wrong.tolist())
    return tuple(map(LabelScore, names, *columns))


def find_label_problems(scores: Sequence[LabelScore], absent: np.ndarray) -> tuple[LabelFinding, ...]:
    """Labels absent from the training part of a fold, never predicted right, or with too few examples."""
    found = []
    for score, is_absent in zip(scores, absent.tolist(), strict=True):
        examples = counted(score.examples, "example")
        if is_absent:
            reason = f"none of its {examples} gets any probability for it: in a fold, no model saw it"
            found.append(LabelFinding(score.label, "absent from training", score.examples, reason))
        elif score.accuracy == 0:
            found.append(
                LabelFinding(score.label, "never right", score.examples, f"none of its {examples} is predicted right")
            )
        if score.examples < FEWEST_EXAMPLES:
            reason = f"{examples}; at least {FEWEST_EXAMPLES} are needed to judge a label"
            found.append(LabelFinding(score.label, "too few examples", score.examples, reason))
    return tuple(found)


def find_pairs(
    predictions: Predictions, estimate: ErrorEstimate, names: Sequence[str], space: LabelSpace | None
) -> tuple[PairFinding, ...]:
    """The pairs of labels that are confused most often, with what merging each would do to the error."""
    confusion = _Confusion(predictions, estimate)
    pairs = _Pairs(confusion, _MergedErrors(predictions), names, space)
    return tuple(pairs.finding(*confusion.facing_the_larger_loss(pair)) for pair in confusion.pairs())


class _Confusion:
    """Counts of (given, predicted) for the wrong predictions: at most one entry a row, never labels x labels."""

    def __init__(self, predictions: Predictions, estimate: ErrorEstimate) -> None:
        predicted, given = predictions.predicted, predictions.given
        wrong = np.flatnonzero(predictions.usable & (predicted != given))
        self._labels = predictions.num_labels
        keys = given[wrong].astype(np.int64) * self._labels + predicted[wrong]
        # within an entry, the most confident mistakes first
        order = np.lexsort((-predictions.top_values[wrong, 0], keys))
        self._rows = wrong[order]
        self._keys, self._starts, self._counts = np.unique(keys[order], return_index=True, return_counts=True)
        self._confident = estimate.confident_other
        self.right = np.bincount(given[_right(predictions)], minlength=self._labels)
        self.examples = np.bincount(given[predictions.usable], minlength=self._labels)

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs by falling number of confusions in both directions, ties in the order of the labels."""
        first, second = np.divmod(self._keys, self._labels)
        unordered = np.minimum(first, second) * self._labels + np.maximum(first, second)
        pairs, place = np.unique(unordered, return_inverse=True)
        counts = np.bincount(place, self._counts, minlength=len(pairs))
        order = np.argsort(-counts, kind="stable")[:MOST_PAIRS]
        kept = pairs[order[counts[order] >= FEWEST_CONFUSIONS]]
        return [(int(pair) // self._labels, int(pair) % self._labels) for pair in kept]

    def facing_the_larger_loss(self, pair: tuple[int, int]) -> tuple[int, int]:
        """The pair with the label first that loses the larger share of its examples to the other."""
        a, b = pair
        lost = [len(self.rows(*way)) / max(1, self.examples[way[0]]) for way in ((a, b), (b, a))]
        return (a, b) if lost[0] >= lost[1] else (b, a)

    def rows(self, given: int, predicted: int) -> np.ndarray:
        """Rows of the examples of one label that are taken for the other."""
        key = given * self._labels + predicted
        place = int(np.searchsorted(self._keys, key))
        if place == len(self._keys) or self._keys[place] != key:
            return self._rows[:0]
        return self._rows[self._starts[place] : self._starts[place] + self._counts[place]]

    def confident(self, rows: np.ndarray) -> int:
        """How many of these rows reach the threshold of another label."""
        return int(self._confident[rows].sum())


class _MergedErrors:
    """What merging two labels does to the number of wrong predictions, from the kept top-k entries."""

    def __init__(self, predictions: Predictions) -> None:
        self._predictions = predictions
        self._right = _right(predictions)
        self.counted = int(predictions.usable.sum())
        self.wrong = self.counted - int(self._right.sum())
        labels = predictions.top_labels.ravel()
        # entries of all rows by label; unused places (-1) come first
        self._by_label = np.argsort(labels, kind="stable")
        self._ends = np.searchsorted(labels[self._by_label], np.arange(-1, predictions.num_labels), side="right")

    def after(self, a: int, b: int, confused: int) -> int:
        """Wrong predictions with `a` and `b` as one label, whose probability is the sum of both.

        The `confused` rows become right. Beside them only rows can change that list both labels and predict neither.
        """
        predictions = self._predictions
        (rows_a, values_a), (rows_b, values_b) = self._entries(a), self._entries(b)
        rows, place_a, place_b = np.intersect1d(rows_a, rows_b, assume_unique=True, return_indices=True)
        predicted = predictions.predicted[rows]
        best = np.maximum(predictions.top_values[rows, 0], predictions.self_confidence[rows])
        taken = (predicted != a) & (predicted != b) & (values_a[place_a] + values_b[place_b] > best)
        taken &= predictions.usable[rows]
        given = predictions.given[rows[taken]]
        gained = int(np.isin(given, (a, b)).sum())
        lost = int(self._right[rows[taken]].sum())
        return self.wrong - confused - gained + lost

    def _entries(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows that list the label among their largest probabilities, and these probabilities."""
        places = self._by_label[self._ends[label] : self._ends[label + 1]]
        return places // self._predictions.top_labels.shape[1], self._predictions.top_values.ravel()[places]


@dataclass(frozen=True)
class _Pairs:
    """Makes the finding of a pair of labels from what is known of all of them."""

    confusion: _Confusion
    merged: _MergedErrors
    names: Sequence[str]
    space: LabelSpace | None

    def finding(self, a: int, b: int) -> PairFinding:
        a_as_b, b_as_a = self.confusion.rows(a, b), self.confusion.rows(b, a)
        suggestion, reason = self._suggest(a, b)
        after = self.merged.after(a, b, len(a_as_b) + len(b_as_a))
        return PairFinding(
            label=self.names[a],
            other=self.names[b],
            label_as_other=len(a_as_b),
            other_as_label=len(b_as_a),
            label_examples=tuple(a_as_b[:EXAMPLES_OF_A_PAIR].tolist()),
            other_examples=tuple(b_as_a[:EXAMPLES_OF_A_PAIR].tolist()),
            likeness=None if self.space is None else self.space.similarity(self.names[a], self.names[b]),
            other_likeness=None if self.space is None else self.space.similarity(self.names[b], self.names[a]),
            suggestion=suggestion,
            error_before=self.merged.wrong / self.merged.counted,
            error_merged=after / self.merged.counted,
            reason=reason,
        )

    def _suggest(self, a: int, b: int) -> tuple[Suggestion, str]:
        """Merge what is not told apart in both directions, split a label that loses a part, else look at examples."""
        confusion, first, second = self.confusion, repr(self.names[a]), repr(self.names[b])
        a_as_b, b_as_a = confusion.rows(a, b), confusion.rows(b, a)
        told_a = _told_apart(confusion.right[a], len(a_as_b))
        told_b = _told_apart(confusion.right[b], len(b_as_a))
        if told_a < HARD_TO_TELL and told_b < HARD_TO_TELL:
            return "merge", (
                f"of the examples predicted as one of the two, only {told_a:.0%} of {first} and {told_b:.0%} of "
                f"{second} are right"
            )
        if told_a < 1 - HARD_TO_TELL and len(a_as_b) >= HARD_TO_TELL * confusion.examples[a]:
            # of two labels for one thing a model may take the one nearly always, and so never lose the other
            lost, total = len(a_as_b), confusion.examples[a]
            return "merge", f"{lost} of {total} examples of {first} look like {second}: nearly all"
        if told_a < HARD_TO_TELL and len(a_as_b) >= LARGE_PART * confusion.examples[a]:
            return "split", (
                f"{len(a_as_b)} of {confusion.examples[a]} examples of {first} look like {second}, which loses "
                f"{len(b_as_a)} to it: that part may belong there or need a label of its own"
            )
        confident, confused = confusion.confident(a_as_b) + confusion.confident(b_as_a), len(a_as_b) + len(b_as_a)
        if not confident:
            return "keep", f"mostly told apart, and none of the {confused} confused examples is confidently the other"
        return "relabel", (
            f"mostly told apart; {confident} of the {confused} confused examples are confidently the other label: "
            "look at these"
        )


def _told_apart(right: int, confused: int) -> float:
    """Share of right ones among the examples of a label that are predicted as one of two."""
    return right / (right + confused) if right + confused else 1.0


def _right(predictions: Predictions) -> np.ndarray:
    return predictions.predicted == predictions.given

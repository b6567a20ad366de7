"""Examples that probably carry the wrong label, ranked, and how many of them to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from labelemb.findings.predictions import Predictions


@dataclass(frozen=True)
class ExampleFinding:
    """One example and how well its label agrees with the prediction of a model that never saw it.

    Attributes:
        index: row of the example in the data.
        given_label: the label that it carries.
        suggested_label: the most probable other label; None where the row has no prediction.
        suggested_probability: probability of the suggested label.
        self_confidence: probability of the given label.
        label_quality: self_confidence / (self_confidence + suggested_probability); below 0.5 the suggested label is
            the more probable one.
        is_label_issue: among the expected number of errors.
        reason: why, in words.
        split, loss, input: what was passed for this row, or None.
    """

    index: int
    given_label: str
    suggested_label: str | None
    suggested_probability: float
    self_confidence: float
    label_quality: float
    is_label_issue: bool
    reason: str
    split: str | None = None
    loss: float | None = None
    input: Any = None


@dataclass(frozen=True)
class ErrorEstimate:
    """How many labels are wrong, by confident learning (Northcutt et al., 2021).

    A row counts for the label with the largest probability among those that reach their threshold. The rows of a given
    label that count for another one, as a share of those that count at all, estimate the share of its wrong labels.

    Attributes:
        thresholds: (labels,) mean self-confidence of the examples of each label; NaN for a label without any.
        wrong: (labels,) expected number of wrong labels among the examples that carry each label.
        confident_other: (rows,) True where the row counts for a label other than its given one.
    """

    thresholds: np.ndarray
    wrong: np.ndarray
    confident_other: np.ndarray

    @property
    def total(self) -> int:
        return round(float(self.wrong.sum()))


def estimate_errors(predictions: Predictions) -> ErrorEstimate:
    """The expected number of wrong labels, in total and for each label."""
    rows, given, labels = predictions.usable, predictions.given, predictions.num_labels
    counts = np.bincount(given[rows], minlength=labels)
    sums = np.bincount(given[rows], predictions.self_confidence[rows], minlength=labels)
    thresholds = np.full(labels, np.nan)
    np.divide(sums, counts, out=thresholds, where=counts > 0)
    least = np.append(np.where(counts > 0, thresholds, np.inf), np.inf)  # the last entry is for unused places
    other, value = _first_confident_other(predictions, least)
    # in float32 the self-confidence of a label's only example must reach the mean of itself
    own_confident = predictions.self_confidence >= least[given].astype(np.float32)
    counted_other = rows & other & (~own_confident | (value > predictions.self_confidence))
    counted_own = rows & own_confident & ~counted_other
    others = np.bincount(given[counted_other], minlength=labels)
    counted = others + np.bincount(given[counted_own], minlength=labels)
    wrong = counts * (others / np.maximum(counted, 1))
    return ErrorEstimate(thresholds, wrong, counted_other)


def _first_confident_other(predictions: Predictions, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether a label other than the given one reaches its threshold, and the largest probability of such a label."""
    labels, values = predictions.top_labels, predictions.top_values
    confident = (values >= least[labels].astype(np.float32)) & (labels != predictions.given[:, None])
    first = confident.argmax(axis=1)
    rows = np.arange(len(labels))
    return confident[rows, first], values[rows, first]


class Examples(Sequence[ExampleFinding]):
    """All examples, the most suspicious first; each item is an `ExampleFinding`. Kept as columns of numbers.

    Examples without a usable prediction come last: their label was absent from the training part of their fold, or
    their row of probabilities is NaN. With `by_loss` a larger loss is more suspicious, else a smaller label quality.
    """

    def __init__(
        self,
        predictions: Predictions,
        estimate: ErrorEstimate,
        names: Sequence[str],
        *,
        splits: np.ndarray | None = None,
        losses: np.ndarray | None = None,
        inputs: Sequence[Any] | None = None,
        by_loss: bool = False,
    ) -> None:
        self._names, self._thresholds = names, estimate.thresholds
        self._splits, self._losses, self._inputs = splits, losses, inputs
        suggested, probability = predictions.best_other()
        own, usable = predictions.self_confidence, predictions.usable
        self._usable, self._predicted = usable, predictions.predicted_rows
        total = own + probability
        quality = np.divide(own, total, out=np.full(len(own), 0.5, np.float32), where=total > 0)
        quality[~self._predicted] = np.nan
        tie_break = np.zeros(len(own)) if losses is None else -losses
        keys = (tie_break, -probability, quality)
        self.order = np.lexsort((*(reversed(keys) if by_loss else keys), ~usable))
        self.num_issues = min(estimate.total, int((usable & (quality < 0.5)).sum()))
        self._is_issue = np.zeros(len(own), bool)
        self._is_issue[self.order[: self.num_issues]] = True
        self._given, self._suggested = predictions.given, suggested
        self._own, self._probability, self._quality = own, probability, quality

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, place: int) -> ExampleFinding: ...
    @overload
    def __getitem__(self, place: slice) -> list[ExampleFinding]: ...
    def __getitem__(self, place: int | slice) -> ExampleFinding | list[ExampleFinding]:
        if isinstance(place, slice):
            return [self.of_row(int(row)) for row in self.order[place]]
        return self.of_row(int(self.order[place]))

    def __iter__(self) -> Iterator[ExampleFinding]:
        return (self.of_row(row) for row in self.order.tolist())

    def with_inputs(self, inputs: Sequence[Any]) -> Examples:
        """The same findings beside other inputs, one for each row of the data."""
        found = copy(self)
        found._inputs = inputs
        return found

    def issues(self) -> list[ExampleFinding]:
        """The examples that are flagged: as many as errors are expected, where another label is more probable."""
        return self[: self.num_issues]

    @property
    def is_label_issue(self) -> np.ndarray:
        """(rows,) bool in the order of the data."""
        return self._is_issue.copy()

    @property
    def label_quality(self) -> np.ndarray:
        """(rows,) float32 in the order of the data; NaN without a prediction."""
        return self._quality.copy()

    def of_row(self, row: int) -> ExampleFinding:
        """The finding about the example at a row of the data."""
        suggested = int(self._suggested[row])
        return ExampleFinding(
            index=row,
            given_label=self._names[self._given[row]],
            suggested_label=self._names[suggested] if suggested >= 0 else None,
            suggested_probability=float(self._probability[row]) if self._predicted[row] else float("nan"),
            self_confidence=float(self._own[row]),
            label_quality=float(self._quality[row]),
            is_label_issue=bool(self._is_issue[row]),
            reason=self._reason(row, suggested),
            split=None if self._splits is None else str(self._splits[row]),
            loss=None if self._losses is None else float(self._losses[row]),
            input=None if self._inputs is None else self._inputs[row],
        )

    def _reason(self, row: int, suggested: int) -> str:
        given = self._names[self._given[row]]
        if not self._predicted[row]:
            return "no prediction for this row"
        if not self._usable[row]:
            return f"no model knew {given!r}: the label was absent from the training part of the fold"
        own, other = self._own[row], self._probability[row]
        if suggested < 0:
            return f"{given!r} has probability {own:.3g}, and no other label is listed"
        usual = self._thresholds[suggested]
        reached = "" if np.isnan(usual) else f" (its own examples get {usual:.2g} on average)"
        if other > own:
            return f"{self._names[suggested]!r} is more probable{reached}: {other:.3g} against {own:.3g}"
        return f"{given!r} is the most probable label: {own:.3g} against {other:.3g}"

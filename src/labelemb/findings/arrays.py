"""`audit`: findings about labels and examples from arrays of out-of-fold probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from labelemb.findings.duplicates import find_duplicates
from labelemb.findings.examples import Examples, estimate_errors
from labelemb.findings.given_labels import resolve_labels
from labelemb.findings.labels import find_label_problems, find_pairs, score_labels
from labelemb.findings.predictions import Predictions, columns_of, read_predictions
from labelemb.findings.result import Audit, Summary
from labelemb.support.wording import quote_few

if TYPE_CHECKING:
    from labelemb.labelspace import LabelSpace


def audit(
    probabilities: Any,
    labels: Any,
    names: Sequence[Any] | None = None,
    *,
    space: LabelSpace | None = None,
    inputs: Sequence[Any] | None = None,
    losses: Any = None,
    splits: Any = None,
    top_k: int = 10,
    in_sample: bool = False,
) -> Audit:
    """Which labels overlap and which examples carry the wrong label, from out-of-fold probabilities.

    Use it where every example was predicted by a model that was not trained on it, such as the probabilities of
    `cross_val_predict(..., method="predict_proba")`. Predictions of the training data itself hide most errors.

    Args:
        probabilities: (rows, labels); or a pair of (rows, k) arrays, label indices (-1: unused) and probabilities; or
            an iterable of blocks of rows in either form, so that rows x labels are never in memory. A NaN stands for a
            label that the model of a fold did not know; a row of NaN for an example without a prediction.
        labels: (rows,) the given labels: names, indices of columns, or classes as scikit-learn sorts them.
        names: one name for each column; by default those of `space`, the sorted labels, or "0", "1", ...
        space: a `LabelSpace` with these names; pairs of labels then show their likeness.
        inputs: one text, image array, image file (`Path`), `bytes` or vector of features for each row, to find
            duplicates with different labels, and to be shown.
        losses: (rows,) training loss of each example, say averaged over the epochs: shown, and decides between equals.
        splits: (rows,) name of the split of each row, to find duplicates that cross splits (needs `inputs`).
        top_k: how many of the largest probabilities of a row are kept (at least 2).
        in_sample: the model was trained on these very examples. They are then ranked by `losses`, where there are any,
            and the result says that the expected number of errors is too low.

    >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]]
    >>> found = audit(probabilities, ["cat", "cat", "dog", "dog", "dog", "dog"])
    >>> found.summary.expected_errors
    1
    >>> found.examples[0].index, found.examples[0].given_label, found.examples[0].suggested_label
    (2, 'dog', 'cat')
    """
    if not isinstance(top_k, int) or top_k < 2:
        raise ValueError(f"top_k must be an integer of at least 2, not {top_k!r}")
    if splits is not None and inputs is None:
        raise ValueError("splits are compared by their inputs: pass inputs= as well")
    probabilities, columns = _with_columns(probabilities)
    if names is None and space is not None:
        names = space.names
    given, texts = resolve_labels(labels, names, columns)
    _check_space(space, texts)
    rows = len(given)
    row_inputs = None if inputs is None else _row_inputs(inputs, rows)
    row_splits = None if splits is None else _column("splits", splits, rows).astype(str)
    row_losses = None if losses is None else _row_losses(losses, rows)
    predictions = read_predictions(probabilities, given, len(texts), top_k)
    estimate = estimate_errors(predictions)
    scores = score_labels(predictions, estimate, texts)
    return Audit(
        summary=_summary(predictions, estimate.total, in_sample),
        examples=Examples(
            predictions,
            estimate,
            texts,
            splits=row_splits,
            losses=row_losses,
            inputs=row_inputs,
            by_loss=in_sample and row_losses is not None,
        ),
        labels=find_label_problems(scores, predictions.absent),
        pairs=find_pairs(predictions, estimate, texts, space),
        duplicates=None if row_inputs is None else find_duplicates(row_inputs, given, texts, row_splits),
        label_scores=scores,
    )


def _summary(predictions: Predictions, expected_errors: int, in_sample: bool) -> Summary:
    usable = predictions.usable
    return Summary(
        rows=len(usable),
        labels=predictions.num_labels,
        rows_without_prediction=int((~predictions.predicted_rows).sum()),
        rows_of_absent_labels=int((predictions.predicted_rows & ~usable).sum()),
        disagreeing=int((usable & (predictions.predicted != predictions.given)).sum()),
        expected_errors=expected_errors,
        in_sample=in_sample,
    )


def _with_columns(probabilities: Any) -> tuple[Any, int | None]:
    """The probabilities and their number of labels; of an iterator the first block tells."""
    columns = columns_of(probabilities)
    if columns is not None or isinstance(probabilities, str | bytes | tuple) or not isinstance(probabilities, Iterable):
        return probabilities, columns
    if hasattr(probabilities, "__array__"):
        return probabilities, None
    blocks = iter(probabilities)
    first = next(blocks, None)
    if first is None:
        raise ValueError("probabilities have no rows")
    return chain([first], blocks), columns_of(first)


def _check_space(space: LabelSpace | None, names: tuple[str, ...]) -> None:
    if space is None:
        return
    missing = sorted(set(names) - set(space.names))
    if missing:
        raise ValueError(f"the label space does not know {quote_few(missing)}: its names must be those of the labels")


def _column(what: str, values: Any, rows: int) -> np.ndarray:
    column = np.asarray(values)
    if column.shape != (rows,):
        raise ValueError(f"{what} must be one for each of the {rows} rows, not of shape {column.shape}")
    return column


def _row_losses(losses: Any, rows: int) -> np.ndarray:
    column = _column("losses", losses, rows)
    if column.dtype.kind not in "fiu" or np.isinf(column).any():
        raise ValueError("losses must be finite numbers (NaN where there is none)")
    return column.astype(np.float64)


def _row_inputs(inputs: Any, rows: int) -> Sequence[Any]:
    if isinstance(inputs, str | bytes) or not hasattr(inputs, "__len__") or not hasattr(inputs, "__getitem__"):
        raise ValueError(f"inputs must be a sequence with one input for each row, not {type(inputs).__name__}")
    found: Any = inputs if isinstance(inputs, list | tuple) else np.asarray(inputs)
    if len(found) != rows:
        raise ValueError(f"{len(found)} inputs for {rows} rows: pass one input for each row")
    return found.tolist() if isinstance(found, np.ndarray) and found.dtype.kind in "OUST" else found

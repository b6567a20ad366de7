"""Input that cannot be audited is one line that names the value and what to pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from labelemb.findings import audit
from labelemb.labelspace import LabelSpace

GOOD = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
NAMES = ["ant", "bee", "cat"]
LOGITS = np.array([[3.0, -2.0, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
INDICES, VALUES = np.array([[0, 1], [1, 0], [2, 0]]), np.array([[0.7, 0.2], [0.8, 0.1], [0.6, 0.2]])


@pytest.mark.parametrize(
    ("probabilities", "labels", "names", "options", "message"),
    [
        (GOOD[:, :1] / GOOD[:, :1], [0, 0, 0], None, {}, "there is only the label '0': an audit needs at least two"),
        (GOOD, [0, 1], None, {}, "more rows than the 2 labels"),
        (GOOD, [0, 1, 2, 0], None, {}, "3 rows of probabilities for 4 labels"),
        (GOOD[0], [0, 1, 2], None, {}, r"pass names|shape \(rows, labels\)"),
        (GOOD[None], [0], NAMES, {}, r"shape \(rows, labels\), not float64 of shape \(1, 3, 3\)"),
        (0.5, [0], NAMES, {}, "an array .rows, labels. or an iterable of such blocks, not a float"),
        ("probabilities", [0], NAMES, {}, "not a str"),
        ([], [0], NAMES, {}, "probabilities have no rows"),
        (LOGITS, [0, 1, 2], None, {}, "the probability -2 in row 0 is negative: pass probabilities, not logits"),
        (GOOD * 2, [0, 1, 2], None, {}, "row 0 of probabilities sums to 2, not to 1"),
        (np.where(GOOD == 0.6, np.inf, GOOD), [0, 1, 2], None, {}, "row 2 of probabilities sums to inf"),
        (GOOD * np.nan, [0, 1, 2], None, {}, "NaN in every row"),
        ([GOOD, GOOD[:, :2]], [0, 1, 2] * 2, None, {}, r"2 columns \(row 3\) but there are 3 labels"),
        (GOOD, [0, 1, 2], NAMES[:2], {}, "2 names for 3 columns"),
        (GOOD, [0, 1, 2], ["ant", "bee", "ant"], {}, "more than once there is 'ant'"),
        (GOOD, [0, 1, 2], "ant", {}, "not the one string 'ant'"),
        (GOOD, [0, 1, 3], NAMES, {}, "the label of row 2 is 3: it must lie between 0 and 2"),
        (GOOD, [0, 1, -1], NAMES, {}, "the label of row 2 is -1"),
        (GOOD, ["ant", "bea", "cat"], NAMES, {}, "the label 'bea' is not among the 3 names; did you mean 'bee'?"),
        (GOOD, ["ant", "bee", "bee"], None, {}, "2 different labels for 3 columns of probabilities: pass names"),
        (GOOD, [0, 1, 1.5], NAMES, {}, "the label of row 2 is 1.5: labels are names or integers"),
        (GOOD, ["ant", None, "cat"], NAMES, {}, "the label of row 1 is None: labels are names or integers"),
        (GOOD, [[0], [1], [2]], NAMES, {}, r"one label for each row, not of shape \(3, 1\)"),
        (GOOD, [0, 1, 2], None, {"top_k": 1}, "top_k must be an integer of at least 2, not 1"),
        (GOOD, [0, 1, 2], None, {"losses": [1.0, 2.0]}, r"losses must be one for each of the 3 rows"),
        (GOOD, [0, 1, 2], None, {"losses": [1.0, 2.0, np.inf]}, "losses must be finite"),
        (GOOD, [0, 1, 2], None, {"splits": ["train"] * 3}, "pass inputs= as well"),
        (GOOD, [0, 1, 2], None, {"splits": ["train"], "inputs": ["a", "b", "c"]}, "splits must be one for each"),
        (GOOD, [0, 1, 2], None, {"inputs": ["a", "b"]}, "2 inputs for 3 rows"),
        (GOOD, [0, 1, 2], None, {"inputs": "abc"}, "inputs must be a sequence with one input for each row, not str"),
        (GOOD, [0, 1, 2], None, {"inputs": ["a", b"b", "c"]}, "inputs must be of one kind, not bytes and text"),
        (GOOD, [0, 1, 2], None, {"inputs": [{}, {}, {}]}, "input 0 must be a text, bytes, a Path, or an array"),
        ((INDICES, VALUES), [0, 1, 2], None, {}, "pass names: top-k pairs do not tell how many labels"),
        ((INDICES + 1, VALUES), [0, 1, 2], NAMES, {}, "name label 3 but there are 3 labels"),
        ((INDICES, VALUES[:, :1]), [0, 1, 2], NAMES, {}, "indices and probabilities of one shape"),
        ((INDICES * 0, VALUES), [0, 1, 2], NAMES, {}, "name a label twice in row 0"),
        ((INDICES, VALUES * 2), [0, 1, 2], NAMES, {}, "row 0 of probabilities sums to 1.8"),
    ],
)
def test_bad_input_is_one_clear_line(
    probabilities: Any, labels: Any, names: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        audit(probabilities, labels, names, **options)
    assert "\n" not in str(raised.value)


def test_a_missing_label_of_pandas_is_named() -> None:
    pandas = pytest.importorskip("pandas")
    for labels in (pandas.Series(["ant", None, "cat"], dtype="string"), pandas.Series([0, None, 2], dtype="Int64")):
        with pytest.raises(ValueError, match=r"the label of row 1 is (<NA>|nan)"):
            audit(GOOD, labels, NAMES)


def test_a_space_of_other_labels_is_refused() -> None:
    space = LabelSpace.from_matrix(np.eye(3) * 0.7 + 0.1, ["ant", "bee", "dog"])
    with pytest.raises(ValueError, match="the label space does not know 'cat'"):
        audit(GOOD, [0, 1, 2], NAMES, space=space)

"""The measure of how well similarities know the coarse classes of CIFAR-100."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.coarse_labels import (
    PAPER_GROUPS,
    Measure,
    keep_scores,
    paper_pairs,
    ranks,
    read_scores,
    relatives_rank,
    table,
)

NAMES = [name for group in PAPER_GROUPS for name in group]
COARSE = {"containers": NAMES[:5], "people": NAMES[5:]}


def test_relatives_that_are_most_similar_have_the_best_mean_rank() -> None:
    coarse = np.array([0] * 5 + [1] * 3)
    known = ranks((coarse[:, None] == coarse).astype(float))
    # four relatives share ranks 1 to 4, two share 1 and 2
    assert relatives_rank(known, NAMES, COARSE) == pytest.approx((10 * 2.5 + 3 * 1.5) / 13)


def test_similarities_that_know_nothing_share_all_ranks() -> None:
    nothing = ranks(np.ones((8, 8)))
    assert relatives_rank(nothing, NAMES, COARSE) == pytest.approx(4.0)  # the middle of 1 to 7
    assert (nothing.diagonal() == 8).all()


def test_a_pair_of_the_paper_counts_when_both_are_near() -> None:
    similarity = np.zeros((20, 20))
    names = [*NAMES, *(str(number) for number in range(12))]
    similarity[:, 8:16] = 1  # eight others are nearer than all of the paper's
    similarity[0, 1] = similarity[1, 0] = similarity[2, 3] = 2  # bottle and can, and bowl to cup alone
    assert paper_pairs(ranks(similarity), names) == 1


def test_the_table_has_the_mean_over_seeds_and_the_best_first() -> None:
    space = [Measure("ours", "label space", rank, pairs) for rank, pairs in ((10.0, 5), (12.0, 6))]
    lines = table([Measure("plain", "confusion matrix", 20.0, 2), *space]).splitlines()
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]] == [
        ["ours", "label space", "2", "11.0 ± 1.4", "5.5 of 7"],
        ["plain", "confusion matrix", "1", "20.0", "2.0 of 7"],
    ]


def test_kept_measures_are_read_as_they_were(tmp_path: Path) -> None:
    found = paper_pairs(ranks(np.ones((8, 8))), NAMES)
    measures = [Measure("ours", "label space", 10.5, found), Measure("plain", "confusion matrix", 20.0, 2)]
    keep_scores(tmp_path / "new", measures)
    assert read_scores(tmp_path / "new") == measures

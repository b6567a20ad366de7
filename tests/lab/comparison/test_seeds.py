"""Seeds of a comparison, as a user writes them."""

from pathlib import Path

import pytest

from labelemb.lab.comparison.seeds import LARGEST_SEED, check_seeds, parse_seeds
from labelemb.lab.jobs.compare import compare
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_recipe


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("3", [0, 1, 2]),
        ("100-102", [100, 101, 102]),
        ("3,7", [3, 7]),
        ("7,", [7]),
        ("7-7", [7]),
        ("0-1, 9", [0, 1, 9]),
        (f"{LARGEST_SEED},", [LARGEST_SEED]),
    ],
)
def test_a_number_a_range_and_a_list_name_seeds(text: str, seeds: list[int]) -> None:
    assert list(parse_seeds(text)) == seeds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0", "not a whole number of at least 1"),
        ("", "names no seeds: give a number of seeds (5), a range (100-102) or a list (3,7)"),
        ("a,b", "'a,b' names no seeds"),
        ("1-2-3", "'1-2-3' names no seeds"),
        ("1.5", "'1.5' names no seeds"),
        ("102-100", "the range 102-100 is empty: write 100-102"),
        ("3,1-4", "seed 3 is given twice"),
        (f"{LARGEST_SEED + 1},", f"seeds are whole numbers from 0 to {LARGEST_SEED}"),
        ("0-999999999999", "1000000000000 seeds are too many: at most 10000"),
        ("99999999999999999999999", "seeds are too many: at most 10000"),
        ("4\x1b[2J", "names no seeds"),
    ],
)
def test_a_mistake_in_seeds_is_one_line_that_says_what_to_do(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_seeds(text)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_the_function_takes_a_number_or_a_list() -> None:
    assert list(check_seeds(2)) == [0, 1]
    assert list(check_seeds([7, 3])) == [7, 3]
    for wrong in (0, [], [-1], [2, 2]):
        with pytest.raises(UserError):
            check_seeds(wrong)


def test_a_comparison_trains_the_seeds_that_were_chosen(tmp_path: Path) -> None:
    outcome = compare(quick_recipe("train.epochs=1"), ["plain"], [3, 7], out=tmp_path, jobs=1)
    assert outcome.summary is not None
    assert outcome.summary.methods["plain"].seeds == [3, 7]
    assert sorted(folder.name for folder in (tmp_path / "plain").iterdir()) == ["seed-3", "seed-7"]

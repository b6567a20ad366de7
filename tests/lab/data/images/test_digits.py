"""The digits that ship with scikit-learn."""

from labelemb.lab.data import ImageExamples, load_data
from labelemb.lab.recipes.recipe import load_recipe


def test_the_embedded_default_needs_no_files_and_has_a_large_test_part() -> None:
    dataset = load_data(load_recipe("digits"), None, seed=1)
    assert dataset.dev is not None
    assert [len(part) for part in (dataset.train, dataset.dev, dataset.test)] == [500, 297, 1000]
    assert dataset.label_names == [str(digit) for digit in range(10)]
    assert isinstance(dataset.train, ImageExamples)
    assert dataset.train.images.unique().tolist() == [round(level * 255 / 16) for level in range(17)]


def test_every_run_has_the_same_split() -> None:
    first, second = (load_data(load_recipe("digits"), None, seed) for seed in (1, 2))
    assert first.test.targets.tolist() == second.test.targets.tolist()

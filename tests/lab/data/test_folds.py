"""Folds: every example is held out once, by a training that has not seen it."""

from pathlib import Path

import pytest
import torch

from labelemb.lab.data import Fold, load_data, read_audited
from labelemb.lab.data.folds import fold_numbers
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.support.errors import UserError
from tests.helpers.audits import quick_audit_recipe, write_intents
from tests.helpers.quick_runs import quick_recipe
from tests.helpers.tiny_data import text_rows, write_csv, write_image, write_image_folder, write_mnist


def test_every_example_is_held_out_once_and_never_trained_on_in_its_fold() -> None:
    seen = []
    for number in range(2):
        data = load_data(quick_recipe(), None, 0, Fold(number, 2))
        assert data.held_out is not None
        held, trained = set(data.held_out.rows.tolist()), set(data.held_out.train_rows.tolist())
        assert not held & trained
        assert len(data.train) == len(trained)
        seen += sorted(held)
    assert sorted(seen) == list(range(1797))


def test_folds_have_the_same_size_and_spread_every_label_evenly() -> None:
    targets = torch.arange(7).repeat_interleave(torch.tensor([3, 4, 5, 10, 11, 3, 7]))
    numbers = fold_numbers(targets, Fold(count=3))
    sizes = torch.bincount(numbers)
    assert int(sizes.max() - sizes.min()) <= 1
    for label in range(7):
        counts = torch.bincount(numbers[targets == label], minlength=3)
        assert int(counts.max() - counts.min()) <= 1


def test_rows_of_a_fold_are_rows_of_the_data(tmp_path: Path) -> None:
    file = write_intents(tmp_path / "intents.csv")
    recipe = quick_audit_recipe()
    read = read_audited(recipe, file, 3, ("train",))
    data = load_data(recipe, file, 0, Fold(1, 3))
    assert data.held_out is not None
    assert data.held_out.examples.targets.tolist() == read.targets[data.held_out.rows.numpy()].tolist()
    assert data.train.targets.tolist() == read.targets[data.held_out.train_rows.numpy()].tolist()


def test_published_parts_are_judged_together_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", train=60, test=20)
    recipe = load_recipe("mnist-mlp", ["data.dev_size=0.2"])
    assert len(read_audited(recipe, folder, 2, ("train",)).judged) == 60
    read = read_audited(recipe, folder, 2, ("train", "test"))
    assert len(read.judged) == 80
    assert [read.shown(0), read.shown(60)] == ["train image 0", "test image 0"]


def test_a_label_with_fewer_examples_than_folds_is_named(tmp_path: Path) -> None:
    file = write_intents(tmp_path / "intents.csv", extra=[["a rare request", "rare"], ["another one", "rare"]])
    with pytest.raises(
        UserError, match="label 'rare' has 2 of the audited examples, 3 folds need one in each: pass a s"
    ):
        read_audited(quick_audit_recipe(), file, 3, ("train",))


def test_one_label_is_refused(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "one.csv", text_rows(labels=("music",)))
    with pytest.raises(UserError, match="examples of one label only: two are needed"):
        read_audited(quick_audit_recipe(), file, 2, ("train",))


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write_intents(tmp_path / "intents.csv")
    with pytest.raises(UserError, match="has no test part to audit: there is train"):
        read_audited(quick_audit_recipe(), file, 2, ("train", "test"))


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "images")
    (folder / "red" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"broken\.png cannot be read as an image"):
        read_audited(load_recipe("image-folder"), folder, 2, ("train",))


def test_images_of_a_folder_are_shown_by_their_files(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for number in range(2):
            write_image(tmp_path / "images" / label / f"{number}.png", (number, 0, 0))
    read = read_audited(load_recipe("image-folder"), tmp_path / "images", 2, ("train",))
    assert [read.shown(row) for row in range(4)] == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert read.identity(0) == read.identity(2) != read.identity(1)

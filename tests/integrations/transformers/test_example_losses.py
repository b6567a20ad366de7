"""The callback records the loss of each example by its index, averaged over the epochs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from labelemb.integrations.transformers import LabelEmbeddingCallback, attach_to_pretrained
from labelemb.integrations.transformers.example_losses import ExampleLosses, RowLosses
from tests.helpers import tiny_models
from tests.helpers.small_runs import arguments, first_token_rows, trainer_of


def test_wrong_labels_have_the_largest_losses(tmp_path: Path) -> None:
    rows = first_token_rows(64)
    for row in (5, 40):
        rows[row]["labels"] = (rows[row]["labels"] + 1) % tiny_models.LABELS
    indexed = [row | {"index": torch.tensor(place)} for place, row in enumerate(rows)]
    model = attach_to_pretrained(tiny_models.bert())
    callback = LabelEmbeddingCallback(record_losses="index")
    args = arguments(tmp_path, num_train_epochs=10, remove_unused_columns=False)
    trainer_of(model, indexed, args, callbacks=[callback]).train()
    losses = callback.example_losses()
    assert losses.shape == (64,)
    assert set(np.argsort(-losses)[:2].tolist()) == {5, 40}


def test_a_column_that_does_not_arrive_is_named(tmp_path: Path) -> None:
    model = attach_to_pretrained(tiny_models.bert())
    callback = LabelEmbeddingCallback(record_losses="index")
    with pytest.raises(ValueError, match="the batches have no 'index': add the column to the training data and pass"):
        trainer_of(model, first_token_rows(8), arguments(tmp_path, max_steps=1), callbacks=[callback]).train()


def test_losses_must_be_asked_for() -> None:
    with pytest.raises(ValueError, match="no losses were recorded"):
        LabelEmbeddingCallback().example_losses()


def test_losses_are_averaged_by_index() -> None:
    losses = ExampleLosses()
    losses.add(RowLosses(torch.tensor([3, 0]), torch.tensor([1.0, 2.0])))
    losses.add(RowLosses(torch.tensor([3]), torch.tensor([2.0])))
    assert losses.means()[[0, 3]].tolist() == [2.0, 1.5]
    assert np.isnan(losses.means()[[1, 2]]).all()

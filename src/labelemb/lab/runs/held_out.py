"""What the run of a fold saves: predictions of its held-out examples, and losses of its training examples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from labelemb.lab.data.dataset import HeldOut
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.tasks.task import Predict
from labelemb.support.errors import UserError
from labelemb.support.files import file_digest, file_error, read_whole, write_bytes

FILE = "held_out.safetensors"
TOP_K = 10
"""Largest probabilities that are kept of each example."""
ROUNDING = 1e-4
"""By how much a probability may be above 1."""
BLOCK_NUMBERS = 4_000_000
"""Rows x labels that are predicted at once."""


class ExampleLosses:
    """Sum and number of the losses of each training example over the epochs so far."""

    def __init__(self, examples: int, device: torch.device) -> None:
        self.sums = torch.zeros(examples, device=device)
        self.counts = torch.zeros(examples, device=device)

    def add(self, index: Tensor, losses: Tensor) -> None:
        """Losses of the examples `index` in one update."""
        place = index.to(self.sums.device)
        self.sums.index_add_(0, place, losses)
        self.counts.index_add_(0, place, torch.ones_like(losses))

    def means(self) -> Tensor:
        return (self.sums / self.counts.clamp(min=1)).cpu()

    def state(self) -> dict[str, Tensor]:
        return {"sums": self.sums, "counts": self.counts}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.sums.copy_(state["sums"])
        self.counts.copy_(state["counts"])


@dataclass(frozen=True)
class FoldPredictions:
    """The content of held_out.safetensors; rows are places in the whole data."""

    rows: Tensor
    """(n,) of the held-out examples."""
    self_confidence: Tensor
    """(n,) probability of the given label."""
    labels: Tensor
    """(n, k) int32, the most probable labels, best first."""
    values: Tensor
    """(n, k) their probabilities."""
    train_rows: Tensor
    """(t,) of the training examples."""
    losses: Tensor
    """(t,) cross entropy of their given labels, averaged over the epochs."""


@dataclass(frozen=True)
class JoinedFolds:
    """The predictions of all folds, one row for each example of the data."""

    labels: np.ndarray
    """(rows, k) most probable labels, the given one always among them; -1 for an example that no fold held out."""
    values: np.ndarray
    """(rows, k) their probabilities."""
    losses: np.ndarray
    """(rows,) mean over the folds that trained on the example; NaN where none did."""


def predict_held_out(held_out: HeldOut, predict: Predict, temperature: float, losses: ExampleLosses) -> FoldPredictions:
    """The most probable labels of the held-out examples, in blocks: never rows x labels numbers."""
    examples, own, labels, values = held_out.examples, [], [], []
    num_labels = 0
    places = torch.arange(len(examples))
    while len(places):
        block = examples.select(places[: max(1, BLOCK_NUMBERS // num_labels) if num_labels else 1])
        probabilities = (predict(block) / temperature).softmax(-1)
        num_labels = probabilities.shape[1]
        own.append(probabilities.gather(1, block.targets[:, None])[:, 0])
        best, place = probabilities.topk(min(TOP_K, num_labels))
        values.append(best)
        labels.append(place.int())
        places = places[len(block) :]
    return FoldPredictions(
        held_out.rows, torch.cat(own), torch.cat(labels), torch.cat(values), held_out.train_rows, losses.means()
    )


def write_predictions(folder: Path, predictions: FoldPredictions) -> dict[str, str]:
    """Write held_out.safetensors; returns its checksum, by which `read_predictions` knows it again."""
    # copies: tensors that share their memory, as the rows of a single fold do, cannot be written
    write_bytes(folder / FILE, save({name: value.contiguous().clone() for name, value in vars(predictions).items()}))
    return {FILE: file_digest(folder / FILE)}


def read_predictions(folder: Path, rows: int, num_labels: int) -> FoldPredictions:
    """The predictions of a finished fold of data with so many rows and labels."""
    file = folder / FILE
    try:
        found = FoldPredictions(**load(read_whole(file)))
        RunFolder(folder).check_files(file)
        if wrong := _wrong(found, rows, num_labels):
            raise ValueError(f"{wrong} are not those of a fold of this data")
    except OSError as error:
        raise file_error("read", file, error) from error
    except (SafetensorError, TypeError, ValueError, KeyError, RuntimeError) as error:  # a header that lies
        raise UserError(f"{file} is damaged ({error}): delete {folder} to train the fold again") from error
    return found


def _wrong(found: FoldPredictions, rows: int, num_labels: int) -> str:
    """The first tensor of another shape, type or range than a fold writes; empty if there is none."""
    held_out, trained, top_k = len(found.rows.flatten()), len(found.train_rows.flatten()), min(TOP_K, num_labels)
    expected = {
        "rows": (torch.int64, (held_out,), rows - 1),
        "self_confidence": (torch.float32, (held_out,), 1 + ROUNDING),
        "labels": (torch.int32, (held_out, top_k), num_labels - 1),
        "values": (torch.float32, (held_out, top_k), 1 + ROUNDING),
        "train_rows": (torch.int64, (trained,), rows - 1),
        "losses": (torch.float32, (trained,), math.inf),
    }
    for name, (dtype, shape, most) in expected.items():
        tensor: Tensor = getattr(found, name)
        if tensor.dtype != dtype or tensor.shape != shape or not bool(((tensor >= 0) & (tensor <= most)).all()):
            return name
    return ""


def join_folds(folds: Sequence[FoldPredictions], targets: np.ndarray) -> JoinedFolds:
    """Put the predictions of all folds together, in memory of rows x top-k numbers."""
    rows, top_k = len(targets), folds[0].labels.shape[1]
    labels, values = np.full((rows, top_k), -1, np.int32), np.zeros((rows, top_k), np.float32)
    losses, trained = np.zeros(rows), np.zeros(rows)
    for fold in folds:
        place, own = fold.rows.numpy(), fold.self_confidence.numpy()
        labels[place], values[place] = fold.labels.numpy(), fold.values.numpy()
        given = targets[place]
        unlisted = (labels[place] != given[:, None]).all(axis=1)
        labels[place[unlisted], -1], values[place[unlisted], -1] = given[unlisted], own[unlisted]
        losses[fold.train_rows.numpy()] += fold.losses.numpy()
        trained[fold.train_rows.numpy()] += 1
    return JoinedFolds(labels, values, np.divide(losses, trained, out=np.full(rows, np.nan), where=trained > 0))

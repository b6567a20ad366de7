"""Scores of predictions: error, log-likelihood and calibration of logits.

Errors and calibration errors are in percent, negative log-likelihoods in nats.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb import fit_temperature
from labelemb.lab.tasks.records import ReliabilityBin

BINS = 15


def error_percent(logits: Tensor, targets: Tensor) -> float:
    """Percentage of rows whose largest logit is not the target's."""
    wrong = int((logits.argmax(-1) != targets).sum())
    return 100.0 * wrong / len(targets)


def mean_nll(logits: Tensor, targets: Tensor) -> float:
    """Mean negative log-likelihood of the targets."""
    return float(F.cross_entropy(logits.double(), targets))


class ReliabilityDiagram:
    """Rows by confidence in bins of equal width, counted a part of a set at a time."""

    def __init__(self, bins: int = BINS) -> None:
        self.bins = bins
        self.count = torch.zeros(bins, dtype=torch.long)
        self.confidence, self.right = torch.zeros(2, bins, dtype=torch.float64)  # sums over the rows of each bin

    def add(self, logits: Tensor, targets: Tensor) -> None:
        confidence, predicted = logits.double().softmax(-1).max(-1)
        right = (predicted == targets).double()
        # a confidence on a border belongs to the bin below, as in the usual definition (a, b]
        place = (confidence * self.bins).ceil().long().sub(1).clamp(0, self.bins - 1)
        self.count += torch.bincount(place, minlength=self.bins).cpu()
        self.confidence += torch.bincount(place, confidence, minlength=self.bins).cpu()
        self.right += torch.bincount(place, right, minlength=self.bins).cpu()

    def to_bins(self) -> tuple[ReliabilityBin, ...]:
        """Each bin with count, mean confidence and accuracy."""
        count = self.count.clamp_min(1)
        confidence, accuracy = self.confidence / count, self.right / count
        return tuple(map(ReliabilityBin, self.count.tolist(), confidence.tolist(), accuracy.tolist()))

    def error(self) -> float:
        """Expected calibration error: the mean distance of confidence and accuracy over the bins, in percent."""
        return 100.0 * float((self.confidence - self.right).abs().sum() / self.count.sum().clamp_min(1))


def reliability(logits: Tensor, targets: Tensor) -> ReliabilityDiagram:
    """The reliability diagram of a whole set."""
    diagram = ReliabilityDiagram()
    diagram.add(logits, targets)
    return diagram


def calibration_error(logits: Tensor, targets: Tensor) -> float:
    """Expected calibration error in percent."""
    return reliability(logits, targets).error()


def confusions(logits: Tensor, targets: Tensor) -> list[tuple[int, int, int]]:
    """The wrong cells of the confusion matrix, (target, predicted, count), the most frequent first."""
    labels = logits.shape[-1]
    predicted = logits.argmax(-1)
    wrong = predicted != targets
    cells, counts = torch.unique(targets[wrong] * labels + predicted[wrong], return_counts=True)
    order = torch.argsort(counts, descending=True, stable=True)
    pairs = zip(cells[order].tolist(), counts[order].tolist(), strict=True)
    return [(cell // labels, cell % labels, count) for cell, count in pairs]


@dataclass(frozen=True)
class Scores:
    """The scores of predictions on one set; scaled ones with logits divided by a temperature fitted on the dev set."""

    error: float
    nll: float
    ece: float
    temperature: float | None
    nll_scaled: float | None
    ece_scaled: float | None


def score(logits: Tensor, targets: Tensor, temperature: float | None = None) -> Scores:
    """Error, NLL and ECE of logits, the latter two also after division by a temperature."""
    scaled = None if temperature is None else logits.double() / temperature
    return Scores(
        error=error_percent(logits, targets),
        nll=mean_nll(logits, targets),
        ece=calibration_error(logits, targets),
        temperature=temperature,
        nll_scaled=None if scaled is None else mean_nll(scaled, targets),
        ece_scaled=None if scaled is None else calibration_error(scaled, targets),
    )


def temperature_of(logits: Tensor, targets: Tensor) -> float:
    """The temperature that makes the targets of a dev set most likely."""
    return float(fit_temperature(logits, targets))

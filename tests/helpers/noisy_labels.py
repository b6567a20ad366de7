"""Out-of-fold probabilities of an imagined classifier, and labels of which some were flipped."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class NoisyLabels:
    """(rows, labels) probabilities, true and given labels, and which of the given ones were flipped."""

    probabilities: np.ndarray
    true: np.ndarray
    given: np.ndarray
    flipped: np.ndarray


def noisy_labels(rows: int, labels: int, flips: float, seed: int = 0) -> NoisyLabels:
    """The classifier gives the true label about 0.8 on average, and is sometimes wrong."""
    generator = np.random.default_rng(seed)
    true = generator.integers(labels, size=rows)
    logits = generator.normal(size=(rows, labels))
    logits[np.arange(rows), true] += 4.5
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    flipped = generator.random(rows) < flips
    given = np.where(flipped, (true + generator.integers(1, labels, size=rows)) % labels, true)
    return NoisyLabels(probabilities, true, given, flipped)

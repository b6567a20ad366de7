"""Error, likelihood and calibration on the words of reference texts, without keeping all logits."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb import Head
from labelemb.heads.calibration import agreeing_temperature
from labelemb.lab.data import SequenceExamples
from labelemb.lab.data.pairs.sequences import IGNORED
from labelemb.lab.tasks.model import Classifier
from labelemb.lab.tasks.scores.classification import ReliabilityDiagram
from labelemb.support.tensors import evaluating

CHUNK_LOGITS = 2**23
"""Logits in memory at once."""
TEMPERATURE_ROWS = 20_000
"""Words that a temperature is fitted to: it is one number, and more would not change it."""
EVALUATION_PAIRS = 128


@dataclass(frozen=True)
class TokenScores:
    """Over the words of all references, end symbols included: error and calibration error in percent, NLL in nats."""

    error: float
    nll: float
    nll_scaled: float | None
    diagram: ReliabilityDiagram
    diagram_scaled: ReliabilityDiagram | None

    @property
    def perplexity(self) -> float:
        return _perplexity(self.nll)

    @property
    def perplexity_scaled(self) -> float | None:
        return None if self.nll_scaled is None else _perplexity(self.nll_scaled)


@torch.inference_mode()
def token_scores(
    classifier: Classifier, examples: SequenceExamples, device: torch.device, temperature: float | None = None
) -> TokenScores:
    """Error, NLL and calibration of the predictor on the references, the latter two also after division by a
    temperature."""
    wrong, count = 0, 0
    diagram, diagram_scaled = ReliabilityDiagram(), ReliabilityDiagram()
    nll = torch.zeros(2, dtype=torch.float64)
    for hidden, targets in _hidden_rows(classifier, examples, device):
        for logits, part in _logit_chunks(classifier.head, hidden, targets):
            wrong += int((logits.argmax(-1) != part).sum())
            count += len(part)
            nll[0] += F.cross_entropy(logits, part, reduction="sum").double().cpu()
            diagram.add(logits, part)
            if temperature is not None:
                scaled = logits / temperature
                nll[1] += F.cross_entropy(scaled, part, reduction="sum").double().cpu()
                diagram_scaled.add(scaled, part)
    nll_raw, nll_scaled = (nll / count).tolist()
    error = 100.0 * wrong / count
    if temperature is None:
        return TokenScores(error, nll_raw, None, diagram, None)
    return TokenScores(error, nll_raw, nll_scaled, diagram, diagram_scaled)


@torch.inference_mode()
def token_temperature(classifier: Classifier, examples: SequenceExamples, device: torch.device) -> float:
    """The temperature that makes the words of the references most likely."""
    kept, count = [], 0
    for hidden, targets in _hidden_rows(classifier, examples, device):
        # the target goes with its row as one more column, exact in float32 up to 16 million labels
        kept.append(torch.cat([hidden.float(), targets.unsqueeze(1).float()], dim=1))
        count += len(targets)
        if count >= TEMPERATURE_ROWS:
            break

    def predict(rows: Tensor) -> Tensor:
        return classifier.head(rows[:, :-1])

    def certain(rows: Tensor) -> Tensor:
        return torch.where(F.one_hot(rows[:, -1].long(), classifier.head.num_labels).bool(), 0.0, -math.inf)

    return agreeing_temperature(kept, predict, certain)


def _hidden_rows(
    classifier: Classifier, examples: SequenceExamples, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """h (rows, features) and target (rows,) of all words, a batch at a time."""
    batches = examples.batches(EVALUATION_PAIRS, None)
    # one batch of every length in turn, so that a caller who stops early has seen all lengths
    stride = max(1, round(math.sqrt(len(batches))))
    with evaluating(classifier):
        for index in (index for start in range(stride) for index in batches[start::stride]):
            inputs, targets = examples.batch(index)
            hidden = classifier.body(*(part.to(device) for part in inputs))
            valid = targets != IGNORED
            yield hidden[valid.to(device)], targets[valid].to(device)


def _logit_chunks(head: Head, hidden: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    rows = max(1, CHUNK_LOGITS // head.num_labels)
    for part, labels in zip(hidden.split(rows), targets.split(rows), strict=True):
        yield head(part).float(), labels


def _perplexity(nll: float) -> float:
    return math.exp(min(nll, 700.0))

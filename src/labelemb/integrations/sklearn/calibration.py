"""The temperature of the probabilities, with rows that may have weights."""

import torch
from torch import nn

from labelemb.heads.calibration import weighted_temperature
from labelemb.integrations.sklearn.examples import Examples
from labelemb.integrations.sklearn.network import Network
from labelemb.integrations.sklearn.training import hidden_blocks

MOST_LOGITS = 1 << 22
"""Rows are left out evenly to stay below: many fewer are enough for one number."""


@torch.no_grad()
def calibrate(network: Network, examples: Examples, held_out: Examples | None) -> None:
    """Find the head's temperature: from the labels of held-out rows if there are any, else from the observer.

    The observer is trained with hard labels alone, so the predictor is brought to agree with it on training rows, as
    `LabelEmbeddingHead.calibrate` does. A head without an observer keeps its temperature if nothing was held out.
    """
    observer: nn.Linear | None = getattr(network.head, "observer", None)
    if held_out is None and observer is None:
        return
    source = examples if held_out is None else held_out
    step = -(-len(source) * network.head.num_labels // MOST_LOGITS)
    index = source.index[::step]
    logits, aimed = [], []
    for block, hidden in hidden_blocks(network, source.rows, index):
        logits.append(network.head(hidden).double())
        if held_out is None and observer is not None:
            aimed.append((observer(hidden).double().softmax(1) * logits[-1]).sum(1))
        else:
            aimed.append(logits[-1].gather(1, torch.from_numpy(source.labels[block]).unsqueeze(1)).squeeze(1))
    weights = None if source.weights is None else torch.from_numpy(source.weights[index])
    network.head.temperature.fill_(weighted_temperature(torch.cat(logits), torch.cat(aimed), weights))

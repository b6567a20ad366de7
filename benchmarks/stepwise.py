"""Sequence to sequence as it is often written, for comparison: one decoder step and one sentence's beam at a time.

Model, weights and results are the same as the lab's; only the order of the computations differs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb import Head
from labelemb.lab.bodies.seq2seq import Memory, Seq2Seq
from labelemb.lab.data.pairs.sequences import IGNORED
from labelemb.lab.tasks.beam import SearchOptions, Symbols


def stepwise_loss(body: Seq2Seq, head: Head, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
    """Cross entropy with a Python step for each target position."""
    source, lengths, shifted = inputs
    memory = body.encode(source, lengths)
    state, logits = memory.final, []
    for place in range(shifted.shape[1]):
        states, state = body.recur(shifted[:, place : place + 1], state)
        hidden, _ = body.attend(states, memory)
        logits.append(head(hidden))
    return F.cross_entropy(torch.cat(logits, dim=1).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


@torch.inference_mode()
def sentence_beam(
    body: Seq2Seq, head: Head, source: Tensor, length: Tensor, symbols: Symbols, options: SearchOptions
) -> list[int]:
    """The best words of one source (1, positions): hypotheses in Python lists, no length penalty."""
    encoded = body.encode(source, length)
    open_ones: list[tuple[float, list[int]]] = [(0.0, [])]
    state, memory = encoded.final, encoded
    ended: list[tuple[float, list[int]]] = []
    for step in range(options.max_length + 1):
        last = torch.tensor([[words[-1] if words else symbols.begin] for _, words in open_ones])
        states, state = body.recur(last, state)
        width = len(open_ones)
        memory = Memory(encoded.states.expand(width, -1, -1), encoded.mask.expand(width, -1), encoded.final)
        hidden, _ = body.attend(states, memory)
        scores = head(hidden)[:, 0].log_softmax(-1)
        scores[:, symbols.begin] = -torch.inf
        if step == options.max_length:
            end = scores[:, symbols.end].clone()
            scores.fill_(-torch.inf)
            scores[:, symbols.end] = end
        places = options.beam - len(ended)
        totals = scores + torch.tensor([total for total, _ in open_ones]).unsqueeze(1)
        best = totals.flatten().topk(min(places, totals.numel()))
        following, parents = [], []
        for total, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            parent, label = divmod(place, totals.shape[1])
            if total == -torch.inf:
                continue
            if label == symbols.end:
                ended.append((total, open_ones[parent][1]))
            else:
                following.append((total, [*open_ones[parent][1], label]))
                parents.append(parent)
        best_ended = max((total for total, _ in ended), default=-torch.inf)
        if not following or following[0][0] <= best_ended:
            break
        rows = torch.tensor(parents)
        open_ones, state = following, (state[0][:, rows].contiguous(), state[1][:, rows].contiguous())
    return max(ended, key=lambda one: one[0])[1]

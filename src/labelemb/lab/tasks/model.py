"""`Classifier`: a body and a head as one module."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelemb import Head, LossTerms
from labelemb.support.tensors import evaluating

TERMS = LossTerms._fields
STATISTICS = ("loss", *TERMS, "correct")
"""The statistics that a training call returns with its loss; `correct` is a share of the rows."""


def out_features(body: nn.Module) -> int:
    """The size of the body's hidden state."""
    return cast(int, body.out_features)


def tie_output(body: nn.Module, head: Head) -> None:
    """Share the vectors of the target words with the predictor as its weights."""
    head.predictor.weight = cast(nn.Embedding, body.target_vectors).weight


class Classifier(nn.Module):
    """`classifier(inputs)` gives logits; with targets, the loss and its statistics as one tensor."""

    def __init__(self, body: nn.Module, head: Head, clean_observer: bool = False) -> None:
        super().__init__()
        self.body = body
        self.head = head
        has_dropout = any(isinstance(module, nn.Dropout) and module.p > 0 for module in body.modules())
        self.clean_observer = clean_observer and has_dropout
        self.keep_row_losses = False
        self.row_losses: Tensor | None = None
        """With `keep_row_losses`, the cross entropy of each row of the last training call."""

    def forward(
        self,
        inputs: tuple[Tensor, ...],
        targets: Tensor | None = None,
        *,
        num_items: float | None = None,
        progress: float | None = None,
    ) -> Any:
        hidden = self.body(*inputs)
        if targets is None:
            return self.head(hidden)
        out = self.head(
            hidden,
            targets,
            num_items=num_items,
            progress=progress,
            observed_hidden=self._clean_hidden(inputs) if self.clean_observer else None,
        )
        if self.keep_row_losses:
            self.row_losses = self._cross_entropies(hidden, out.logits, targets)
        rows = num_items or targets.numel()
        with torch.no_grad():
            statistics = torch.stack([out.loss.float(), *(term.float() for term in out.terms), out.correct / rows])
        return out.loss, statistics

    @torch.no_grad()
    def _cross_entropies(self, hidden: Tensor, logits: Tensor | None, targets: Tensor) -> Tensor:
        found = self.head.predictor(hidden) if logits is None else logits
        return functional.cross_entropy(found.float(), targets, reduction="none", ignore_index=self.head.ignore_index)

    @torch.no_grad()
    def _clean_hidden(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """The hidden state without dropout, so that the observer does not learn from its noise."""
        with evaluating(self.body):
            return self.body(*inputs)

"""Matrix products of the chunked head: float32 or better, or in autocast's type where that is on."""

from __future__ import annotations

import torch
from torch import Tensor


class Products:
    """The three products of a linear layer and its gradients. `dtype` is what everything else is computed in."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        device = hidden.device.type
        self.narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    def linear(self, hidden: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """(chunk, features) -> (chunk, labels)."""
        assert weight is not None
        if self.narrow is not None:
            logits = (hidden.to(self.narrow) @ weight.detach().to(self.narrow).T).to(self.dtype)
            return logits if bias is None else logits.add_(bias.detach())
        weight = weight.detach().to(self.dtype)
        return hidden @ weight.T if bias is None else torch.addmm(bias.detach().to(self.dtype), hidden, weight.T)

    def times(self, on_logits: Tensor, weight: Tensor | None) -> Tensor:
        """Gradient on the logits (chunk, labels) -> gradient on the hidden states (chunk, features)."""
        assert weight is not None
        kind = self.narrow or self.dtype
        return (on_logits.to(kind) @ weight.detach().to(kind)).to(self.dtype)

    def add_outer(self, gradient: Tensor, on_logits: Tensor, hidden: Tensor) -> None:
        """gradient (labels, features) += on_logits^T hidden."""
        if self.narrow is not None:
            gradient.add_((on_logits.to(self.narrow).T @ hidden.to(self.narrow)).to(self.dtype))
        else:
            gradient.addmm_(on_logits.T, hidden)

"""Matrix products of the chunked head: float32 or better, or in autocast's type where that is on."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


class Products:
    """The three products of a linear layer and its gradients. `dtype` is what everything else is computed in."""

    def __init__(self, hidden: Tensor, weight: Tensor) -> None:
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        device = hidden.device.type
        self.narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    def linear(self, hidden: Tensor, weight: Tensor | None, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """(chunk, features) -> (chunk, labels)."""
        assert weight is not None
        kind = self.narrow or self.dtype
        hidden, weight = hidden.to(kind), weight.detach().to(kind)
        bias = None if bias is None else bias.detach().to(kind)
        if self.narrow is None:
            return torch.mm(hidden, weight.T, out=out) if bias is None else torch.addmm(bias, hidden, weight.T, out=out)
        logits = F.linear(hidden, weight, bias).to(self.dtype)
        return logits if out is None else out.copy_(logits)

    def times(self, on_logits: Tensor, weight: Tensor | None) -> Tensor:
        """Gradient on the logits (chunk, labels) -> gradient on the hidden states (chunk, features)."""
        assert weight is not None
        kind = self.narrow or self.dtype
        return (on_logits.to(kind) @ weight.detach().to(kind)).to(self.dtype)

    def add_outer(self, gradient: Tensor | None, on_logits: Tensor, hidden: Tensor) -> Tensor:
        """gradient + on_logits^T hidden, (labels, features), in place where there is one already."""
        if self.narrow is not None:
            product = (on_logits.to(self.narrow).T @ hidden.to(self.narrow)).to(self.dtype)
            return product if gradient is None else gradient.add_(product)
        return on_logits.T @ hidden if gradient is None else gradient.addmm_(on_logits.T, hidden)

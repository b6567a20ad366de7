"""`LayerPass`: a linear layer that sums its gradients chunk by chunk, and memory that chunks share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from labelemb.losses.parts import LinearLayer, autocasts

FLOAT16_ROOM = 2.0**15
"""Half of the largest number in float16."""


class Workspace:
    """Memory of (rows, width) that every chunk uses anew: fresh pages for each would cost more than the work."""

    def __init__(self, rows: int, width: int, like: Tensor) -> None:
        self.rows, self.width, self.like = rows, width, like
        self._named: dict[str, Tensor] = {}

    def __call__(self, name: str, rows: int) -> Tensor:
        found = self._named.get(name)
        if found is None or len(found) < rows:
            found = self._named[name] = self.like.new_empty(max(rows, self.rows), self.width)
        return found[:rows]


class LayerPass:
    """The three products of a linear layer and its gradients so far.

    Products run in half precision where autocast is on or the layer is in half precision; the weight is converted once.
    Everything else is float32 or better (`dtype`).
    """

    def __init__(self, layer: LinearLayer, wants_gradients: bool) -> None:
        weight, bias = layer.weight.detach(), layer.bias
        device = weight.device.type
        self.dtype = torch.promote_types(weight.dtype, torch.float32)
        self.kind = torch.get_autocast_dtype(device) if autocasts(device) else weight.dtype
        self.narrow = self.kind != self.dtype
        self.weight = weight.to(self.kind)
        self.bias = None if bias is None else bias.detach().to(self.kind)
        self.wants_weight = wants_gradients and layer.weight.requires_grad
        self.wants_bias = wants_gradients and bias is not None and bias.requires_grad
        self.weight_gradient: Tensor | None = None
        self.bias_gradient: Tensor | None = None
        # fewer labels than features: row weights go to the logits' side, as where that side is scaled anyway
        self.folds = len(weight) <= weight.shape[1] or self.kind is torch.float16

    def logits(self, hidden: Tensor, out: Tensor) -> Tensor:
        """(chunk, features) -> (chunk, width)."""
        if self.narrow:
            return out.copy_(F.linear(hidden.to(self.kind), self.weight, self.bias))
        if self.bias is None:
            return torch.mm(hidden, self.weight.T, out=out)
        return torch.addmm(self.bias, hidden, self.weight.T, out=out)

    def add_gradients(self, on_logits: Tensor, hidden: Tensor, factor: Tensor) -> None:
        """From the gradient on the logits without the row's `factor` (chunk,). `on_logits` may be overwritten."""
        if self.folds:
            on_logits.mul_(factor.unsqueeze(1))
        if self.wants_weight:
            self._add_outer(on_logits, hidden if self.folds else hidden * factor.unsqueeze(1))
        if self.wants_bias:
            on_bias = on_logits.sum(0) if self.folds else factor @ on_logits
            self.bias_gradient = on_bias if self.bias_gradient is None else self.bias_gradient.add_(on_bias)

    def on_hidden(self, on_logits: Tensor, factor: Tensor) -> Tensor:
        """The gradient on the hidden states, after `add_gradients` of the same chunk."""
        on_hidden = self._product(on_logits, self.weight)
        return on_hidden if self.folds else on_hidden.mul_(factor.unsqueeze(1))

    def _add_outer(self, on_logits: Tensor, hidden: Tensor) -> None:
        so_far = self.weight_gradient
        if self.narrow:
            product = self._product(on_logits.T, hidden)
            self.weight_gradient = product if so_far is None else so_far.add_(product)
        elif so_far is None:
            self.weight_gradient = on_logits.T @ hidden
        else:
            so_far.addmm_(on_logits.T, hidden)

    def _product(self, left: Tensor, right: Tensor) -> Tensor:
        """left @ right in the products' precision, given in full precision."""
        right = right.to(self.kind)
        if self.kind is not torch.float16:
            return (left.to(self.kind) @ right).to(self.dtype)
        # gradients of a mean over many rows are too small for float16; scaled like this, no product is too large for it
        largest = torch.linalg.vector_norm(right, torch.inf, dtype=self.dtype).clamp_min(1)
        row_sums = torch.linalg.vector_norm(left, 1, dim=1, keepdim=True).clamp_min(1e-30)
        scale = FLOAT16_ROOM / (row_sums * largest)  # (rows of left, 1)
        scaled = torch.mul(left, scale, out=torch.empty_like(left, dtype=self.kind))
        return (scaled @ right).to(self.dtype).div_(scale)

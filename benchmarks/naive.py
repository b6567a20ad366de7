"""The five-term loss as one would first write it: plain autograd over (rows, labels) tensors, no shortcuts."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labelemb import CompressedEmbedding


class NaiveHead(nn.Module):
    def __init__(self, in_features: int, num_labels: int, rank: int) -> None:
        super().__init__()
        self.predictor = nn.Linear(in_features, num_labels)
        self.observer = nn.Linear(in_features, num_labels)
        self.embedding = CompressedEmbedding(num_labels, rank)

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        z1, z2 = self.predictor(hidden), self.observer(hidden.detach())
        e = self.embedding.rows(targets)  # (rows, labels)
        hard = F.cross_entropy(z1, targets)
        soft = -(F.softmax(e.detach(), -1) * F.log_softmax(z1, -1)).sum(-1).mean()
        observer = F.cross_entropy(z2, targets)
        p = F.softmax(z2, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        cap = (p - 0.9).clamp_min(0).mean()
        right = z2.argmax(-1) == targets
        teacher = F.softmax(z2.detach() / 2, -1)
        embedding = (-(teacher * F.log_softmax(e, -1)).sum(-1) * right).mean()
        return 0.5 * hard + 0.5 * soft + observer + cap + embedding


def zipf_labels(rows: int, num_labels: int, seed: int = 0) -> Tensor:
    """Labels as frequent as words: the k-th has a probability in proportion to 1 / k."""
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(1 / torch.arange(1, num_labels + 1), rows, replacement=True, generator=generator)


@torch.no_grad()
def rows_of_labels(targets: Tensor, features: int) -> Tensor:
    """Hidden states that are the same for all rows of a label, so that an observer can be right about each row."""
    _, place = targets.unique(return_inverse=True)
    return torch.randn(int(place.max()) + 1, features)[place]


@torch.no_grad()
def make_right(observer: nn.Linear, hidden: Tensor, targets: Tensor) -> None:
    """An observer that is right about every row: each then teaches the embedding, which is the most work."""
    observer.weight[targets] = hidden

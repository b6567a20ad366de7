"""Parameters of a whole model, in groups for an optimiser."""

from typing import Any

from torch import nn

from labelemb.heads.base import Head
from labelemb.heads.defaults import DEFAULT


def parameter_groups(
    model: nn.Module, lr: float, embedding_lr: float | None = DEFAULT.embedding_lr, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser of a model with a head: a learned embedding has its own learning rate.

    >>> from torch.optim import AdamW
    >>> from labelemb import LabelEmbeddingHead
    >>> model = nn.Sequential(nn.Linear(8, 16), LabelEmbeddingHead(16, 10))
    >>> optimizer = AdamW(parameter_groups(model, lr=1e-3, weight_decay=0.01))
    >>> [group["lr"] for group in optimizer.param_groups]  # body, layers of the head, embedding
    [0.001, 0.001, 0.05]

    Arguments:
        model: a model with any number of heads; without a head there is one group. Parameters that
            several heads share are in the groups of the first.
        lr: learning rate of all parameters but a learned embedding.
        embedding_lr: learning rate of a learned embedding (0.05). None: `lr`.
        weight_decay: weight decay of all parameters but a learned embedding, whose rows it would draw towards the even
            distribution.
    """
    heads = [module for module in model.modules() if isinstance(module, Head)]
    inside = {id(parameter) for head in heads for parameter in head.parameters()}
    body = [parameter for parameter in model.parameters() if id(parameter) not in inside]
    groups = [
        {"params": body, "lr": lr, "weight_decay": weight_decay},
        *(group for head in heads for group in head.parameter_groups(lr, embedding_lr, weight_decay)),
    ]
    seen: set[int] = set()
    for group in groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in seen]
        seen.update(map(id, group["params"]))
    return [group for group in groups if group["params"]]

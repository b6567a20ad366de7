"""`TokenVectors`: encodes a text as the mean of the vectors of its tokens."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from labelemb.support.errors import UserError
from labelemb.support.files import file_error


class TokenVectors(nn.Module):
    """Mean of the vectors of a text's tokens, (rows, numbers); a text without tokens has the zero vector.

    Takes token numbers, (rows, positions), of which negative ones are no tokens.
    """

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(vectors)

    def forward(self, tokens: Tensor) -> Tensor:
        known = (tokens >= 0).unsqueeze(-1)  # (rows, positions, 1)
        vectors = F.embedding(tokens.clamp(min=0), self.weight) * known
        return vectors.sum(1) / known.sum(1).clamp(min=1)


def read_vectors(file: Path, name: str = "") -> Tensor:
    """The matrix of token vectors in a safetensors file, in single precision; `name` is needed where it has several."""
    try:
        with safe_open(file, framework="pt") as content:
            matrices = [key for key in content.keys() if len(content.get_slice(key).get_shape()) == 2]  # noqa: SIM118  no mapping
            if name and name not in matrices:
                raise UserError(f"body.tensor = {name}: {file} has the matrices {', '.join(matrices) or 'none'}")
            if not name and len(matrices) != 1:
                raise UserError(f"{file} has {len(matrices)} matrices ({', '.join(matrices)}): name one by body.tensor")
            vectors = content.get_tensor(name or matrices[0])
    except OSError as error:
        raise file_error("read", file, error) from error
    except SafetensorError as error:
        raise UserError(f"{file} is not a safetensors file ({error})") from error
    if not vectors.is_floating_point() or not bool(torch.isfinite(vectors).all()):
        raise UserError(f"{file}: the vectors are no finite numbers")
    return vectors.float()

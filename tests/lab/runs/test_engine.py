"""How batches are shared out, and logits of whole sets."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from labelemb import PlainHead
from labelemb.lab.data import ImageExamples
from labelemb.lab.runs.engine import Sharing, make_fabric, make_optimizer, predict_logits
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_recipe


@dataclass
class Processes:
    """What sharing asks of the engine."""

    global_rank: int
    world_size: int


@pytest.mark.parametrize("rows", [1, 2, 5, 12, 13])
@pytest.mark.parametrize(("processes", "parts"), [(1, 1), (1, 3), (2, 1), (2, 2), (4, 2)])
def test_every_row_counts_once_and_all_processes_make_as_many_calls(rows: int, processes: int, parts: int) -> None:
    index = torch.randperm(100)[:rows]
    shares = [Sharing(Processes(rank, processes), parts).pieces(index) for rank in range(processes)]  # type: ignore[arg-type]
    counted = [piece for share in shares for piece, counts in share if counts]
    assert torch.equal(torch.cat(counted), index)
    assert len({len(share) for share in shares}) == 1
    assert all(len(piece) for share in shares for piece, _ in share)


def test_logits_of_a_set_are_those_of_its_rows_in_eval_mode() -> None:
    images = torch.randint(0, 256, (1100, 1, 2, 2), dtype=torch.uint8)
    examples = ImageExamples(images, torch.zeros(1100))
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Dropout(0.5))

    class OnInputs(nn.Module):
        def forward(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
            return model(*inputs)

    fabric = make_fabric(quick_recipe().train)
    wrapped = OnInputs()
    wrapped.inner = model
    wrapped.train()
    logits = predict_logits(fabric, wrapped, examples, batch_size=100, num_labels=3)
    assert wrapped.training
    assert torch.allclose(logits, model[1]((images.float() / 255).flatten(1)), atol=1e-6)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_the_recipes_optimiser_is_made_with_its_settings(name: str) -> None:
    recipe = quick_recipe(f"train.optimizer={name}", "train.weight_decay=0.1", "train.momentum=0.8")
    optimizer = make_optimizer(recipe, nn.Linear(2, 4), PlainHead(4, 3), embedding_lr=None)
    assert type(optimizer).__name__.lower() == name
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.1}
    if name == "sgd":
        assert optimizer.param_groups[0]["momentum"] == 0.8


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_one_line() -> None:
    with pytest.raises(UserError, match="torch finds no CUDA device"):
        make_fabric(quick_recipe("train.device=cuda").train)

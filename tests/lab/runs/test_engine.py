"""How batches are shared out, and logits of whole sets."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from labelemb import PlainHead
from labelemb.lab.data import ImageExamples
from labelemb.lab.runs.engine import Sharing, make_fabric, make_optimizer, precision_note, predict_logits
from labelemb.support.errors import UserError
from tests.helpers.quick_runs import quick_recipe, quick_run


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


@pytest.mark.parametrize(
    ("machine", "avx", "amx", "slow"),
    [("x86_64", False, False, True), ("AMD64", False, True, False), ("x86_64", True, False, False)],
)
def test_bf16_on_a_cpu_without_its_instructions_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, machine: str, avx: bool, amx: bool, slow: bool
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    here = ("train.device=cpu", "train.precision=bf16-mixed")
    assert ("this CPU has no bf16 instructions" in precision_note(quick_recipe(*here).train)) == slow
    assert precision_note(quick_recipe("train.device=cpu", "train.precision=32").train) == ""


def test_the_number_format_is_warned_of_when_a_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelemb.lab.runs.engine._cpu_has_bf16", lambda: False)
    warnings: list[str] = []
    recipe = quick_recipe("train.device=cpu", "train.precision=bf16-mixed", "train.epochs=1")
    result = quick_run(tmp_path, recipe, "plain", warn=warnings.append)
    [warning] = warnings
    assert warning.startswith("train.precision is bf16-mixed, but this CPU has no bf16 instructions")
    assert result.note == "", "it is about speed, not about the scores"

"""Lightning Fabric: device, precision and processes, the split of a batch, and predictions of all processes."""

import logging
import os
import platform
import warnings
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import torch
from torch import Tensor, nn, optim

from labelemb import Head
from labelemb.lab.bodies import FeatureBody
from labelemb.lab.data import Examples
from labelemb.lab.recipes.pretrained_settings import TrainedBefore
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import TrainSettings
from labelemb.lab.runs.fabric import DDPStrategy, Fabric
from labelemb.support.errors import UserError
from labelemb.support.tensors import evaluating

EVALUATION_ROWS = 512
"""Rows of an evaluation batch, at least: without gradients there is room."""


def check_device(settings: TrainSettings) -> None:
    """Refuse a device or a number format that this machine does not have."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "train.device is cuda, but torch finds no CUDA device: set train.device=cpu, or install a CUDA build"
        )
    if _is_half(settings) and (settings.device == "cpu" or not torch.cuda.is_available()):
        raise UserError(f"train.precision = {settings.precision} is for CUDA devices: use bf16-mixed on a CPU, or 32")


def precision_note(settings: TrainSettings) -> str:
    """A warning where training in bfloat16 is slower here than in float32; empty if it is not."""
    on_cpu = settings.device == "cpu" or not torch.cuda.is_available()
    if not on_cpu or not settings.precision.startswith("bf16-") or _cpu_has_bf16():
        return ""
    return (
        f"train.precision is {settings.precision}, but this CPU has no bf16 instructions: it trains many times slower "
        "than with --precision 32"
    )


def _cpu_has_bf16() -> bool:
    """Whether the CPU computes in bfloat16 itself (AVX512-BF16 or AMX). Of others than x86 torch does not tell."""
    asked = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    if platform.machine().lower() not in ("x86_64", "amd64") or None in asked:
        return True
    return any(is_supported() for is_supported in asked if is_supported is not None)


def settings_here(settings: TrainSettings) -> TrainSettings:
    """How a model that was trained with these settings is used on this machine, which may have another device."""
    here = msgspec.structs.replace(settings, device="auto")
    return msgspec.structs.replace(here, precision="32") if _is_half(here) and not torch.cuda.is_available() else here


def _is_half(settings: TrainSettings) -> bool:
    return settings.precision.startswith("16-")


def make_fabric(settings: TrainSettings) -> Fabric:
    """The engine for a recipe's device and precision, in the processes that torchrun started, if it did."""
    check_device(settings)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(processes)))
    cuda = settings.device != "cpu" and torch.cuda.is_available()
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it would tell the user what the user asked for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice about the machine, which is not the user's business here
        fabric = Fabric(
            accelerator="cuda" if cuda else "cpu",
            devices=local,
            num_nodes=processes // local,
            strategy=DDPStrategy() if processes > 1 else "auto",
            precision=cast(Any, settings.precision),
        )
        fabric.launch()
    return fabric


def make_optimizer(recipe: Recipe, body: nn.Module, head: Head, embedding_lr: float | None) -> optim.Optimizer:
    """The recipe's optimiser over the body and the groups of the head."""
    settings = recipe.train
    groups = head.parameter_groups(lr=settings.lr, embedding_lr=embedding_lr, weight_decay=settings.weight_decay)
    shared = {id(parameter) for parameter in body.parameters()}  # an output layer may be tied to the body's vectors
    for group in groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in shared]
    groups = [*_body_groups(recipe, body), *groups]
    # the schedule multiplies `initial_lr`, which goes through checkpoints with its group
    groups = [group | {"initial_lr": group["lr"]} for group in groups if group["params"]]
    # one kernel over all parameters; a gradient scaler (float16) cannot clip what a fused optimiser unscales itself
    fused = settings.precision != "16-mixed"
    if settings.optimizer == "sgd":
        return optim.SGD(groups, momentum=settings.momentum, fused=fused)
    kind = optim.AdamW if settings.optimizer == "adamw" else optim.Adam
    return kind(groups, fused=fused)


def _body_groups(recipe: Recipe, body: nn.Module) -> list[dict[str, Any]]:
    """The body's parameters; those that were trained before have a learning rate of their own."""
    settings = recipe.train
    usual = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if not isinstance(body, FeatureBody):
        return [{"params": list(body.parameters()), **usual}]
    assert isinstance(recipe.body, TrainedBefore)
    before = {**usual, "lr": recipe.body.learning_rate or settings.lr}
    return [{"params": list(body.top.parameters()), **usual}, {"params": list(body.encoder.parameters()), **before}]


class Sharing:
    """How the rows of a batch are shared out over processes, and within a process over parts."""

    def __init__(self, fabric: Fabric, parts: int = 1) -> None:
        self.rank, self.processes, self.parts = fabric.global_rank, fabric.world_size, parts

    def pieces(self, index: Tensor) -> list[tuple[Tensor, bool]]:
        """This process's pieces of a batch, each with whether it counts.

        All processes must do the same number of calls: one that is left without rows repeats a row that counts nothing.
        """
        if self.processes == self.parts == 1:
            return [(index, True)]
        shares = index.tensor_split(self.processes * self.parts)[self.rank * self.parts : (self.rank + 1) * self.parts]
        pieces = [(share, True) for share in shares if len(share)]
        missing = 0 if pieces and self.processes == 1 else self.parts - len(pieces)
        return pieces + [(index[:1], False)] * missing


@torch.inference_mode()
def predict_logits(fabric: Fabric, model: nn.Module, examples: Examples, batch_size: int, num_labels: int) -> Tensor:
    """Logits (rows, labels) of all examples on the CPU, in every process."""
    logits = torch.zeros(len(examples), num_labels)
    with evaluating(model):
        for piece, counts in _evaluation_pieces(fabric, examples, batch_size):
            inputs, _ = examples.batch(piece)
            found = model(fabric.to_device(inputs))
            if counts:
                logits[piece] = found.float().cpu()
    # each row is filled by one process and 0 in the others
    return reduced(fabric, fabric.to_device(logits), "sum").cpu()


def reduced(fabric: Fabric, tensor: Tensor, operation: str) -> Tensor:
    """A tensor summed or averaged over the processes; itself in a single one."""
    return cast(Tensor, fabric.all_reduce(tensor, reduce_op=operation)) if fabric.world_size > 1 else tensor


def gathered(fabric: Fabric, tensor: Tensor) -> Tensor:
    """A tensor of each process, stacked in the order of the processes, on the CPU."""
    tensor = fabric.to_device(tensor)
    found = [torch.empty_like(tensor) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(found, tensor)
    return torch.stack(found).cpu()


def _evaluation_pieces(fabric: Fabric, examples: Examples, batch_size: int) -> Iterator[tuple[Tensor, bool]]:
    sharing = Sharing(fabric)
    for index in examples.batches(max(batch_size, EVALUATION_ROWS), None):
        yield from sharing.pieces(index)

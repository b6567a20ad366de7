"""PyTorch Lightning: `LabelEmbeddingCallback` for a module that trains a head.

>>> trainer = Trainer(max_epochs=20, callbacks=[LabelEmbeddingCallback(names=["ant", "bee", ...])])

The module needs nothing for it: `training_step` calls the head and returns the loss. docs/lightning.md has a complete
example. Both packages will do, `pytorch-lightning` and `lightning`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from labelemb.heads import Head, HeadOutput
from labelemb.labelspace.labels import check_names
from labelemb.labelspace.pictures import heatmap_figure, heatmap_labels
from labelemb.losses.objective import Objective
from labelemb.support.optional import require_version

OLDEST, NEWEST = (2, 4), (2, 6)
LIBRARY = "pytorch_lightning" if find_spec("lightning") is None else "lightning"
require_version(LIBRARY, extra="lightning", oldest=OLDEST, newest=NEWEST)

if TYPE_CHECKING or LIBRARY == "pytorch_lightning":
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    from lightning.pytorch import Callback, LightningModule, Trainer

torch.serialization.add_safe_globals([Objective])  # for checkpoints of modules that save it as a hyperparameter

LABEL_SPACE_FILE = "label_space.safetensors"


class LabelEmbeddingCallback(Callback):
    """Logs the five terms of a head, tells it how far the training is, and saves its label space at the end.

    - It logs "terms/hard", "terms/soft", "terms/observer", "terms/cap" and "terms/embedding" with the module's logger.
    - During `fit`, also in validation, it passes `progress=` to the head (a mass floor and `soft_start` need it) unless
      the module passes it itself. For a head made with `total_steps=`, progress is the number of updates divided by it.
    - At the end it writes `label_space.safetensors` to the logger's folder (without a logger, to default_root_dir), and
      a heatmap to TensorBoard, if that is the logger and matplotlib is installed. If there are more than 150 labels,
      the heatmap shows those with the strongest resemblances.

    Arguments:
        names: one name per label. None: "0", "1", ...
        head: the head's name inside the module, as in `named_modules()`. None: the only head of the module.
    """

    def __init__(self, names: Sequence[str] | None = None, *, head: str | None = None) -> None:
        self.names, self.head_name = names, head
        self._head: Head | None = None
        self._sets_clock = False
        self._terms: dict[str, Tensor] = {}
        self._trainer: Trainer | None = None
        self._total_steps = math.inf
        self._handles: list[RemovableHandle] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        head = find_head(pl_module, self.head_name)
        check_names(self.names, head.num_labels)  # not after hours of training
        self._let_go()
        self._handles = [
            head.register_forward_pre_hook(self._tell_progress, with_kwargs=True),
            head.register_forward_hook(self._take_terms, prepend=True),  # before `attach` makes logits of the output
        ]
        self._head, self._trainer = head, trainer

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._head is not None
        if self._head.total_steps is not None:
            self._total_steps = self._head.total_steps
            return
        self._total_steps = trainer.estimated_stepping_batches
        if self._head.clock.has_schedule and 0 < self._total_steps < math.inf:
            self._head.total_steps, self._sets_clock = int(self._total_steps), True

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._terms:
            pl_module.log_dict(dict(self._terms))
            self._terms = {}

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._head is not None
        folder = trainer.log_dir or trainer.default_root_dir  # asked by every process
        space = self._head.label_space(self.names)
        if space is None or not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        space.save(Path(folder) / LABEL_SPACE_FILE)
        if find_spec("matplotlib") is not None:
            for logger in trainer.loggers:
                experiment: Any = getattr(logger, "experiment", None)
                if hasattr(experiment, "add_figure"):
                    figure = heatmap_figure(space, heatmap_labels(space))
                    experiment.add_figure("label space", figure, global_step=trainer.global_step)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._let_go()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._let_go()

    def _tell_progress(
        self, head: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._trainer is None or kwargs.get("progress") is not None or not 0 < self._total_steps < math.inf:
            return None
        return args, kwargs | {"progress": min(1.0, steps_done(self._trainer) / self._total_steps)}

    def _take_terms(self, head: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if head.training and isinstance(output, HeadOutput):
            self._terms = {f"terms/{name}": term.detach().mean() for name, term in output.terms._asdict().items()}

    def _let_go(self) -> None:
        """Leave the head as it was before the fit."""
        for handle in self._handles:
            handle.remove()
        if self._sets_clock and self._head is not None:
            self._head.total_steps = None
        self._handles, self._sets_clock, self._total_steps = [], False, math.inf


def steps_done(trainer: Trainer) -> int:
    """Number of steps done, as in `estimated_stepping_batches`: updates, or batches with manual optimisation.

    With manual optimisation a module may have several optimisers, and `global_step` counts the updates of all.
    """
    if trainer.lightning_module.automatic_optimization:
        return trainer.global_step
    return trainer.fit_loop.epoch_loop.batch_progress.total.completed


def find_head(module: nn.Module, name: str | None = None) -> Head:
    """The head of this name inside a module, or without a name its only head."""
    heads = {path: found for path, found in module.named_modules() if isinstance(found, Head)}
    if name is None and len(heads) == 1:
        return next(iter(heads.values()))
    if name in heads:
        return heads[name]
    listed = ", ".join(heads) or "none"
    if name is None:
        raise ValueError(f"the module must have one head, or head= must name one of its heads: {listed}")
    raise ValueError(f"the module has no head {name!r}; its heads: {listed}")

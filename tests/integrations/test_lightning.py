"""The Lightning callback: terms to the logger, progress to the head, the label space at the end; and resuming."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from labelemb import Head, LabelEmbeddingHead, LabelSpace, LabelSpaceError, LossTerms, Objective, PlainHead, attach
from labelemb.integrations.lightning import LabelEmbeddingCallback
from tests.helpers.pages import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*callbacks used to create")
EXAMPLE = ROOT / "examples" / "lightning_digits.py"
TERMS = {f"terms/{name}" for name in LossTerms._fields}
ANIMALS = ["ant", "bee", "cat"]


class Classifier(pl.LightningModule):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.head = LabelEmbeddingHead(8, 3, **options)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        inputs, labels = batch
        return self.head(self.body(inputs), labels).loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.head(self.body(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


class Attached(Classifier):
    """The same with a finished network and `attach`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = attach(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), "2")
        del self.head

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self.body(batch[0], targets=batch[1]).loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.body(batch[0])


def loader() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (40,), generator=generator)
    inputs = torch.randn(3, 6, generator=generator)[labels] + 0.3 * torch.randn(40, 6, generator=generator)
    return DataLoader(TensorDataset(inputs, labels), batch_size=10)  # four updates an epoch


def make(kind: type[Classifier] = Classifier, **options: Any) -> Classifier:
    torch.manual_seed(0)
    return kind(**options)


def fit(module: Classifier, folder: Path, checkpoint: Path | None = None, **options: Any) -> pl.Trainer:
    options = {"max_epochs": 2, "callbacks": [], "logger": False} | options
    if not any(isinstance(callback, LabelEmbeddingCallback) for callback in options["callbacks"]):
        options["callbacks"].append(LabelEmbeddingCallback(ANIMALS))
    trainer = pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in options["callbacks"]),
        log_every_n_steps=1,
        **options,
    )
    trainer.fit(module, loader(), loader(), ckpt_path=checkpoint)
    return trainer


@pytest.mark.parametrize("kind", [Classifier, Attached])
def test_the_terms_of_every_step_are_logged(kind: type[Classifier], tmp_path: Path) -> None:
    fit(make(kind), tmp_path, logger=CSVLogger(tmp_path, version=0))
    with (tmp_path / "lightning_logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0].keys() >= TERMS
    assert len(rows) == 8
    assert float(rows[-1]["terms/hard"]) < float(rows[0]["terms/hard"])
    assert (tmp_path / "lightning_logs/version_0/label_space.safetensors").exists()


def test_the_label_space_is_saved_with_its_names(tmp_path: Path) -> None:
    module = make(embedding="dense")
    fit(module, tmp_path)
    space = LabelSpace.load(tmp_path / "label_space.safetensors")
    assert list(space.names) == ANIMALS
    torch.testing.assert_close(space.matrix(kind="logit"), module.head.embedding.weight.detach())


class Listen(pl.Callback):
    """Takes down what the callback before it says to the head."""

    def __init__(self) -> None:
        self.training: list[float | None] = []
        self.validation: list[float | None] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        pl_module.head.register_forward_pre_hook(self._listen, with_kwargs=True)

    def _listen(self, head: Head, args: object, kwargs: dict[str, Any]) -> None:
        (self.training if head.training else self.validation).append(kwargs.get("progress"))


def progress_told(module: Classifier, folder: Path, **options: Any) -> Listen:
    listener = Listen()
    fit(module, folder, callbacks=[LabelEmbeddingCallback(), listener], **options)
    return listener


def test_a_head_is_told_the_progress_in_training_and_validation(tmp_path: Path) -> None:
    module = make(embedding="running", objective=Objective.rising_floor())
    told = progress_told(module, tmp_path, accumulate_grad_batches=2, num_sanity_val_steps=0)
    assert told.training == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
    assert told.validation == [0.5] * 4 + [1.0] * 4


class TwoOptimizers(Classifier):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.manual_backward(self.head(self.body(batch[0]), batch[1]).loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(part.parameters()) for part in (self.body, self.head)]


def test_the_updates_of_two_optimizers_are_not_counted_twice(tmp_path: Path) -> None:
    module = make(TwoOptimizers, embedding="running", objective=Objective.rising_floor())
    told = progress_told(module, tmp_path, num_sanity_val_steps=0)
    assert told.training == [batch / 8 for batch in range(8)]
    assert told.validation == [0.5] * 4 + [1.0] * 4


def test_a_head_with_a_clock_of_its_own_keeps_it(tmp_path: Path) -> None:
    module = make(embedding="running", objective=Objective.rising_floor(), total_steps=2)
    told = progress_told(module, tmp_path, accumulate_grad_batches=2, num_sanity_val_steps=0)
    assert told.training == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0]
    assert module.head.total_steps == 2


def test_what_the_module_says_itself_goes_before(tmp_path: Path) -> None:
    class Own(Classifier):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.head(self.body(batch[0]), batch[1], progress=1.0).loss

    module, progress = make(Own, embedding="running", objective=Objective.rising_floor()), []
    read = module.head._training_output
    module.head._training_output = lambda batch: progress.append(batch.progress) or read(batch)
    fit(module, tmp_path, max_epochs=1)
    assert set(progress) - {None} == {1.0}


def test_without_an_end_of_the_training_a_share_of_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"soft_start=0\.5 is a share of the training"):
        fit(make(objective=Objective(soft_start=0.5)), tmp_path, max_epochs=-1)


def test_soft_start_counts_the_trainers_updates(tmp_path: Path) -> None:
    """Two batches are one update here: the head's own count of calls would end too early."""
    module, soft = make(objective=Objective(soft_start=1)), []
    module.head.register_forward_hook(
        lambda head, args, out: soft.append(out.terms.soft.item() > 0) if head.training else None
    )
    fit(module, tmp_path, max_epochs=1, accumulate_grad_batches=2)
    assert soft == [False, False, True, True]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"embedding": "running", "objective": Objective.rising_floor(), "rows_per_epoch": 40},
        {"embedding": "compressed", "rank": 2},
    ],
)
def test_a_resumed_training_ends_where_an_uninterrupted_one_does(options: dict[str, Any], tmp_path: Path) -> None:
    class StopAfterFirstEpoch(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.should_stop = True

    whole = make(**options)
    fit(whole, tmp_path / "whole", max_epochs=3)
    saving = ModelCheckpoint(dirpath=tmp_path / "saved", filename="stopped", save_top_k=-1)
    fit(make(**options), tmp_path / "parts", max_epochs=3, callbacks=[saving, StopAfterFirstEpoch()])
    torch.manual_seed(1)
    resumed = Classifier(**options)
    trainer = fit(resumed, tmp_path / "parts", tmp_path / "saved" / "stopped.ckpt", max_epochs=3)
    assert trainer.global_step == 12
    found = resumed.state_dict()
    for name, expected in whole.state_dict().items():
        assert torch.equal(found[name], expected), name
    spaces = [(tmp_path / folder / "label_space.safetensors").read_bytes() for folder in ("whole", "parts")]
    assert spaces[0] == spaces[1]


def test_tensorboard_gets_terms_and_a_heatmap(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(make(), tmp_path, max_epochs=1, logger=TensorBoardLogger(str(tmp_path), version="0"))
    events = EventAccumulator(str(tmp_path / "lightning_logs" / "0"))
    events.Reload()
    assert set(events.Tags()["scalars"]) >= TERMS
    assert events.Tags()["images"] == ["label space"]
    assert events.Images("label space")[0].width > 100


def test_the_callback_leaves_nothing_behind(tmp_path: Path) -> None:
    module = make()
    fit(module, tmp_path)
    assert not module.head._forward_hooks
    assert not module.head._forward_pre_hooks


def test_a_schedule_is_that_of_each_fit(tmp_path: Path) -> None:
    module = make(embedding="running", objective=Objective.rising_floor())
    for epochs in (1, 2):
        assert progress_told(module, tmp_path, max_epochs=epochs).training[-1] == 1 - 0.25 / epochs
        assert module.head.total_steps is None


def test_a_trial_of_a_few_batches_writes_nothing(tmp_path: Path) -> None:
    fit(make(), tmp_path, fast_dev_run=True)
    assert list(tmp_path.iterdir()) == []


class Saving(Classifier):
    def __init__(self, objective: Objective) -> None:
        super().__init__(objective=objective)
        self.save_hyperparameters()


def test_an_objective_may_be_a_hyperparameter_of_a_checkpoint(tmp_path: Path) -> None:
    objective = Objective(tau=3.0)
    trainer = fit(make(Saving, objective=objective), tmp_path, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    loaded = Saving.load_from_checkpoint(tmp_path / "saved.ckpt")
    assert loaded.head.objective == loaded.hparams["objective"] == objective


def test_a_head_that_learns_nothing_about_labels_is_no_trouble(tmp_path: Path) -> None:
    module = make()
    module.head = PlainHead(8, 3)
    fit(module, tmp_path)
    assert not (tmp_path / "label_space.safetensors").exists()


def test_one_of_several_heads_is_named(tmp_path: Path) -> None:
    module = make()
    module.second = LabelEmbeddingHead(8, 4)
    with pytest.raises(ValueError, match="must have one head, or head= must name one of its heads: head, second"):
        fit(module, tmp_path)
    with pytest.raises(ValueError, match="the module has no head 'third'; its heads: head, second"):
        fit(module, tmp_path, callbacks=[LabelEmbeddingCallback(head="third")])
    fit(module, tmp_path, callbacks=[LabelEmbeddingCallback(ANIMALS, head="head")])


def test_names_that_do_not_fit_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(LabelSpaceError, match="2 names for 3 labels"):
        fit(make(), tmp_path, callbacks=[LabelEmbeddingCallback(["ant", "bee"])])


def test_the_example_learns_the_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    assert main(epochs=4, folder=str(tmp_path)) < 15
    printed = capsys.readouterr().out
    assert "validation error" in printed
    assert all(f"\n  {digit}: " in printed for digit in range(10))

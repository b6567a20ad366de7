"""The state of a run in memory: model, optimiser, random numbers and position, saved to and loaded from checkpoints."""

import time
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from labelemb.lab.bodies import FeatureBody, make_body
from labelemb.lab.data import Dataset, Examples
from labelemb.lab.methods.method import Method
from labelemb.lab.recipes.pretrained_settings import TrainedBefore
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import Seq2SeqBody
from labelemb.lab.runs.checkpoint import CorruptCheckpoint, load_checkpoint, save_checkpoint
from labelemb.lab.runs.checkpoint.contents import (
    SavedState,
    check_precision,
    check_tensor,
    check_tensors,
    read_state,
    restore_optimizer,
)
from labelemb.lab.runs.engine import gathered, make_optimizer, predict_logits
from labelemb.lab.runs.fabric import Fabric
from labelemb.lab.runs.features import keeps_features, with_features
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.held_out import ExampleLosses
from labelemb.lab.runs.labels import ReusedLabels
from labelemb.lab.runs.logs.metrics import EvaluationLog, MetricsFile, StepLog, not_finite
from labelemb.lab.runs.logs.trackers import TrackedRun, make_tracker
from labelemb.lab.runs.messages import RunOptions, Warn, ignore
from labelemb.lab.runs.randomness import Streams, stream
from labelemb.lab.runs.start import load_start
from labelemb.lab.tasks import make_task
from labelemb.lab.tasks.model import STATISTICS, Classifier, out_features, tie_output
from labelemb.lab.tasks.records import Evaluation, to_json
from labelemb.lab.tasks.task import EvaluatedModel, NotFinitePredictions
from labelemb.support.errors import UserError
from labelemb.support.files import remove_quietly
from labelemb.support.tensors import copied_state


@dataclass(frozen=True)
class Best:
    """The best dev evaluation so far, and the model's weights at that point."""

    record: Evaluation
    weights: dict[str, Tensor]


class Run:
    """One method with one seed on one data set."""

    def __init__(
        self,
        fabric: Fabric,
        recipe: Recipe,
        method: Method,
        seed: int,
        data: Dataset,
        folder: RunFolder,
        options: RunOptions,
        labels: ReusedLabels | None = None,
        warn: Warn = ignore,
    ) -> None:
        self.fabric, self.recipe, self.settings, self.method, self.seed = fabric, recipe, recipe.train, method, seed
        self.read_data, self.folder, self.options, self.labels = data, folder, options, labels
        self.num_labels = len(data.label_names)
        self.task = make_task(recipe)
        self.batches_per_epoch = len(data.train.batches(self.settings.batch_size, None))
        self.total_steps = self.settings.epochs * self.batches_per_epoch
        notes = (
            method.soft_term_note(self.total_steps),
            method.split_note(recipe, fabric.world_size),
            _threads_note(folder),
        )
        self.notes = [note for note in notes if note]
        with stream(seed, "body"):
            body = make_body(recipe.body, data.inputs, self.num_labels)
            load_start(body, recipe, data.inputs)
        with stream(seed, "head"):
            head = method.make_head(
                recipe,
                out_features(body),
                self.num_labels,
                rows_per_epoch=data.train.rows,
                total_steps=self.total_steps,
                space=None if labels is None else labels.space,
            )
        if isinstance(recipe.body, Seq2SeqBody) and recipe.body.tie_output:
            tie_output(body, head)
        self.whole = Classifier(body, head, method.clean_observer)
        self.data, self.classifier = data, self.whole
        _check_frozen(recipe, fabric.world_size)
        if isinstance(body, FeatureBody) and keeps_features(recipe, data):
            body.freeze(True)
            self.data = with_features(fabric, body, data, recipe.train.precision, warn)
            self.classifier = Classifier(body.top, head, method.clean_observer)
        optimizer = make_optimizer(recipe, self.classifier.body, head, method.embedding_lr(recipe))
        self.model, self.optimizer = fabric.setup(self.classifier, optimizer)
        self.streams = Streams(seed, fabric.global_rank, fabric.device)

        self.selects = self.settings.dev and data.dev is not None

        self.epoch, self.batch = 0, 0
        self.epoch_order = self.streams.order.get_state()
        self.log = StepLog(fabric)
        self.losses = None if data.held_out is None else ExampleLosses(len(data.train), fabric.device)
        self.classifier.keep_row_losses = self.losses is not None
        self.records: list[Evaluation] = []
        self.best: Best | None = None
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self.saved_at = time.monotonic()
        self.evaluation_logs: list[EvaluationLog] = []

    @property
    def step(self) -> int:
        """Optimiser updates so far."""
        return self.epoch * self.batches_per_epoch + self.batch

    def shuffled(self) -> list[Tensor]:
        """The batches of the epoch. Keeps the generator's state from before, to draw the same order after a resume."""
        self.epoch_order = self.streams.order.get_state()
        return self.data.train.batches(self.settings.batch_size, self.streams.order)

    def begin_epoch(self) -> None:
        """Freeze or train the part of the body that was trained before, as the recipe says for this epoch."""
        body, settings = self.classifier.body, self.recipe.body
        if isinstance(body, FeatureBody) and isinstance(settings, TrainedBefore):
            body.freeze(settings.is_frozen(self.epoch))

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epoch_order = self.streams.order.get_state()

    def logits(self, examples: Examples) -> Tensor:
        return predict_logits(self.fabric, self.model, examples, self.settings.batch_size, self.num_labels)

    @property
    def evaluated_model(self) -> EvaluatedModel:
        """The model as the task evaluates it."""
        data, origin = self.data, str(self.folder.path)
        sets = {"dev": data.dev, "test": data.test}
        return EvaluatedModel(self.recipe, self.classifier, data.inputs, data.label_names, self.logits, origin, **sets)

    @property
    def reported(self) -> Evaluation:
        """The evaluation that the result reports: the best on the dev set, or without one the last."""
        return self.records[-1] if self.best is None else self.best.record

    def restore_reported(self) -> None:
        """Give the model the weights that it had at the reported evaluation."""
        if self.best is not None:
            self.model.load_state_dict(self.best.weights)

    def evaluate(self, epoch_end: bool) -> None:
        """Record the losses since the last evaluation and the scores on dev, and on test where it may be reported."""
        started = time.perf_counter()
        scores: dict[str, float] = {}
        if self.data.dev is not None:
            scores |= self._scores("dev")
        is_best = self.selects and self._is_best(scores[self.task.main.dev_field])
        if epoch_end or is_best:
            scores |= self._scores("test")
        means = self.log.take()
        self.seconds["evaluation"] += time.perf_counter() - started
        record = self.task.evaluation_type(
            step=self.step,
            epoch=round(self.step / self.batches_per_epoch, 4),
            lr=self.optimizer.param_groups[0]["lr"],
            loss=means.loss,
            terms=means.terms,
            train_error=means.train_error,
            seconds=self.seconds["training"],
        )
        record = msgspec.structs.replace(record, **scores)
        if is_best:
            weights = copied_state(self.model)
            self.best = Best(record, weights)
        self.records.append(record)
        for log in self.evaluation_logs:
            log.add(record)

    def _scores(self, name: str) -> dict[str, float]:
        try:
            return self.task.evaluate(self.evaluated_model, name)
        except NotFinitePredictions as error:
            raise not_finite(f"the predictions on the {name} set are", self.step) from error

    def _is_best(self, score: float) -> bool:
        main = self.task.main
        return self.best is None or main.at_least_as_good(score, getattr(self.best.record, main.dev_field))

    def save(self) -> None:
        """Write the checkpoint: everything that the rest of the run depends on. All processes call it together."""
        self.log.check(self.step)
        streams = self.streams.state()
        if self.fabric.world_size > 1:
            streams = {name: gathered(self.fabric, value) for name, value in streams.items()}
        if self.fabric.is_global_zero:
            state = SavedState(
                model=self.model.state_dict(),
                optimizer=self.optimizer.state_dict(),
                precision=self.fabric.strategy.precision.state_dict(),
                processes=self.fabric.world_size,
                streams=streams,
                order=self.epoch_order,
                epoch=self.epoch,
                batch=self.batch,
                log=self.log.state(),
                records=[to_json(record) for record in self.records],
                best=None if self.best is None else to_json(self.best.record),
                best_state=None if self.best is None else self.best.weights,
                seconds=self.seconds,
                losses=None if self.losses is None else self.losses.state(),
            )
            save_checkpoint(self.folder.path, state.to_dict())
        self.fabric.barrier()
        self.saved_at = time.monotonic()

    def resume(self, warn: Warn) -> None:
        """Go on from the folder's checkpoint, if it has one."""
        _, corrupted = load_checkpoint(self.folder.path, warn, use=lambda state: self._restore(read_state(state)))
        self.fabric.barrier()  # all processes have read it
        if self.fabric.is_global_zero:
            if corrupted is not None:
                remove_quietly(corrupted)
            self.evaluation_logs = [MetricsFile(self.folder, self.records, warn)]
            tracked = TrackedRun(self.folder, self.recipe, self.method.name, self.seed, self.step)
            self.evaluation_logs += [make_tracker(name, tracked) for name in self.options.trackers]

    def _restore(self, saved: SavedState) -> None:
        processes, rank = self.fabric.world_size, self.fabric.global_rank
        if saved.processes != processes:
            raise UserError(
                f"{self.folder.path} was started with {saved.processes} processes: resume it with as many, not "
                f"{processes}"
            )
        self._check_labels(saved)
        expected = self.model.state_dict()
        check_tensors(saved.model, expected, "the model")
        if saved.best_state is not None:
            check_tensors(saved.best_state, expected, "the best model")
        self.model.load_state_dict(saved.model)
        restore_optimizer(self.optimizer, saved.optimizer)
        precision = self.fabric.strategy.precision
        check_precision(saved.precision, precision.state_dict())
        precision.load_state_dict(saved.precision)
        streams = saved.streams
        try:
            if processes > 1:  # clones: torch reads the state of a generator from the start of a tensor's memory
                streams = {name: value[rank].clone() for name, value in streams.items()}
            self.streams.restore(streams)
            self.streams.order.set_state(saved.order)
        except (KeyError, IndexError, TypeError, RuntimeError) as error:
            raise CorruptCheckpoint(f"its random numbers cannot be continued: {error}") from error
        self._restore_position(saved)

    def _restore_position(self, saved: SavedState) -> None:
        """Position, losses and evaluations."""
        for row in saved.log:
            check_tensor(row, torch.zeros(len(STATISTICS)), "a row of losses")
        try:
            self.records = [self._record(values) for values in saved.records]
            best = None if saved.best is None else self._record(saved.best)
        except msgspec.ValidationError as error:
            raise CorruptCheckpoint(f"an evaluation: {error}") from error
        self.epoch_order, self.epoch, self.batch = saved.order, saved.epoch, saved.batch
        self.best = None if best is None else Best(best, saved.best_state or {})
        self.seconds = dict(saved.seconds)
        self.log.restore(saved.log)
        if self.losses is not None:
            expected = self.losses.state()
            check_tensors(saved.losses or {}, expected, "the losses of the examples")
            self.losses.restore(saved.losses or {})
        ends = {record.step: record for record in self.records if record.test_error is not None}
        finished = range(1, min(self.epoch, self.settings.epochs) + 1)
        if (
            self.step > self.total_steps
            or self.batch >= self.batches_per_epoch
            or any(epoch * self.batches_per_epoch not in ends for epoch in finished)
            or any(record.step > self.step for record in self.records)
            or (best is not None) != (self.selects and bool(self.records))
            or (best is not None and getattr(best, self.task.main.dev_field) is None)
        ):
            raise CorruptCheckpoint(f"its evaluations do not fit its position, update {self.step}")

    def _check_labels(self, saved: SavedState) -> None:
        weight = saved.model.get("head.predictor.weight")
        if weight is not None and weight.dim() == 2 and len(weight) != self.num_labels:
            raise UserError(
                f"the data has changed since {self.folder.path} was begun ({len(weight)} labels then, "
                f"{self.num_labels} now): bring it back, or choose another --out"
            )

    def _record(self, values: dict[str, Any]) -> Evaluation:
        return msgspec.convert(values, self.task.evaluation_type)


def _check_frozen(recipe: Recipe, processes: int) -> None:
    """Refuse to begin the training of a part later where processes have agreed on what they exchange."""
    body = recipe.body
    if isinstance(body, TrainedBefore) and 0 < body.frozen_epochs < recipe.train.epochs and processes > 1:
        raise UserError(f"body.frozen_epochs = {body.frozen_epochs} is for one process: use 0 or -1 with several")


def _threads_note(folder: RunFolder) -> str:
    """A note for a run that goes on with another number of threads, which makes it differ in the last bits."""
    threads, begun = torch.get_num_threads(), folder.threads_begun()
    if begun == threads:
        return ""
    return f"started with --threads {begun} and resumed with {threads}, so the rounding of sums differs"

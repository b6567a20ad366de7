"""A run in memory: model, optimiser, random numbers and position, and how they go to a checkpoint and back."""

import time
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from lightning_fabric import Fabric
from torch import Tensor

from labelemb.lab.bodies import make_body
from labelemb.lab.data import Dataset, Examples
from labelemb.lab.methods.method import Method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.recipes.settings import Seq2SeqBody
from labelemb.lab.runs.checkpoint import load_checkpoint, save_checkpoint
from labelemb.lab.runs.engine import gathered, make_optimizer, predict_logits
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.labels import ReusedLabels
from labelemb.lab.runs.logs import EvaluationLog, EventFiles, MetricsFile, StepLog, not_finite
from labelemb.lab.runs.messages import RunOptions, Warn
from labelemb.lab.runs.randomness import Streams, stream
from labelemb.lab.runs.start import load_start
from labelemb.lab.tasks import make_task
from labelemb.lab.tasks.model import Classifier, out_features, tie_output
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
    ) -> None:
        self.fabric, self.recipe, self.settings, self.method = fabric, recipe, recipe.train, method
        self.data, self.folder, self.options, self.labels = data, folder, options, labels
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
        self.classifier = Classifier(body, head, method.clean_observer)
        optimizer = make_optimizer(self.settings, body, head, method.embedding_lr(recipe))
        self.model, self.optimizer = fabric.setup(self.classifier, optimizer)
        self.streams = Streams(seed, fabric.global_rank, fabric.device)

        self.selects = self.settings.dev and data.dev is not None

        self.epoch, self.batch = 0, 0
        self.epoch_order = self.streams.order.get_state()
        self.log = StepLog(fabric)
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
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "precision": self.fabric.strategy.precision.state_dict(),
                "processes": self.fabric.world_size,
                "streams": streams,
                "order": self.epoch_order,
                "epoch": self.epoch,
                "batch": self.batch,
                "log": self.log.state(),
                "records": [to_json(record) for record in self.records],
                "best": None if self.best is None else to_json(self.best.record),
                "best_state": None if self.best is None else self.best.weights,
                "seconds": self.seconds,
            }
            save_checkpoint(self.folder.path, state)
        self.fabric.barrier()
        self.saved_at = time.monotonic()

    def resume(self, warn: Warn) -> None:
        """Go on from the folder's checkpoint, if it has one."""
        state, corrupted = load_checkpoint(self.folder.path, warn)
        if state is not None:
            self._restore(state)
        self.fabric.barrier()  # all processes have read it
        if self.fabric.is_global_zero:
            if corrupted is not None:
                remove_quietly(corrupted)
            self.evaluation_logs = [MetricsFile(self.folder, self.records)]
            if self.options.tensorboard:
                self.evaluation_logs.append(EventFiles(self.folder.path / "tensorboard", after=self.step))

    def _restore(self, state: dict[str, Any]) -> None:
        processes, rank = self.fabric.world_size, self.fabric.global_rank
        if state["processes"] != processes:
            raise UserError(
                f"{self.folder.path} was begun with {state['processes']} processes: go on with as many, not {processes}"
            )
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            before = len(state["model"]["head.predictor.weight"])
            raise UserError(
                f"the data has changed since {self.folder.path} was begun ({before} labels then, {self.num_labels} "
                "now): bring it back, or choose another --out"
            ) from error
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        streams = state["streams"]
        if processes > 1:  # clones, because torch reads the state of a generator from the start of a tensor's memory
            streams = {name: value[rank].clone() for name, value in streams.items()}
        self.streams.restore(streams)
        self.streams.order.set_state(state["order"])
        self.epoch_order, self.epoch, self.batch = state["order"], state["epoch"], state["batch"]
        self.log.restore(state["log"])
        self.records = [self._record(values) for values in state["records"]]
        self.best = None if state["best"] is None else Best(self._record(state["best"]), state["best_state"])
        self.seconds = state["seconds"]

    def _record(self, values: dict[str, Any]) -> Evaluation:
        return msgspec.convert(values, self.task.evaluation_type)


def _threads_note(folder: RunFolder) -> str:
    """A note for a run that goes on with another number of threads, which makes it differ in the last bits."""
    threads, begun = torch.get_num_threads(), folder.threads_begun()
    if begun == threads:
        return ""
    return f"begun with --threads {begun} and gone on with {threads}: sums were rounded in another order"

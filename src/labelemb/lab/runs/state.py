"""A run in memory: model, optimiser, random numbers and position, and how they go to a checkpoint and back."""

import time
from typing import Any

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
from labelemb.lab.runs.logs import StepLog
from labelemb.lab.runs.messages import RunOptions, Warn
from labelemb.lab.runs.randomness import Streams, stream
from labelemb.lab.runs.start import load_start
from labelemb.lab.runs.tensorboard import EventFiles
from labelemb.lab.tasks.evaluation import evaluation_of
from labelemb.lab.tasks.model import Classifier, out_features, tie_output
from labelemb.support.errors import UserError
from labelemb.support.files import remove_quietly


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
        self.evaluation = evaluation_of(recipe)
        self.batches_per_epoch = len(data.train.batches(self.settings.batch_size, None))
        self.total_steps = self.settings.epochs * self.batches_per_epoch
        notes = (
            method.soft_term_note(recipe, self.total_steps),
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
        self.classifier = Classifier(body, head, method.clean_observer(recipe))
        optimizer = make_optimizer(self.settings, body, head, method.embedding_lr(recipe))
        self.model, self.optimizer = fabric.setup(self.classifier, optimizer)
        self.streams = Streams(seed, fabric.global_rank, fabric.device)

        self.selects = self.settings.dev and data.dev is not None

        self.epoch, self.batch = 0, 0
        self.epoch_order = self.streams.order.get_state()
        self.log = StepLog(fabric)
        self.records: list[dict[str, Any]] = []
        self.best: dict[str, Any] | None = None  # the record of the best dev evaluation
        self.best_state: dict[str, Tensor] | None = None
        self.seconds = {"training": 0.0, "evaluation": 0.0}
        self.saved_at = time.monotonic()
        self.events: EventFiles | None = None

    @property
    def step(self) -> int:
        """Optimiser updates so far."""
        return self.epoch * self.batches_per_epoch + self.batch

    def shuffled(self) -> list[Tensor]:
        """The batches of the epoch; remembers the order's generator as it was, to draw the same again after a stop."""
        self.epoch_order = self.streams.order.get_state()
        return self.data.train.batches(self.settings.batch_size, self.streams.order)

    def end_epoch(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epoch_order = self.streams.order.get_state()

    def logits(self, examples: Examples) -> Tensor:
        return predict_logits(self.fabric, self.model, examples, self.settings.batch_size, self.num_labels)

    def evaluate(self, epoch_end: bool) -> None:
        """Record the losses since the last evaluation and the scores on dev, and on test where it may be reported."""
        started = time.perf_counter()
        record = {
            "step": self.step,
            "epoch": round(self.step / self.batches_per_epoch, 4),
            "lr": self.optimizer.param_groups[0]["lr"],
            **self.log.take(),
        }
        if self.data.dev is not None:
            record |= self.evaluation.scores(self, "dev", self.data.dev)
        main, score = self.evaluation.main, f"dev_{self.evaluation.main.evaluated}"
        is_best = self.selects and (self.best is None or main.at_least_as_good(record[score], self.best[score]))
        if epoch_end or is_best:
            record |= self.evaluation.scores(self, "test", self.data.test)
        if is_best:
            self.best = record
            self.best_state = {name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()}
        self.seconds["evaluation"] += time.perf_counter() - started
        record["seconds"] = self.seconds["training"]
        self.records.append(record)
        if self.fabric.is_global_zero:
            self.folder.add_record(record)
            if self.events is not None:
                self.events.add(record)

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
                "records": self.records,
                "best": self.best,
                "best_state": self.best_state,
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
            self.folder.replace_records(self.records)
            if self.options.tensorboard:
                self.events = EventFiles(self.folder.path / "tensorboard", after=self.step)

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
        self.records, self.best, self.best_state = state["records"], state["best"], state["best_state"]
        self.seconds = state["seconds"]


def _threads_note(folder: RunFolder) -> str:
    """What to tell of a run that goes on with another number of threads: it does not end bit-identical."""
    threads, begun = torch.get_num_threads(), folder.threads_begun()
    if begun == threads:
        return ""
    return f"begun with --threads {begun} and gone on with {threads}: sums were rounded in another order"

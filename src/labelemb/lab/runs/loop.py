"""The training loop for every recipe and method; it can resume at any update."""

import time
from contextlib import nullcontext
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from labelemb import __version__
from labelemb.lab.data import Fold, lasting_path, load_data, load_data_if_any
from labelemb.lab.methods.method import Method, parse_method
from labelemb.lab.recipes.recipe import Recipe
from labelemb.lab.runs.engine import Sharing, make_fabric, precision_note
from labelemb.lab.runs.folder import RunFolder, find_runs
from labelemb.lab.runs.labels import LabelSource, ReusedLabels
from labelemb.lab.runs.messages import Progress, Report, RunOptions, Warn, ignore
from labelemb.lab.runs.result import finish_run, machine
from labelemb.lab.runs.schedule import evaluation_points, learning_rate_factor
from labelemb.lab.runs.start import start_digest
from labelemb.lab.runs.state import Run
from labelemb.lab.tasks.records import RunIdentity, RunRecord, RunResult
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted, StopRequests

REPORT_SECONDS = 0.2


def train_run(
    recipe: Recipe,
    method: Method | str,
    seed: int,
    data_path: Path | str | None,
    out_dir: Path | str,
    *,
    labels: LabelSource | None = None,
    fold: Fold | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008  frozen
    report: Report = ignore,
    warn: Warn = ignore,
    stop: StopRequests | None = None,
) -> RunResult:
    """Train one run in its folder, or resume it, and return its result; a finished run is only read.

    Args:
        recipe: data, body and training; made by `load_recipe`.
        method: a method, or its name, as `label-embedding@tau=1`.
        seed: of the initial weights, the order of the data, and of a random split.
        data_path: the data; None looks in the usual places.
        out_dir: the folder of the run.
        labels: for a method that reuses labels; a run goes on only with the labels that it was begun with.
        fold: the examples that an audit's run holds out, predicts at the end and keeps beside its result.
        options: how to run.
        report: called with the position of the run a few times a second.
        warn: called with what the user should know.
        stop: a request to stop, by default SIGINT and SIGTERM, raises `Interrupted` after the checkpoint is written.
    """
    method = parse_method(method) if isinstance(method, str) else method
    data_path, folder = None if data_path is None else Path(data_path), RunFolder(Path(out_dir))
    if options.threads:
        torch.set_num_threads(options.threads)
    if method.reuses_labels != (labels is not None):
        need = "needs labels that were learned before: pass --labels FILE" if labels is None else "reuses no labels"
        raise UserError(f"method {method.name} {need}")
    identity = RunIdentity(
        recipe=recipe.name,
        fingerprint=recipe.fingerprint(),
        method=method.name,
        seed=seed,
        version=__version__,
        labels=None if labels is None else labels.digest,
        start=start_digest(recipe),
        fold=None if fold is None else fold.identity,
    )
    if not folder.has_begun and find_runs(folder.path):
        raise UserError(f"{folder.path} holds a comparison, which a single run would spoil: choose another --out")
    if finished := finished_result(folder, identity, recipe, data_path, fold):
        return finished
    fabric = make_fabric(recipe.train)
    with folder.locked() if fabric.is_global_zero else nullcontext():
        # by the process that had the lock before
        if finished := finished_result(folder, identity, recipe, data_path, fold):
            return finished
        data = load_data(recipe, data_path, seed, fold)
        identity = msgspec.structs.replace(identity, data_digest=data.digest)
        warn = warn if fabric.is_global_zero else ignore
        reused = None if labels is None else labels.matched(data.label_names, warn)
        if fabric.is_global_zero:
            folder.begin(_run_record(identity, folder, data_path, options, reused), recipe)
        run = Run(fabric, recipe, method, seed, data, folder, options, reused, warn)
        for note in filter(None, (*run.notes, precision_note(recipe.train))):
            warn(note)
        run.resume(warn)
        with stop or StopRequests(enabled=fabric.world_size == 1) as requests:
            Loop(run, requests, report).fit()
        result = finish_run(run, identity)
        if fabric.is_global_zero:
            folder.tidy()
        return result


def finished_result(
    folder: RunFolder, identity: RunIdentity, recipe: Recipe, data_path: Path | None, fold: Fold | None = None
) -> RunResult | None:
    """The result in a folder that holds this run, and no other, finished; None if it is not."""
    folder.check(identity, recipe)
    finished = folder.result()
    if finished is not None:
        data = load_data_if_any(recipe, data_path, identity.seed, fold)
        folder.check(msgspec.structs.replace(identity, data_digest=data.digest if data else None), recipe)
        folder.check_files(*(file for file in (folder.model_file, folder.about_model_file) if file.exists()))
        folder.tidy()
    return finished


def _run_record(
    identity: RunIdentity, folder: RunFolder, data_path: Path | None, options: RunOptions, reused: ReusedLabels | None
) -> RunRecord:
    return RunRecord(
        **msgspec.structs.asdict(identity),
        data=None if data_path is None else lasting_path(data_path),
        command=options.command,
        machine=machine(),
        threads=folder.threads_begun(),
        keep_checkpoints=options.keep_checkpoints,
        labels_from=None if reused is None else reused.origin,
    )


class Loop:
    """Updates, and between them evaluations, reports and checkpoints."""

    def __init__(self, run: Run, stop: StopRequests, report: Report) -> None:
        self.run, self.stop, self.report = run, stop, report
        self.settings = run.settings
        self.sharing = Sharing(run.fabric, self.settings.accumulate)
        self.evaluation_points = evaluation_points(run.batches_per_epoch, self.settings.evaluations_per_epoch)
        self.reported_at = 0.0

    def fit(self) -> None:
        """Train from the run's position to the end."""
        run = self.run
        run.model.train()
        while run.epoch < self.settings.epochs:
            run.begin_epoch()
            batches = run.shuffled()
            started = time.perf_counter()
            while run.batch < len(batches):
                self.update(batches[run.batch])
                run.batch += 1
                if self._pause_is_due():
                    run.seconds["training"] += time.perf_counter() - started
                    self.pause()
                    started = time.perf_counter()
            run.end_epoch()
            stopping = self.stop.requested
            if stopping is not None or self._save_is_due(epoch_end=True):
                run.save()
            if stopping is not None and run.epoch < self.settings.epochs:
                raise Interrupted(stopping)

    def update(self, index: Tensor) -> None:
        """One optimiser update on the rows `index`."""
        run = self.run
        if self.settings.schedule != "constant":
            factor = learning_rate_factor(self.settings, run.step, run.total_steps, run.epoch)
            for group in run.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
        pieces, items = self.sharing.pieces(index), run.data.train.count_rows(index)
        total: Tensor | None = None
        for number, (piece, counts) in enumerate(pieces, start=1):
            waits = nullcontext() if number == len(pieces) else run.fabric.no_backward_sync(run.model)
            with waits:
                # gradients are averaged over the processes, so the divisor is a process's share of the rows
                statistics = self._backward(piece, counts, num_items=items / self.sharing.processes)
            total = statistics if total is None else total + statistics
        if self.settings.clip_norm:
            run.fabric.clip_gradients(
                run.model, run.optimizer, max_norm=self.settings.clip_norm, error_if_nonfinite=False
            )
        run.optimizer.step()
        run.optimizer.zero_grad()
        assert total is not None
        run.log.add(total)

    def _backward(self, piece: Tensor, counts: bool, num_items: float) -> Tensor:
        """Loss and gradients of a piece of a batch; gives the statistics."""
        run = self.run
        inputs, targets = run.data.train.batch(piece)
        if run.data.augment is not None:
            inputs = run.data.augment(inputs, run.streams.augment)
        if run.fabric.device.type != "cpu":
            inputs, targets = run.fabric.to_device((inputs, targets))
        if not counts:
            targets = torch.full_like(targets, run.classifier.head.ignore_index)
        loss, statistics = run.model(inputs, targets, num_items=num_items, progress=run.step / run.total_steps)
        run.fabric.backward(loss)
        if run.losses is not None and run.classifier.row_losses is not None and counts:
            run.losses.add(piece, run.classifier.row_losses)
        return statistics

    def _pause_is_due(self) -> bool:
        """Whether there is something to do between two updates. Called after each update, so it is cheap."""
        return (
            self.run.batch in self.evaluation_points
            or self.run.log.check_is_due
            or self.stop.requested is not None
            or time.monotonic() - self.reported_at >= REPORT_SECONDS
            or self._save_is_due()
        )

    def pause(self) -> None:
        """Look at the losses, evaluate, report, save, stop: whatever is due.

        What needs all processes depends on the position only: their clocks differ.
        """
        run = self.run
        epoch_end = run.batch == run.batches_per_epoch
        if run.log.check_is_due or run.batch in self.evaluation_points:
            run.log.check(run.step)
        if run.batch in self.evaluation_points:
            run.evaluate(epoch_end)
        self.report(self._progress())
        self.reported_at = time.monotonic()
        stopping = self.stop.requested
        if not epoch_end and (stopping is not None or self._save_is_due()):
            run.save()
            if stopping is not None:
                raise Interrupted(stopping)

    def _progress(self) -> Progress:
        run = self.run
        main = run.task.main
        last = run.records[-1] if run.records else None
        part = "test" if last is None or getattr(last, main.dev_field) is None else "dev"
        score = None if last is None else getattr(last, main.dev_field if part == "dev" else main.curve_field)
        title = main.evaluated_title(part)
        return Progress(run.step, run.total_steps, run.epoch, self.settings.epochs, score, title, main.unit)

    def _save_is_due(self, epoch_end: bool = False) -> bool:
        if self.run.epoch == self.settings.epochs:
            return True
        if self.run.fabric.world_size > 1:
            return epoch_end
        waited = time.monotonic() - self.run.saved_at
        # a short epoch is cheaper to repeat than to save
        return waited >= self.run.options.checkpoint_seconds / (10 if epoch_end else 1)

"""Writes evaluations and statistics of the updates to metrics.jsonl and TensorBoard.

`EvaluationLog` is the interface of what receives every evaluation; `MetricsFile` and `EventFiles` (TensorBoard, an
optional dependency) implement it, and so do those of `trackers.py`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from labelemb.lab.runs.engine import reduced
from labelemb.lab.runs.fabric import Fabric
from labelemb.lab.runs.folder import RunFolder
from labelemb.lab.runs.messages import Warn
from labelemb.lab.tasks.model import STATISTICS, TERMS
from labelemb.lab.tasks.records import Evaluation, to_json
from labelemb.support.errors import UserError
from labelemb.support.files import file_error

CHECK_EVERY = 50
"""Updates between two checks that the losses are finite: checking each would wait for the device."""


class UpdateMeans(NamedTuple):
    """Means over updates: the loss, its unweighted terms, and the error on the training batches in percent."""

    loss: float
    terms: dict[str, float]
    train_error: float


class StepLog:
    """The statistics of the updates since the last evaluation, kept on the device.

    Reading them waits for the device, and for the other processes.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rows: list[Tensor] = []
        self.checked = 0

    def add(self, statistics: Tensor) -> None:
        self.rows.append(statistics)

    @property
    def check_is_due(self) -> bool:
        return len(self.rows) - self.checked >= CHECK_EVERY

    def check(self, step: int) -> None:
        """Stop the run at the first loss that is not finite. `step` is the number of updates so far."""
        if self.checked == len(self.rows):
            return
        bad = ~self._read(self.rows[self.checked :]).isfinite()
        if bool(bad.any()):
            first = int(bad.any(1).nonzero()[0])
            broken = [name for name, is_bad in zip(STATISTICS, bad[first].tolist(), strict=True) if is_bad]
            terms = ", ".join(name for name in broken if name in TERMS) or "the sum of the terms"
            update = step - len(self.rows) + self.checked + first + 1
            raise not_finite("the loss is", update, f" (broken: {terms})")
        self.checked = len(self.rows)

    def take(self) -> UpdateMeans:
        """Means over the updates since the last call, which are then dropped."""
        means = self._read(self.rows).double().mean(0).tolist()
        self.rows, self.checked = [], 0
        values = dict(zip(STATISTICS, means, strict=True))
        terms = {name: values[name] for name in TERMS}
        return UpdateMeans(values["loss"], terms, train_error=100 * (1 - values["correct"]))

    def state(self) -> list[Tensor]:
        return [row.cpu() for row in self.rows]

    def restore(self, rows: list[Tensor]) -> None:
        self.rows, self.checked = [row.to(self.fabric.device) for row in rows], 0

    def _read(self, rows: list[Tensor]) -> Tensor:
        """Rows averaged over the processes, on the CPU."""
        return reduced(self.fabric, torch.stack(rows), "mean").cpu()


def require_tensorboard() -> Any:
    """TensorBoard's `SummaryWriter`; a `UserError` where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs the tensorboard package: pip install 'labelemb[tensorboard]'") from error
    return SummaryWriter


class EvaluationLog(Protocol):
    """Receives every evaluation of a run."""

    def add(self, record: Evaluation) -> None:
        """Write one evaluation."""

    def close(self) -> None:
        """Called at the end of the run."""


class MetricsFile:
    """metrics.jsonl, which begins with the evaluations before the checkpoint that the run goes on from.

    A file that somebody removed or changed while the run trains is written anew, with a warning.
    """

    def __init__(self, folder: RunFolder, records: list[Evaluation], warn: Warn) -> None:
        self.folder, self.records, self.warn = folder, list(records), warn
        self.size = folder.replace_records(self.records)

    def add(self, record: Evaluation) -> None:
        self.records.append(record)
        if self.folder.metrics_size() == self.size:
            self.size += self.folder.add_record(record)
            return
        self.warn(f"{self.folder.metrics_file} was removed or changed during the training: writing it again")
        self.size = self.folder.replace_records(self.records)

    def close(self) -> None:
        """Nothing to do: every line is on its own."""


class EventFiles:
    """Event files of TensorBoard in a folder; hides what a killed run wrote after the update `after`."""

    def __init__(self, folder: Path, after: int) -> None:
        self.folder = folder
        with self._writing():
            self._writer = require_tensorboard()(folder, purge_step=after + 1)

    def add(self, record: Evaluation) -> None:
        with self._writing():
            for name, value in scalars(record).items():
                self._writer.add_scalar(name, value, record.step)
            self._writer.flush()

    def close(self) -> None:
        with self._writing():
            self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise file_error("write in", self.folder, error) from error


def scalars(record: Evaluation) -> dict[str, float]:
    """The numbers of an evaluation by name; the terms of the loss as `terms/hard` and so on."""
    values = to_json(record) | {f"terms/{name}": value for name, value in record.terms.items()}
    return {name: value for name, value in values.items() if isinstance(value, float) and name != "epoch"}


def not_finite(what: str, step: int, broken: str = "") -> UserError:
    """The error for a training that has diverged at an update."""
    return UserError(
        f"{what} not finite at update {step}{broken}; the last checkpoint before it, if there was one, is kept; a "
        "lower train.lr or train.clip_norm=1 may help"
    )

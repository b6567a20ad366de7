"""A run's evaluations as event files of TensorBoard, which is an optional dependency."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelemb.support.errors import UserError
from labelemb.support.files import file_error


def require_tensorboard() -> Any:
    """TensorBoard's class of writers."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs the tensorboard package: pip install 'labelemb[tensorboard]'") from error
    return SummaryWriter


class EventFiles:
    """Event files in a folder. What a killed run wrote after the update `after`, from which it goes on, is hidden."""

    def __init__(self, folder: Path, after: int) -> None:
        self.folder = folder
        with self._writing():
            self._writer = require_tensorboard()(folder, purge_step=after + 1)

    def add(self, record: dict[str, Any]) -> None:
        flat = record | {f"terms/{name}": value for name, value in record["terms"].items()}
        with self._writing():
            for name, value in flat.items():
                if isinstance(value, float) and name != "epoch":
                    self._writer.add_scalar(name, value, record["step"])
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

"""What the updates since the last evaluation reported, kept on the device until somebody looks."""

from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from labelemb.lab.runs.engine import reduced
from labelemb.lab.tasks.model import STATISTICS, TERMS
from labelemb.support.errors import not_finite

CHECK_EVERY = 50
"""Updates between two looks at whether the losses are finite: looking at each would wait for the device."""


class StepLog:
    """One row of statistics an update. Reading them waits for the device, and for the other processes."""

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

    def take(self) -> dict[str, Any]:
        """Means over the updates, which are then forgotten."""
        means = self._read(self.rows).double().mean(0).tolist()
        self.rows, self.checked = [], 0
        values = dict(zip(STATISTICS, means, strict=True))
        return {
            "loss": values["loss"],
            "terms": {name: values[name] for name in TERMS},
            "train_error": 100 * (1 - values["correct"]),
        }

    def state(self) -> list[Tensor]:
        return [row.cpu() for row in self.rows]

    def restore(self, rows: list[Tensor]) -> None:
        self.rows, self.checked = [row.to(self.fabric.device) for row in rows], 0

    def _read(self, rows: list[Tensor]) -> Tensor:
        """Rows averaged over the processes, on the CPU."""
        return reduced(self.fabric, torch.stack(rows), "mean").cpu()

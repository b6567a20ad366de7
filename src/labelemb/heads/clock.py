"""The training progress that all heads share, for rising mass floors and a delayed soft term.

A call may say it (`progress=`). A head that was made with `total_steps=` counts its own training calls. Without either
there is no clock: a mass floor then stands at its end value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from labelemb.support.arguments import require_share
from labelemb.support.tensors import can_look_at, snapshot


class Moment(NamedTuple):
    """How far the training is at a call."""

    progress: float | Tensor | None
    """In [0, 1]; None without a clock."""
    soft_active: bool | Tensor
    """Whether the soft term has started."""


@dataclass(frozen=True)
class Clock:
    """The schedule of a head's loss: which parts change during the training, and when."""

    mass_floor: float = 0.0
    soft_start: float | int = 0
    total_steps: int | None = None

    def __post_init__(self) -> None:
        if self.total_steps is None:
            return
        if self.total_steps < 1:
            raise ValueError(f"total_steps is {self.total_steps}, but must be 1 or more")
        if not self.has_schedule:
            raise ValueError(
                f"total_steps={self.total_steps} would be ignored: this head has neither a mass floor nor a soft term "
                "that starts later"
            )

    @property
    def has_schedule(self) -> bool:
        return self.mass_floor > 0 or self.soft_start > 0

    def read(self, given: float | None, updates: Tensor | None, training: bool) -> Moment:
        """The moment of a call that says `given`, or of the counted training calls."""
        if given is not None:
            require_share("progress", given)
            given = float(given) if isinstance(given, Tensor) else given
        if not self.has_schedule:
            return Moment(given, True)
        step = None if updates is None else (int(updates) if can_look_at(updates) else snapshot(updates))
        if given is not None and self.total_steps is not None:
            step = round(given * self.total_steps)
        progress: float | Tensor | None = given
        if given is None and self.total_steps is not None and step is not None:
            share = step / self.total_steps
            progress = share.clamp_max(1.0) if isinstance(share, Tensor) else min(1.0, share)
        return Moment(progress, self._soft_active(progress, step, training))

    def _soft_active(self, progress: float | Tensor | None, step: int | Tensor | None, training: bool) -> bool | Tensor:
        if self.soft_start == 0:
            return True
        reached = step if isinstance(self.soft_start, int) else progress
        if reached is not None:
            return reached >= self.soft_start
        if training:
            raise ValueError(
                f"soft_start={self.soft_start} is a share of the training: pass progress= in [0, 1] in the call, or "
                "total_steps= to the head"
            )
        return True


def no_updates(clock: Clock) -> Tensor | None:
    """A counter of training calls at zero, if the clock has anything to say."""
    return torch.zeros((), dtype=torch.long) if clock.has_schedule else None

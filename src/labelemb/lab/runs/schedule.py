"""Learning rate schedules, and when to evaluate."""

import math

from labelemb.lab.recipes.settings import TrainSettings


def learning_rate_factor(settings: TrainSettings, step: int, total_steps: int, epoch: int) -> float:
    """What the learning rate is multiplied by at update `step` (from 0) in `epoch` (from 0)."""
    if settings.schedule == "linear":
        return 1 - step / total_steps
    if settings.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * step / total_steps))
    if settings.schedule == "step":
        return settings.step_factor ** (epoch // settings.step_every)
    return 1.0


def evaluation_points(batches: int, evaluations: int) -> set[int]:
    """After how many batches of an epoch to evaluate: evenly spread, the last one at its end."""
    return {math.ceil(batches * i / evaluations) for i in range(1, evaluations + 1)}

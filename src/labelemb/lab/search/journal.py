"""Optuna's journal of a search: opened under a lock that is released if its process dies, and checked when read."""

import math
import os
from pathlib import Path
from typing import Any

from filelock import FileLock

from labelemb.lab.methods.method import parse_method
from labelemb.support.errors import UserError
from labelemb.support.files import file_error
from labelemb.support.optional import import_optional

TEXTS = ("method", "owner", "message")
"""What a search notes of a trial, as text."""


def open_journal(journal: Path, *, maximise: bool, pruner: Any) -> Any:
    """The Optuna study in a journal, a new one if there is none."""
    optuna = import_optional("optuna", "labelemb choose", "choose")
    _drop_half_line(journal)
    backend = optuna.storages.journal.JournalFileBackend(
        str(journal), lock_obj=_KernelLock(journal.with_name("journal.lock"))
    )
    direction = "maximize" if maximise else "minimize"
    try:
        study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name="choose",
            direction=direction,
            pruner=pruner,
            load_if_exists=True,
        )
        if study.direction.name.lower() != direction:
            raise ValueError(f"it is to {study.direction.name.lower()}")
        for trial in study.get_trials(deepcopy=False):
            _check_trial(trial)
    except OSError as error:
        raise file_error("read", journal, error) from error
    except (
        *(ValueError, KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError, OverflowError),
        *(optuna.exceptions.OptunaError, UserError),
    ) as error:  # what Optuna makes of entries that it did not write, and our own checks
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{journal} is damaged ({reason}): choose another --out, or delete it") from error
    return study


def _check_trial(trial: Any) -> None:
    """Refuse a trial with a method that is none, or a score that is no number."""
    wrong = [name for name in TEXTS if not isinstance(trial.user_attrs.get(name, ""), str)]
    scores = {"value": trial.value, **trial.intermediate_values}
    wrong += [
        f"score {epoch}"
        for epoch, score in scores.items()
        if score is not None and (isinstance(score, bool) or not math.isfinite(score))
    ]
    if wrong or not all(isinstance(epoch, int) and epoch > 0 for epoch in trial.intermediate_values):
        raise ValueError(f"trial {trial.number} has no proper {wrong[0] if wrong else 'epochs'}")
    if method := trial.user_attrs.get("method"):
        parse_method(method)


class _KernelLock:
    """The lock of Optuna's journal, which ends with its process; Optuna's own are waited out after a kill."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path, thread_local=False)

    def acquire(self) -> bool:
        self._lock.acquire()
        return True

    def release(self) -> None:
        self._lock.release()


def _drop_half_line(journal: Path) -> None:
    """Cut off a line that a process did not finish, for Optuna would write the next one behind it."""
    if not journal.exists():
        return
    try:
        content = journal.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(journal, whole)
    except OSError as error:
        raise file_error("read", journal, error) from error

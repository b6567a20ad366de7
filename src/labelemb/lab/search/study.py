"""`Study`: the trials of a search in Optuna's journal, shared by processes; trials of dead processes are resumed.

study.journal   Optuna's journal: one JSON object a line
study.lock      held while a process takes a trial
owners/         a lock for each process that has taken trials; it ends with the process
"""

import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from labelemb.lab.search.journal import open_journal
from labelemb.lab.search.space import Space, is_simple
from labelemb.support.errors import UserError
from labelemb.support.files import file_error, make_folder, remove_quietly
from labelemb.support.optional import import_optional

PATIENCE = 3
"""Proposals of one kind of method, in a row, that were tried already, after which one is drawn at random."""
MOST_REPETITIONS = 100
"""The same of all kinds, after which the search counts as exhausted."""
SEED_FACTOR = 100_003
LOCK_SECONDS = 60.0

State = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """A trial as tables and pictures show it."""

    number: int
    method: str
    state: State
    score: float | None
    """The best dev score so far; None before the first evaluation."""
    epochs: int
    """Epochs that it was trained for."""
    message: str = ""
    """Why it failed."""


@dataclass(frozen=True)
class Halving:
    """Successive halving: after some epochs only the better half of the trials goes on."""

    epochs: int

    @property
    def first(self) -> int:
        return -(-self.epochs // 4)

    def next_rung(self, epoch: int) -> int:
        """The next epoch at which a trial is compared with the others; 0 if it trains to its end."""
        rung = self.first
        while rung <= epoch:
            rung *= 2
        return rung if rung < self.epochs else 0


class Study:
    """The trials of a search."""

    def __init__(self, folder: Path, *, seed: int, epochs: int, maximise: bool, space: Space) -> None:
        self._optuna = import_optional("optuna", "labelemb choose", "choose")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self.folder, self.seed, self.space = folder, seed, space
        self.maximise, self.halving = maximise, Halving(epochs)
        make_folder(folder / "owners")
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._alive = FileLock(self._owner_file(self._owner))
        self._trials: dict[int, Any] = {}  # Optuna's, those of this process by number
        self._inside = threading.RLock()
        self._lock = FileLock(folder / "study.lock", timeout=LOCK_SECONDS, thread_local=False)
        try:
            with self._locked():
                self._alive.acquire()
                for owner in (folder / "owners").iterdir():
                    self._lives(owner.name)
                self._study = self._open()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give back the trials that this process has not finished."""
        self._alive.release()
        remove_quietly(self._owner_file(self._owner))
        with suppress(OSError):  # others are in it
            (self.folder / "owners").rmdir()

    def take(self, limit: int | None) -> Trial | None:
        """A trial to train: one whose process died, or a new one while there are fewer than `limit`; else None."""
        with self._locked():
            found = self._study.get_trials(deepcopy=False)
            for trial in found:
                if self._is_running(trial) and not self._is_owned(trial):
                    return self._take(self._optuna.trial.Trial(self._study, trial._trial_id))
            for _ in range(MOST_REPETITIONS):
                if limit is not None and self._started() >= limit:
                    return None
                if (taken := self._take(self._study.ask())) is not None:
                    return taken
            return None

    def others_running(self) -> bool:
        """Whether another process is training a trial."""
        with self._locked():
            running = [trial for trial in self._study.get_trials(deepcopy=False) if self._is_running(trial)]
            return any(self._owner_of(trial) != self._owner for trial in running)

    def report(self, number: int, scores: dict[int, float]) -> None:
        """Tell the best score up to each epoch."""
        with self._locked():
            trial = self._trials[number]
            known = self._frozen(number).intermediate_values
            for epoch, score in scores.items():
                if epoch not in known:
                    trial.report(score, epoch)

    def is_hopeless(self, number: int) -> bool:
        """Whether a trial is in the worse half of those that came as far."""
        with self._locked():
            return bool(self._trials[number].should_prune())

    def end(self, number: int, state: State, score: float | None = None, message: str = "") -> None:
        """A trial has ended; only a complete one has a score."""
        states = self._optuna.trial.TrialState
        with self._locked():
            trial = self._trials.pop(number)
            if message:
                trial.set_user_attr("message", message)
            told = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[state]
            self._study.tell(trial, score if state == "complete" else None, told)

    def trials(self) -> list[Trial]:
        """All trials that have begun, in their order."""
        with self._locked():
            found = self._study.get_trials(deepcopy=False)
        return [_trial(trial) for trial in found if self._counts(trial)]

    def best(self, *, simple: bool = False) -> Trial | None:
        """The complete trial with the best score; of equal ones the earlier, so that what is simple wins.

        With `simple` among the methods that learn nothing.
        """
        complete = [trial for trial in self.trials() if trial.state == "complete" and trial.score is not None]
        if simple:
            complete = [trial for trial in complete if is_simple(trial.method)]
        sign = -1 if self.maximise else 1
        return min(complete, key=lambda trial: (sign * (trial.score or 0.0), trial.number), default=None)

    def _open(self) -> Any:
        pruners = self._optuna.pruners
        pruner = pruners.SuccessiveHalvingPruner(min_resource=self.halving.first, reduction_factor=2)
        study = open_journal(self.folder / "study.journal", maximise=self.maximise, pruner=pruner)
        before = study.user_attrs.get("seed")
        if before is None:
            study.set_user_attr("space", self.space.signature)
            study.set_user_attr("seed", self.seed)
        elif before != self.seed:
            raise UserError(f"{self.folder} holds a search with --seed {before}, not {self.seed}: choose another --out")
        elif study.user_attrs.get("space") != self.space.signature:
            raise UserError(
                f"{self.folder} holds a search among other methods: for data with another number of labels, or of "
                "another version of labelemb: choose another --out"
            )
        for start in self.space.starts[len(study.get_trials(deepcopy=False)) :]:
            study.enqueue_trial(start.parameters, user_attrs={} if start.parameters else {"method": start.name})
        return study

    def _take(self, trial: Any) -> Trial | None:
        """Make a trial this process's own; None if its method was tried before."""
        self._study.sampler = self._sampler(trial.number)
        method = trial.user_attrs.get("method")
        if method is None:
            method = self.space.suggest(trial)
            before = [one for one in self._study.get_trials(deepcopy=False) if one.number != trial.number]
            if any(one.user_attrs.get("method") == method for one in before):
                trial.set_user_attr("repeated", True)
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                return None
            trial.set_user_attr("method", method)
        trial.set_user_attr("owner", self._owner)
        self._trials[trial.number] = trial
        return _trial(self._frozen(trial.number))

    def _sampler(self, number: int) -> Any:
        """A sampler for one trial, with a seed of its own: after a stop a search goes on as it would have without."""
        seed, samplers = self.seed * SEED_FACTOR + number, self._optuna.samplers
        before = self._study.get_trials(deepcopy=False)[:number]
        kind = self.space.kind(number)
        last = [trial for trial in before if self.space.kind(trial.number) == kind][-PATIENCE:]
        if len(last) == PATIENCE and all("repeated" in trial.user_attrs for trial in last):
            return samplers.RandomSampler(seed=seed % 2**32)
        return samplers.TPESampler(seed=seed % 2**32, multivariate=False)

    def _started(self) -> int:
        return sum(map(self._counts, self._study.get_trials(deepcopy=False)))

    def _counts(self, trial: Any) -> bool:
        waiting = trial.state == self._optuna.trial.TrialState.WAITING
        return not waiting and "method" in trial.user_attrs and "repeated" not in trial.user_attrs

    def _frozen(self, number: int) -> Any:
        return self._study.get_trials(deepcopy=False)[number]

    def _is_running(self, trial: Any) -> bool:
        return bool(trial.state == self._optuna.trial.TrialState.RUNNING)

    def _owner_of(self, trial: Any) -> str:
        return str(trial.user_attrs.get("owner", ""))

    def _owner_file(self, owner: str) -> Path:
        return self.folder / "owners" / owner

    def _is_owned(self, trial: Any) -> bool:
        """Whether the process that took a trial lives; a trial without a name was taken by one that died at once."""
        owner = self._owner_of(trial)
        return bool(owner) and self._lives(owner)

    def _lives(self, owner: str) -> bool:
        """Whether a process that takes trials is there; the lock of one that was killed is removed."""
        if owner == self._owner:
            return True
        if not self._owner_file(owner).exists():
            return False
        try:
            with FileLock(self._owner_file(owner), timeout=0):
                pass
        except Timeout:
            return True
        remove_quietly(self._owner_file(owner))
        return False

    def _locked(self) -> "_Locked":
        return _Locked(self._inside, self._lock, self.folder)


class _Locked:
    """Keeps the other threads and processes out of a study."""

    def __init__(self, inside: threading.RLock, lock: FileLock, folder: Path) -> None:
        self._inside, self._lock, self._folder = inside, lock, folder

    def __enter__(self) -> None:
        self._inside.acquire()
        try:
            self._lock.acquire()
        except Timeout:
            self._inside.release()
            raise UserError(f"another process holds the lock {self._lock.lock_file} for too long") from None
        except OSError as error:
            self._inside.release()
            raise file_error("write in", self._folder, error) from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._lock.release()
        self._inside.release()
        if isinstance(error, OSError):  # of the journal: a full disk, say
            raise file_error("write in", self._folder, error) from error


def _trial(trial: Any) -> Trial:
    states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    reached = trial.intermediate_values
    epochs = max(reached, default=0)
    return Trial(
        trial.number,
        trial.user_attrs["method"],
        states.get(trial.state.name, "running"),
        reached.get(epochs) if trial.state.name != "COMPLETE" else trial.value,
        epochs,
        trial.user_attrs.get("message", ""),
    )

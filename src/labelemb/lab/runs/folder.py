"""The folder of one run.

recipe.toml         the recipe, every key
run.json            method, seed, versions, command and data: what the run is
metrics.jsonl       one line an evaluation
checkpoint          where the run is; checkpoint.previous is the one before (while it runs, or with --keep-checkpoints)
model.json          label names and how inputs are encoded
model.safetensors   body and head at the reported evaluation
labels.safetensors  the label space, where the method learns or reuses one
confusion.json      the wrong cells of the test set's confusion matrix (up to 500 labels)
worst.json          the test examples with the most confident errors (of data with one label an example)
held_out.safetensors  predictions of held-out examples, and losses of the others (folds of an audit)
examples.png        small test images of each label, for the report (image data, up to 500 labels)
result.json         scores, curve, times, machine, checksums: written last, so a run that has it is finished
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.checkpoint import drop_checkpoints
from labelemb.lab.runs.finished import LABELS, RESULT, RUN, has_begun, require_finished, run_paths
from labelemb.lab.tasks import read_result
from labelemb.lab.tasks.records import (
    Evaluation,
    ModelRecord,
    RunIdentity,
    RunRecord,
    RunResult,
    damaged,
    from_json,
    read_record,
    to_json,
)
from labelemb.support.errors import UserError
from labelemb.support.files import (
    LARGEST_RECORD,
    file_digest,
    file_error,
    read_whole,
    remove_leftovers,
    write_bytes,
    write_json,
    write_text,
)
from labelemb.support.folders import MadeFolder

LOCK_SECONDS = 10.0
"""How long to wait for a killed process of the same run to be gone."""
COMPARABLE_SINCE = "0.1.0"
"""The oldest version whose runs this one continues. Raise it when a recipe and method give other numbers now."""
DIGEST_SHOWN = 12
"""Digits of a file's SHA-256 in messages."""

Record = TypeVar("Record", bound=Evaluation)


class FolderBusy(UserError):
    """Another process is training in the folder."""


class RunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_file = path / RUN
        self.result_file = path / RESULT
        self.metrics_file = path / "metrics.jsonl"
        self.model_file = path / "model.safetensors"
        self.about_model_file = path / "model.json"
        self.labels_file = path / LABELS
        self.recipe_file = path / "recipe.toml"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder while a run is in it; one that fails at its start leaves no folder."""
        made = MadeFolder.make(self.path)
        lock = FileLock(self.path / "lock", timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except Timeout:
            message = f"another process is training in {self.path}: wait for it or choose another --out"
            raise FolderBusy(message) from None
        except OSError as error:
            raise file_error("write in", self.path, error) from error
        try:
            yield
        except BaseException:
            made.undo(worthless=(self.run_file.name, self.recipe_file.name))
            raise
        finally:
            lock.release()

    def begin(self, record: RunRecord, recipe: Recipe) -> None:
        """Claim the folder for a run, or check that it is this run's already."""
        self.check(record, recipe)
        remove_leftovers(self.path)
        keep_recipe(self.recipe_file, recipe)
        write_json(self.run_file, to_json(record))

    def tidy(self) -> None:
        """Remove what a finished run needs no more, also where a kill came between its result and this."""
        remove_leftovers(self.path)
        keep = self.run_file.exists() and self.about().keep_checkpoints
        drop_checkpoints(self.path, keep_last=keep)

    def check(self, identity: RunIdentity, recipe: Recipe) -> None:
        """Refuse a folder that holds another run: recipe, version, method, seed and reused labels must be the same."""
        for file in (self.run_file, self.result_file):
            if file.exists():
                found = read_record(file, RunIdentity)
                difference = _difference(found, identity)
                if found.fingerprint != identity.fingerprint:
                    kept = self.recipe_file.exists()
                    difference = "another recipe" + (changed_settings(self.recipe(), recipe) if kept else "")
                if difference:
                    raise UserError(f"{self.path} holds a run of {difference}: choose another --out, or delete it")

    @property
    def has_begun(self) -> bool:
        return has_begun(self.path)

    def threads_begun(self) -> int:
        """With how many threads the run was begun; this process's number if it begins now or does not say."""
        begun = self.about().threads if self.run_file.exists() else None
        return begun or torch.get_num_threads()

    def result(self) -> RunResult | None:
        """The result of a finished run, else None."""
        return read_result(self.result_file) if self.result_file.exists() else None

    def about(self) -> RunRecord:
        """The content of run.json."""
        return read_record(self.run_file, RunRecord)

    def title(self) -> str | None:
        """Recipe, method and seed of the run; None if the folder holds no run."""
        file = next((file for file in (self.result_file, self.run_file) if file.exists()), None)
        return None if file is None else read_record(file, RunIdentity).title

    def require_result(self) -> RunResult:
        """The result of a run that must be finished."""
        require_finished(self.path)
        return read_result(self.result_file)

    def records(self, kind: type[Record]) -> list[Record]:
        """The evaluations in metrics.jsonl, of the type that the run's task has."""
        try:
            lines = read_whole(self.metrics_file, LARGEST_RECORD).splitlines()
            return [from_json(line, kind) for line in lines if line]
        except OSError as error:
            raise file_error("read", self.metrics_file, error) from error
        except ValueError as error:
            raise UserError(f"{self.metrics_file} is damaged ({error})") from error

    def metrics_size(self) -> int | None:
        """Bytes of metrics.jsonl; None if there is no such file."""
        try:
            return self.metrics_file.stat().st_size
        except OSError:
            return None

    def replace_records(self, records: Iterable[Evaluation]) -> int:
        """Write metrics.jsonl again: a resumed run discards what came after its checkpoint. Returns its bytes."""
        lines = b"".join(map(_line, records))
        write_bytes(self.metrics_file, lines)
        return len(lines)

    def add_record(self, record: Evaluation) -> int:
        """Add a line to metrics.jsonl; returns its bytes."""
        line = _line(record)
        try:
            with self.metrics_file.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise file_error("write", self.metrics_file, error) from error
        return len(line)

    def write_model(self, tensors: dict[str, Tensor], about: ModelRecord) -> dict[str, str]:
        """Write model.safetensors and model.json; returns their checksums, by which `read_model` knows them again."""
        # copies: tensors that share their memory, as tied layers do, cannot be written
        write_bytes(self.model_file, save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}))
        write_json(self.about_model_file, to_json(about))
        return {file.name: file_digest(file) for file in (self.model_file, self.about_model_file)}

    def read_model(self) -> tuple[dict[str, Tensor], ModelRecord]:
        """The tensors of model.safetensors and the content of model.json, if both are as the run wrote them."""
        if not self.model_file.exists():
            raise UserError(f"{self.path} has a result, but no model.safetensors: train the run again")
        try:
            tensors = load(read_whole(self.model_file))
        except OSError as error:
            raise file_error("read", self.model_file, error) from error
        except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:  # a header that lies
            raise damaged(self.model_file, str(error)) from error
        about = read_record(self.about_model_file, ModelRecord)
        self.check_files(self.model_file, self.about_model_file)
        return tensors, about

    def check_files(self, *files: Path) -> None:
        """Refuse files that are not as the run wrote them, by the checksums in its result."""
        checksums = self.require_result().checksums
        for file in files:
            if file.name in checksums and (found := file_digest(file)) != checksums[file.name]:
                raise damaged(file, _mismatch(checksums[file.name], found))

    def label_counts(self) -> list[int] | None:
        """How often each label is a target in training; None if the run does not say."""
        file = self.about_model_file
        return read_record(file, ModelRecord).label_counts if file.is_file() else None

    def recipe(self) -> Recipe:
        return load_recipe(str(self.recipe_file))


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs of a comparison, finished or not: METHOD/seed-N below the folder."""
    return [RunFolder(path) for path in run_paths(folder)]


def run_folder(out: Path, method: str, seed: int) -> Path:
    """Where a comparison in `out` has the run of a method and a seed."""
    return out / method / f"seed-{seed}"


def keep_recipe(file: Path, recipe: Recipe) -> None:
    """Write a recipe beside what is made with it.

    A file that says the same stays as it is, with its comments; one that says something else is not overwritten.
    """
    if not file.exists():
        write_text(file, recipe.to_toml())
        return
    there = load_recipe(str(file))
    if there.fingerprint() != recipe.fingerprint():
        raise UserError(
            f"{file} is another recipe{changed_settings(there, recipe)}: choose another --out, or move it away"
        )


def changed_settings(there: Recipe, here: Recipe) -> str:
    """Which settings of two recipes differ, in brackets; empty if none does."""
    flat_there, flat_here = flat_settings(there.to_dict()), flat_settings(here.to_dict())
    changed = [
        f"{key} is {flat_there.get(key)!r} there and {value!r} here"
        for key, value in flat_here.items()
        if flat_there.get(key) != value
    ]
    return f" ({'; '.join(changed)})" if changed else ""


def _difference(found: RunIdentity, wanted: RunIdentity) -> str:
    """In what a run is another one than wanted, empty if it is not."""
    if not comparable(found.version, wanted.version):
        return f"labelemb {found.version}, this is {wanted.version}"
    if found.method != wanted.method:
        return f"the method {found.method}, not {wanted.method}"
    if found.seed != wanted.seed:
        return f"seed {found.seed}, not {wanted.seed}"
    if found.fold != wanted.fold:
        return f"{found.fold or 'no fold'}, not {wanted.fold or 'a whole training'}"
    if wanted.labels is not None and found.labels != wanted.labels:
        return f"other labels ({_digests(found.labels, wanted.labels)})"
    if found.start != wanted.start:
        return f"another body to start from ({_digests(found.start, wanted.start)})"
    if None not in (data := (found.data_digest, wanted.data_digest)) and data[0] != data[1]:
        return f"other data, or of this data before it changed ({_digests(*data)})"
    return ""


def comparable(version: str, here: str) -> bool:
    """Whether runs of a version may stand in one table with those of this one; runs of a newer one may not."""
    return version == here or _release(COMPARABLE_SINCE) <= _release(version) <= _release(here)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _mismatch(expected: str, found: str) -> str:
    return f"SHA-256 mismatch: expected {expected[:DIGEST_SHOWN]}..., got {found[:DIGEST_SHOWN]}..."


def _digests(there: str | None, here: str | None) -> str:
    return f"SHA-256 {str(there)[:DIGEST_SHOWN]}... there, {str(here)[:DIGEST_SHOWN]}... here"


def flat_settings(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names; the recipe's own name is no setting."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flat_settings(value, f"{prefix}{key}.")
        elif prefix + key != "name":
            flat[prefix + key] = value
    return flat


def _line(record: Evaluation) -> bytes:
    return json.dumps(to_json(record)).encode() + b"\n"

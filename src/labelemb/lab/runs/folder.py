"""The folder of one run.

recipe.toml         the recipe, every key
run.json            method, seed, versions, command and data: what the run is
metrics.jsonl       one line an evaluation
checkpoint          where the run is; checkpoint.previous is the one before (while it runs)
model.json          label names and how inputs are encoded
model.safetensors   body and head at the reported evaluation
labels.safetensors  the label space, where the method learns or reuses one
confusion.json      the wrong cells of the test set's confusion matrix (up to 500 labels)
examples.png        small test images of each label, for the report (image data, up to 500 labels)
result.json         scores, curve, times, machine: written last, so a run that has it is finished
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.support.errors import UserError
from labelemb.support.files import (
    file_error,
    make_folder,
    read_object,
    remove_leftovers,
    write_bytes,
    write_json,
    write_text,
)

LOCK_SECONDS = 10.0
"""How long to wait for a killed process of the same run to be gone."""
RUN_KEYS = ("recipe", "fingerprint", "method", "seed", "version")
RESULT_KEYS = (*RUN_KEYS, "epochs", "steps", "examples", "curve", "seconds_per_epoch")
MODEL_KEYS = ("label_names", "preprocessing")
"""What the files of a run must hold, for those who read them."""
COMPARABLE_SINCE = "0.1.0"
"""The oldest version whose runs this one continues. Raise it when a recipe and method give other numbers now."""
DIGEST_SHOWN = 12
"""Digits of a file's SHA-256 that tell it apart for people."""


class FolderBusy(UserError):
    """Another process is training in the folder."""


@dataclass(frozen=True)
class RunIdentity:
    """What makes two runs the same run."""

    recipe: str
    fingerprint: str
    method: str
    seed: int
    version: str
    labels: str | None = None
    """SHA-256 of the file with the labels that the run reuses; None where it reuses none, or nobody knows."""
    start: str | None = None
    """SHA-256 of the model whose body the training starts from (`body.start`); None where it starts from none."""
    data_digest: str | None = None
    """`Dataset.digest` of its data; None where the data is not at hand, or the run is older than this entry."""

    def to_dict(self) -> dict[str, Any]:
        """For the record; without labels as before there were any."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class RunFolder:
    """Reads and writes the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.result_file = path / "result.json"
        self.metrics_file = path / "metrics.jsonl"
        self.model_file = path / "model.safetensors"
        self.labels_file = path / "labels.safetensors"
        self.recipe_file = path / "recipe.toml"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out of the folder while a run is in it."""
        make_folder(self.path)
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
        finally:
            lock.release()

    def begin(self, identity: RunIdentity, recipe: Recipe, about: dict[str, Any]) -> None:
        """Claim the folder for a run, or check that it is this run's already."""
        self.check(identity, recipe)
        remove_leftovers(self.path)
        keep_recipe(self.recipe_file, recipe)
        write_json(self.path / "run.json", identity.to_dict() | about)

    def check(self, identity: RunIdentity, recipe: Recipe) -> None:
        """Refuse a folder that holds another run: recipe, version, method, seed and reused labels must be the same."""
        for name in ("run.json", "result.json"):
            if (self.path / name).exists():
                found = read_object(self.path / name)
                difference = _difference(found, identity)
                if found.get("fingerprint") != identity.fingerprint:
                    kept = self.recipe_file.exists()
                    difference = "another recipe" + (changed_settings(self.recipe(), recipe) if kept else "")
                if difference:
                    raise UserError(f"{self.path} holds a run of {difference}: choose another --out, or delete it")

    @property
    def has_begun(self) -> bool:
        return self.result_file.exists() or (self.path / "run.json").exists()

    def threads_begun(self) -> int:
        """With how many threads the run was begun; with those of this process, if it begins now or does not say."""
        begun: int | None = self.about().get("threads") if self.has_begun else None
        return begun or torch.get_num_threads()

    def result(self) -> dict[str, Any] | None:
        """The result of a finished run, else None."""
        return read_object(self.result_file, RESULT_KEYS) if self.result_file.exists() else None

    def about(self) -> dict[str, Any]:
        """What run.json says of the run."""
        return read_object(self.path / "run.json", (*RUN_KEYS, "data"))

    def require_result(self) -> dict[str, Any]:
        """The result of a run that must be finished."""
        if not self.path.is_dir():
            raise UserError(f"there is no run folder {self.path}")
        found = self.result()
        if found is None:
            raise UserError(f"{self.path} holds no finished run (no result.json)")
        return found

    def records(self) -> list[dict[str, Any]]:
        """The evaluations of metrics.jsonl."""
        try:
            return [json.loads(line) for line in self.metrics_file.read_text(encoding="utf-8").splitlines() if line]
        except OSError as error:
            raise file_error("read", self.metrics_file, error) from error
        except ValueError as error:
            raise UserError(f"{self.metrics_file} is damaged ({error})") from error

    def replace_records(self, records: Iterable[dict[str, Any]]) -> None:
        """Write metrics.jsonl anew: a resumed run forgets what came after its checkpoint."""
        write_text(self.metrics_file, "".join(json.dumps(record) + "\n" for record in records))

    def add_record(self, record: dict[str, Any]) -> None:
        try:
            with self.metrics_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise file_error("write", self.metrics_file, error) from error

    def write_model(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        # copies: tensors that share their memory, as tied layers do, cannot be written
        write_bytes(self.model_file, save({name: tensor.contiguous().clone() for name, tensor in tensors.items()}))
        write_json(self.path / "model.json", about)

    def read_model(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of model.safetensors and what model.json says."""
        if not self.model_file.exists():
            raise UserError(
                f"{self.path} holds a result, but no model (no model.safetensors): train it again to have it"
            )
        try:
            return load_file(self.model_file), read_object(self.path / "model.json", MODEL_KEYS)
        except OSError as error:
            raise file_error("read", self.model_file, error) from error
        except SafetensorError as error:
            raise UserError(f"{self.model_file} is damaged ({error})") from error

    def recipe(self) -> Recipe:
        return load_recipe(str(self.recipe_file))


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
    flat_there, flat_here = _flat(there.to_dict()), _flat(here.to_dict())
    changed = [
        f"{key} is {flat_there[key]!r} there and {value!r} here"
        for key, value in flat_here.items()
        if flat_there.get(key) != value
    ]
    return f" ({'; '.join(changed)})" if changed else ""


def _difference(found: dict[str, Any], wanted: RunIdentity) -> str:
    """In what a run is another one than wanted, empty if it is not."""
    if not comparable(str(found.get("version")), wanted.version):
        return f"labelemb {found.get('version')}, this is {wanted.version}"
    reasons = {
        "method": f"the method {found.get('method')}, not {wanted.method}",
        "seed": f"seed {found.get('seed')}, not {wanted.seed}",
    }
    difference = next((reason for key, reason in reasons.items() if found.get(key) != getattr(wanted, key)), "")
    if not difference and wanted.labels is not None and found.get("labels") != wanted.labels:
        return f"other labels ({_digests(found.get('labels'), wanted.labels)})"
    if not difference and found.get("start") != wanted.start:
        return f"another body to start from ({_digests(found.get('start'), wanted.start)})"
    if not difference and None not in (data := (found.get("data_digest"), wanted.data_digest)) and data[0] != data[1]:
        return f"other data, or of this data before it changed ({_digests(*data)})"
    return difference


def comparable(version: str, here: str) -> bool:
    """Whether runs of a version may stand in one table with those of this one; runs of a newer one may not."""
    return version == here or _release(COMPARABLE_SINCE) <= _release(version) <= _release(here)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _digests(there: str | None, here: str | None) -> str:
    return f"SHA-256 {str(there)[:DIGEST_SHOWN]}... there, {str(here)[:DIGEST_SHOWN]}... here"


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings with dotted names; the recipe's own name is no setting."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        elif prefix + key != "name":
            flat[prefix + key] = value
    return flat

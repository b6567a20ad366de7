"""The safetensors file of a label space. docs/label-space-format.md describes every byte.

The header is written here and not by the safetensors library, which writes metadata in random order: the same space
gives the same bytes. Reading goes through the library, with its checks of offsets and sizes.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from labelemb.labelspace.errors import LabelSpaceError
from labelemb.labelspace.forms import DenseForm, FactorForm, Form, TopKForm, require_finite
from labelemb.support.files import replacing

FORMAT = "labelemb.label-space"
VERSION = 1
ABOUT = ("names", "specials", "objective", "groups", "versions")
METADATA = {"format", "format_version", "storage", "sha256", *ABOUT}
# The library refuses to read a longer header.
LARGEST_HEADER = 100_000_000

DTYPES = {"F32": torch.float32, "I32": torch.int32, "I64": torch.int64}
DTYPE_OF = {
    "logits": "F32",
    "A": "F32",
    "B": "F32",
    "bias": "F32",
    "indices": "I32",
    "probabilities": "F32",
    "counts": "I64",
    "log_normalisers": "F32",
}
REQUIRED = {"dense": {"logits"}, "factors": {"A", "B"}, "top_k": {"indices", "probabilities"}}
OPTIONAL = {"dense": {"log_normalisers"}, "factors": {"bias", "log_normalisers"}, "top_k": set()}


@dataclass(frozen=True, eq=False)
class Content:
    """What a file holds; `about` has the entries of `ABOUT`."""

    form: Form
    counts: Tensor | None
    log_normalisers: Tensor | None
    about: dict[str, Any]


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the path in front of what is wrong with a file's content."""
    try:
        yield
    except (LabelSpaceError, TypeError) as error:
        raise LabelSpaceError(f"{os.fspath(path)}: not a valid label space: {error}") from error


def write(path: str | os.PathLike[str], content: Content) -> None:
    tensors = dict(content.form.tensors())
    if content.counts is not None:
        tensors["counts"] = content.counts
    if content.log_normalisers is not None:
        tensors["log_normalisers"] = content.log_normalisers
    metadata = {"format": FORMAT, "format_version": str(VERSION), "storage": content.form.storage}
    metadata |= {key: _json(content.about[key]) for key in ABOUT}
    metadata["sha256"] = _digest(metadata, tensors)
    header = _header(metadata, tensors)
    if len(header) > LARGEST_HEADER:
        raise LabelSpaceError(
            f"{os.fspath(path)}: the names take {len(header)} bytes, but safetensors allows {LARGEST_HEADER}: "
            "use shorter names"
        )
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name in _file_order(tensors):
            file.write(_little_endian(tensors[name]))


def read(path: str | os.PathLike[str]) -> Content:
    file_path = Path(path)
    if not file_path.is_file():
        reason = "is a folder, not a file" if file_path.is_dir() else "no such file"
        raise LabelSpaceError(f"{os.fspath(path)}: {reason}")
    try:
        with safe_open(file_path, framework="pt") as file, naming(path):
            metadata = _checked_metadata(file.metadata() or {})
            tensors = _checked_tensors(file, metadata["storage"])
            if metadata["sha256"] != _digest(metadata, tensors):
                raise LabelSpaceError("its checksum does not match its content; it was changed or damaged")
            return _content(metadata, tensors)
    except (SafetensorError, OSError) as error:
        raise LabelSpaceError(f"{os.fspath(path)}: not a readable safetensors file: {error}") from error


def _content(metadata: dict[str, str], tensors: dict[str, Tensor]) -> Content:
    storage = metadata["storage"]
    form: Form
    if storage == "dense":
        form = DenseForm(tensors["logits"])
    elif storage == "factors":
        form = FactorForm(tensors["A"], tensors["B"], tensors.get("bias"))
    else:
        form = TopKForm(tensors["indices"], tensors["probabilities"])
    normalisers = tensors.get("log_normalisers")
    if normalisers is not None:
        if tuple(normalisers.shape) != (form.num_labels,):
            raise LabelSpaceError(f"log_normalisers must be ({form.num_labels},), not {tuple(normalisers.shape)}")
        require_finite("log_normalisers", normalisers)
    return Content(form, tensors.get("counts"), normalisers, _parsed_about(metadata))


def _checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    if metadata.get("format") != FORMAT:
        raise LabelSpaceError(f'its metadata does not say "format": "{FORMAT}", so something else wrote it')
    if metadata.get("format_version") != str(VERSION):
        raise LabelSpaceError(
            f"it has format version {metadata.get('format_version')}, this labelemb reads {VERSION}: "
            "use the labelemb that wrote it or a newer one"
        )
    if metadata.keys() != METADATA:
        raise LabelSpaceError(f"its metadata has other entries than expected: {sorted(metadata.keys() ^ METADATA)}")
    if metadata["storage"] not in REQUIRED:
        raise LabelSpaceError(f"unknown storage {metadata['storage'][:80]!r}")
    return metadata


def _checked_tensors(file: Any, storage: str) -> dict[str, Tensor]:
    names = set(file.keys())
    unexpected = names - REQUIRED[storage] - OPTIONAL[storage] - {"counts"}
    missing = REQUIRED[storage] - names
    if unexpected or missing:
        raise LabelSpaceError(f"{storage} storage has tensors {sorted(names)[:10]}, needs {sorted(REQUIRED[storage])}")
    for name in names:
        dtype = file.get_slice(name).get_dtype()
        if dtype != DTYPE_OF[name]:
            raise LabelSpaceError(f"the tensor {name} must be {DTYPE_OF[name]}, not {dtype}")
    # Copies: the library maps the file, and a space must not change or crash when the file is overwritten.
    return {name: file.get_tensor(name).clone() for name in names}


def _parsed_about(metadata: dict[str, str]) -> dict[str, Any]:
    about = {}
    for key in ABOUT:
        try:
            about[key] = json.loads(metadata[key])
        except (ValueError, RecursionError):
            raise LabelSpaceError(f"its {key} are not valid JSON") from None
    texts = _is_texts(about["names"]) and _is_texts(about["specials"])
    groups, versions = about["groups"], about["versions"]
    grouped = groups is None or (isinstance(groups, dict) and all(map(_is_texts, groups.values())))
    if not (texts and grouped and isinstance(versions, dict)):
        raise LabelSpaceError("its names, specials, groups or versions are not of the expected JSON type")
    return about


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _digest(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    described = {name: [DTYPE_OF[name], list(tensor.shape)] for name, tensor in tensors.items()}
    digest = hashlib.sha256(_json([{key: metadata[key] for key in metadata if key != "sha256"}, described]).encode())
    for name in sorted(tensors):
        digest.update(_little_endian(tensors[name]))
    return digest.hexdigest()


def _header(metadata: dict[str, str], tensors: dict[str, Tensor]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    start = 0
    for name in _file_order(tensors):
        end = start + tensors[name].nbytes
        entries[name] = {"dtype": DTYPE_OF[name], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
        start = end
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)  # so that the numbers start at a multiple of 8


def _file_order(tensors: dict[str, Tensor]) -> list[str]:
    """The widest numbers first, so that each tensor is aligned; then by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def _little_endian(tensor: Tensor) -> memoryview:
    array = tensor.contiguous().numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

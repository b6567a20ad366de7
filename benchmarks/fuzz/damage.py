"""Ways to damage a file, in its bytes or in its structure, by a random generator of the caller."""

import copy
import hashlib
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load, save

from labelemb.lab.runs.checkpoint.file import FORMAT, save_checkpoint
from labelemb.support.files import file_digest

HOSTILE = "\u202eevil\x1b]0;title\x07"
ODD_TEXTS = ("", " ", "x" * 300, HOSTILE, "=1+1", "\ud800", "中文", "../up", "NaN", "-1", "\x00", "a\nb")
ODD_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "1e308", "-1", "0", "0.5", str(10**30), str(2**63), "-0.0")
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**63, 10**30, 0.5, 1e308, float("nan"), float("inf")),
    *([], {}, [[]], [None], {"a": 1}, [0, 0, 0], *ODD_TEXTS),
)
DIGITS = re.compile(rb"-?\d+(?:\.\d+)?")


def damage_bytes(content: bytes, rng: Random) -> bytes:
    """Some bytes flipped, cut out, repeated, zeroed or put in; or a number replaced."""
    return rng.choice((_flip, _flip, _cut, _remove, _repeat, _insert, _zero, _number, _number, _empty))(content, rng)


def damage_json(content: bytes, rng: Random) -> bytes:
    """One to three values of a JSON file replaced, removed or renamed."""
    values = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        values = _changed(values, rng, ODD_VALUES)
    return json.dumps(values).encode("utf-8", "surrogatepass")


def damage_toml(content: bytes, rng: Random) -> bytes:
    """A line of a TOML file with another value, without its value, removed, or doubled."""
    lines = content.decode().splitlines()
    index = rng.choice([number for number, line in enumerate(lines) if line and not line.startswith("#")])
    key, _, _ = lines[index].partition("=")
    odd = json.dumps(rng.choice(ODD_VALUES)) if rng.random() < 0.7 else rng.choice(ODD_NUMBERS)
    lines[index] = rng.choice((f"{key}= {odd}", key, "", f"{lines[index]}\n{lines[index]}", f"{key.strip()}x = 1"))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def damage_lines(content: bytes, rng: Random) -> bytes:
    """A line of a text or table removed, doubled, or with odd text in it."""
    lines = content.split(b"\n")
    index = rng.randrange(len(lines))
    odd = rng.choice(ODD_TEXTS).encode("utf-8", "surrogatepass")
    lines[index] = rng.choice((b"", lines[index] * 2, odd, odd + b"," + odd, lines[index] + b",x", b'"' + lines[index]))
    return b"\n".join(lines)


def damage_checkpoint(file: Path, rng: Random) -> None:
    """An entry of a checkpoint replaced, with the checksum that belongs to it."""
    payload = file.read_bytes()[len(FORMAT) + 32 :]
    previous = file.with_name("checkpoint.previous")
    before = previous.read_bytes() if previous.exists() else None
    if rng.random() < 0.4:
        payload = damage_bytes(payload, rng)
        file.write_bytes(FORMAT + hashlib.sha256(payload).digest() + payload)
        return
    state = torch.load(io.BytesIO(payload), weights_only=True)
    for _ in range(rng.randint(1, 2)):
        state = _changed(state, rng, (*ODD_VALUES, *_odd_tensors()))
    try:
        save_checkpoint(file.parent, state)
    except (TypeError, AttributeError):  # keys that torch cannot write
        return
    if before is not None and rng.random() < 0.5:
        previous.write_bytes(before)
    elif previous.exists():
        previous.write_bytes(file.read_bytes())


def damage_tensors(file: Path, rng: Random) -> None:
    """A tensor of a safetensors file removed, renamed, or of another shape, type or content."""
    tensors = load(file.read_bytes())
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    ways: tuple[Callable[[], Any], ...] = (
        lambda: tensors.pop(name),
        lambda: tensors.update({name: tensor.reshape(-1)[:1].clone()}),
        lambda: tensors.update({name: tensor.double()}),
        lambda: tensors.update({name: torch.zeros(0)}),
        lambda: tensors.update({name: torch.full_like(tensor, -1)}),
        lambda: tensors.update({name: tensor.float() * float("nan")}),
        lambda: tensors.update({name + rng.choice(ODD_TEXTS[2:4]): tensor.clone()}),
        lambda: tensors.update({name: torch.cat([tensor.reshape(-1)] * 2)}),
    )
    rng.choice(ways)()
    file.write_bytes(save(tensors))


def sign(run: Path) -> None:
    """Give result.json the checksums of the model's files as they are now, as somebody who means harm would."""
    file = run / "result.json"
    result = json.loads(file.read_text())
    result["checksums"] = {
        name: file_digest(run / name) for name in ("model.safetensors", "model.json") if (run / name).is_file()
    }
    file.write_text(json.dumps(result))


def damage_run(run: Path, rng: Random) -> tuple[str, bool]:
    """Damage a file of a run; what was damaged, and whether that can change what the run answers."""
    files = sorted(file for file in run.iterdir() if file.name != "lock" and file.is_file())
    file = rng.choice(files)
    way = rng.random()
    if way < 0.04:
        file.unlink()
        return f"{file.name} removed", True
    if way < 0.08:
        file.unlink()
        file.mkdir()
        return f"{file.name} is a folder", True
    if way < 0.1:
        file.unlink()
        file.symlink_to(file.name)
        return f"{file.name} is a loop of links", True
    if way < 0.14:
        file.write_bytes(rng.choice(files).read_bytes())
        return f"{file.name} is another file", True
    damage_file(file, rng)
    in_model = file.name in ("model.safetensors", "model.json")
    if in_model and rng.random() < 0.6:
        sign(run)
        return f"{file.name}, signed", True
    return file.name, not in_model


def damage_file(file: Path, rng: Random) -> None:
    """Damage a file in its bytes, or in the structure that its ending names."""
    content = file.read_bytes()
    if rng.random() < 0.35:
        file.write_bytes(damage_bytes(content, rng))
    elif file.suffix == ".json":
        file.write_bytes(damage_json(content, rng))
    elif file.suffix == ".toml":
        file.write_bytes(damage_toml(content, rng))
    elif file.suffix == ".safetensors":
        damage_tensors(file, rng)
    elif file.suffix == ".jsonl":
        lines = content.splitlines()
        index = rng.randrange(len(lines))
        lines[index] = damage_json(lines[index], rng)
        file.write_bytes(b"\n".join(lines))
    else:
        file.write_bytes(damage_bytes(content, rng))


def _changed(values: Any, rng: Random, odd: tuple[Any, ...]) -> Any:
    """The same nested value with one entry changed, at a random depth."""
    if isinstance(values, dict) and values and rng.random() < 0.85:
        key = rng.choice(list(values))
        if rng.random() < 0.15:
            values.pop(key)
        elif rng.random() < 0.05:
            values[f"{key}{rng.choice(ODD_TEXTS)}"] = values.pop(key)
        else:
            values[key] = _changed(values[key], rng, odd)
        return values
    if isinstance(values, list) and values and rng.random() < 0.7:
        index = rng.randrange(len(values))
        if rng.random() < 0.2:
            values.pop(index)
        else:
            values[index] = _changed(values[index], rng, odd)
        return values
    return copy.deepcopy(rng.choice(odd))  # later changes must not reach the constants: every case stands alone


def _odd_tensors() -> tuple[torch.Tensor, ...]:
    return (
        torch.zeros(0),
        torch.tensor(1.0),
        torch.zeros(3, dtype=torch.long),
        torch.full((2, 2), float("nan")),
        torch.zeros(5056, dtype=torch.uint8),
        torch.zeros(5056),
        torch.zeros(2, dtype=torch.complex64),
    )


def _place(content: bytes, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((1, 2, 8, 64, 1000)))


def _flip(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20)) if content else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _remove(content: bytes, rng: Random) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + content[end:]


def _repeat(content: bytes, rng: Random) -> bytes:
    start, end = _place(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 3)) + content[end:]


def _insert(content: bytes, rng: Random) -> bytes:
    start, _ = _place(content, rng)
    return content[:start] + rng.randbytes(rng.choice((1, 4, 100))) + content[start:]


def _zero(content: bytes, rng: Random) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + bytes(end - start) + content[end:]


def _number(content: bytes, rng: Random) -> bytes:
    found = list(DIGITS.finditer(content))
    if not found:
        return _flip(content, rng)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice(ODD_NUMBERS).encode() + content[match.end() :]


def _empty(content: bytes, rng: Random) -> bytes:
    return b""

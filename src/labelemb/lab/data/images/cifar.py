"""CIFAR-10 and CIFAR-100 in the binary version, from a folder or from the published tar.gz.

A record is one label byte (CIFAR-100: the coarse label, then the fine label) and 3,072 bytes of a 3 x 32 x 32 image.
The publisher's other version is made of pickles, which can execute code: it is not read.
"""

import gzip
import logging
import lzma
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from labelemb.lab.data.files import find_data, read_bytes
from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.splits import Splits
from labelemb.lab.recipes.settings import Cifar10Data, Cifar100Data
from labelemb.support.errors import UserError

PIXELS = 3 * 32 * 32
PUBLISHED = {"training": 50_000, "test": 10_000}
"""Number of images in either set."""

logger = logging.getLogger("labelemb")


@dataclass(frozen=True)
class Layout:
    """Files and labels of one of the two sets."""

    title: str
    archive: str
    pickled: str
    train_files: tuple[str, ...]
    test_file: str
    names_file: str
    num_labels: int
    coarse_names_file: str = ""
    num_coarse: int = 0

    @property
    def label_bytes(self) -> int:
        return 2 if self.num_coarse else 1

    @property
    def binary_files(self) -> tuple[str, ...]:
        return (*self.train_files, self.test_file)

    @property
    def wanted(self) -> str:
        name = self.archive.removesuffix("-binary.tar.gz").replace("-", "")
        return (
            f"{self.title}'s binary version, {self.archive} or its files {', '.join(self.binary_files)} "
            f"(`labelemb data fetch {name}` downloads it)"
        )


CIFAR10 = Layout(
    title="CIFAR-10",
    archive="cifar-10-binary.tar.gz",
    pickled="cifar-10-batches-py",
    train_files=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test_file="test_batch.bin",
    names_file="batches.meta.txt",
    num_labels=10,
)
CIFAR100 = Layout(
    title="CIFAR-100",
    archive="cifar-100-binary.tar.gz",
    pickled="cifar-100-python",
    train_files=("train.bin",),
    test_file="test.bin",
    names_file="fine_label_names.txt",
    num_labels=100,
    coarse_names_file="coarse_label_names.txt",
    num_coarse=20,
)
LAYOUTS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def read_cifar(settings: Cifar10Data | Cifar100Data, path: Path | None) -> Splits[ImageExamples]:
    """Training and test images; CIFAR-100 with its 100 fine labels, the coarse ones as groups of them."""
    layout = LAYOUTS[settings.kind]
    place = find_cifar(layout, settings.folders, path)
    contents = _read_files(layout, place)
    records = {name: _read_records(layout, f"{place}: {name}", contents[name]) for name in layout.binary_files}
    _check_counts(layout, place, {name: len(part) for name, part in records.items()})
    names = _read_names(contents, layout.names_file, layout.num_labels, place)
    train_records = torch.cat([records[name] for name in layout.train_files])
    train, test = (
        ImageExamples(
            part[:, layout.label_bytes :].reshape(-1, 3, 32, 32).contiguous(),
            part[:, layout.label_bytes - 1],
            settings.mean,
            settings.std,
        )
        for part in (train_records, records[layout.test_file])
    )
    groups = None
    if layout.num_coarse:
        coarse_names = _read_names(contents, layout.coarse_names_file, layout.num_coarse, place)
        groups = _group(train_records[:, 0].long(), train_records[:, 1].long(), coarse_names, names)
    return Splits(train, None, test, names, str(place), groups)


def find_cifar(layout: Layout, folders: tuple[str, ...], path: Path | None) -> Path:
    """The folder or archive with the set."""

    def holds(place: Path) -> bool:
        if place.is_file():
            return place.name.endswith((".tar.gz", ".tgz", ".tar"))
        return any((place / name).is_file() for name in layout.binary_files)

    for root in (path,) if path is not None else ():
        if (root / layout.pickled).is_dir() or root.name == layout.pickled or "-python.tar" in root.name:
            raise UserError(
                f"{root} is the pickled version of {layout.title}, which is not read; wanted: {layout.wanted}"
            )
    return find_data(path, (*folders, layout.archive), holds, layout.wanted)


def _read_files(layout: Layout, place: Path) -> dict[str, bytes]:
    """The set's files by name, without their folder."""
    wanted = {*layout.binary_files, layout.names_file, layout.coarse_names_file} - {""}
    if place.is_dir():
        contents = {name: read_bytes(place / name) for name in wanted if (place / name).is_file()}
    else:
        contents = _read_archive(place, wanted)
    for name in layout.binary_files:
        if name not in contents:
            raise UserError(f"{place} lacks {name}; wanted: {layout.wanted}")
    return contents


def _read_archive(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    contents = {}
    try:
        with tarfile.open(archive) as members:
            for member in members:
                name = member.name.rpartition("/")[2]
                stream = members.extractfile(member) if name in wanted and member.isfile() else None
                if stream is not None:
                    contents[name] = stream.read()
            # to the end of the packed stream, where its checksum stands
            while members.fileobj is not None and members.fileobj.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{archive} is truncated, damaged or not a tar archive: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {archive}: {error.strerror or error}") from error
    return contents


def _read_records(layout: Layout, source: str, content: bytes) -> Tensor:
    size = layout.label_bytes + PIXELS
    if len(content) == 0 or len(content) % size:
        raise UserError(
            f"{source} is truncated or not from {layout.title}: {len(content)} bytes, expected a multiple of {size}"
        )
    records = torch.from_numpy(np.frombuffer(content, dtype=np.uint8).reshape(-1, size).copy())
    limits = (layout.num_coarse, layout.num_labels) if layout.num_coarse else (layout.num_labels,)
    for column, limit in enumerate(limits):
        largest = int(records[:, column].max())
        if largest >= limit:
            kind = "coarse label" if len(limits) == 2 and column == 0 else "label"
            raise UserError(f"{source} has the {kind} {largest}, {layout.title} has 0 to {limit - 1}: a foreign file?")
    return records


def _check_counts(layout: Layout, place: Path, counts: Mapping[str, int]) -> None:
    """Refuse files that were cut off between two images; warn of a set with another size than published."""
    longest = max(layout.train_files, key=lambda name: counts[name])
    for name in layout.train_files:
        if counts[name] < counts[longest]:
            raise UserError(
                f"{place}: {name} is truncated, download it again: it has {counts[name]} images, {longest} has "
                f"{counts[longest]}, and all should have as many"
            )
    found = {"training": sum(counts[name] for name in layout.train_files), "test": counts[layout.test_file]}
    for part, count in found.items():
        if count != PUBLISHED[part]:
            logger.warning("%s has %d %s images, %s as published %d", place, count, part, layout.title, PUBLISHED[part])


def _read_names(contents: Mapping[str, bytes], name: str, count: int, place: Path) -> list[str]:
    if name not in contents:
        return [str(label) for label in range(count)]
    names = contents[name].decode("utf-8", errors="replace").split()
    if len(names) != count or len(set(names)) != count:
        raise UserError(f"{place}: {name} has {len(set(names))} different names, expected {count}")
    return names


def _group(coarse: Tensor, fine: Tensor, coarse_names: list[str], fine_names: list[str]) -> dict[str, list[str]]:
    """Fine names under their coarse name; a fine label belongs where most of its images are."""
    pairs = torch.bincount(fine * len(coarse_names) + coarse, minlength=len(fine_names) * len(coarse_names))
    home = pairs.view(len(fine_names), len(coarse_names)).argmax(1).tolist()
    groups: dict[str, list[str]] = {name: [] for name in coarse_names}
    for label, group in enumerate(home):
        groups[coarse_names[group]].append(fine_names[label])
    return groups

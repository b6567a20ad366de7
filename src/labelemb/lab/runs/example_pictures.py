"""A sheet with a few small test images of every label, for the report page."""

import io
import json
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
from PIL import Image, PngImagePlugin
from torch import Tensor

from labelemb.lab.data import Dataset, ImageExamples
from labelemb.lab.data.images.thumbnails import MODES, thumbnail
from labelemb.lab.tasks.records import AtLeastOne, Count, from_json, to_json
from labelemb.support.errors import UserError

FILE = "examples.png"
PICTURES = 4
"""Of each label, the first of the test set."""
MOST_LABELS = 500
LARGEST_SIDE = 48
MOST_BYTES = 3_000_000
"""Of the pixels of a sheet: with more labels the pictures become smaller."""
KEY = "labelemb"


class SheetLayout(msgspec.Struct, frozen=True):
    """Where the pictures of a label are on a sheet."""

    labels: list[str]
    counts: list[Count]
    """Pictures of each label, at most `per_label`."""
    per_label: AtLeastOne
    """Cells of each label."""
    size: tuple[AtLeastOne, AtLeastOne]
    """Height and width of a picture."""
    across: AtLeastOne
    """Cells in a row."""

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.labels) or max(self.counts, default=0) > self.per_label:
            raise ValueError(f"{len(self.counts)} numbers of pictures for {len(self.labels)} labels, or too large ones")


@dataclass(frozen=True)
class Sheet:
    """A sheet as it was read: the bytes of the PNG file, and the layout in it."""

    png: bytes
    layout: SheetLayout


def draw_examples(data: Dataset) -> bytes | None:
    """The sheet as PNG, with its layout inside the file; None without images.

    Picture i of label y is in cell PICTURES y + i, row by row.
    """
    test, labels = data.test, len(data.label_names)
    if not isinstance(test, ImageExamples) or test.images.shape[1] not in MODES or labels > MOST_LABELS:
        return None
    height, width = _size(test.images, labels)
    across = PICTURES * max(1, round(math.sqrt(labels * height / (PICTURES * width))))
    down = math.ceil(PICTURES * labels / across)
    sheet = Image.new(MODES[test.images.shape[1]], (across * width, down * height))
    counts = []
    for label in range(labels):
        chosen = (test.targets == label).nonzero()[:PICTURES, 0].tolist()
        counts.append(len(chosen))
        for cell, index in enumerate(chosen, start=PICTURES * label):
            corner = (cell % across * width, cell // across * height)
            sheet.paste(thumbnail(test.images[index], width, height), corner)
    return _png(sheet, SheetLayout(data.label_names, counts, PICTURES, (height, width), across))


def read_examples(file: Path) -> Sheet:
    """The sheet in a file."""
    try:
        content = file.read_bytes()
        with Image.open(io.BytesIO(content)) as sheet:
            return Sheet(content, from_json(sheet.info[KEY], SheetLayout))
    except (OSError, KeyError, ValueError, SyntaxError, Image.DecompressionBombError) as error:  # Pillow's reader
        raise UserError(f"{file} cannot be read as a sheet of examples: {error}") from error


def _size(images: Tensor, labels: int) -> tuple[int, int]:
    """Height and width of a picture: no larger than the image, than LARGEST_SIDE, and than the sheet allows."""
    channels, height, width = images.shape[1:]
    room = math.sqrt(MOST_BYTES / (PICTURES * labels * channels * height * width))
    scale = min(1.0, LARGEST_SIDE / max(height, width), room)
    return max(1, int(height * scale)), max(1, int(width * scale))


def _png(sheet: Image.Image, layout: SheetLayout) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_itxt(KEY, json.dumps(to_json(layout), ensure_ascii=False))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", pnginfo=text, optimize=True)
    return buffer.getvalue()

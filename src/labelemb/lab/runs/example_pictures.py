"""A few small test images of every label on one sheet, so that a report can show what its labels look like."""

import io
import json
import math
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin
from torch import Tensor

from labelemb.lab.data import Dataset, ImageExamples
from labelemb.support.errors import UserError

FILE = "examples.png"
PICTURES = 4
"""Of each label, the first of the test set."""
MOST_LABELS = 500
LARGEST_SIDE = 48
MOST_BYTES = 3_000_000
"""Of the pixels of a sheet: with more labels the pictures become smaller."""
KEY = "labelemb"
MODES = {1: "L", 3: "RGB"}


def draw_examples(data: Dataset) -> bytes | None:
    """The sheet as PNG, picture `place` of label y in cell PICTURES y + place, row by row; None without images.

    How to find a label on it is written inside the file: labels, how many pictures each has and how many cells, the
    size of a picture (height, width), and how many stand in a row.
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
            place = (cell % across * width, cell // across * height)
            sheet.paste(_picture(test.images[index], width, height), place)
    layout = {"per_label": PICTURES, "size": [height, width], "across": across}
    return _png(sheet, {"labels": data.label_names, "counts": counts, **layout})


def read_examples(file: Path) -> dict[str, Any]:
    """What a sheet says about itself, and its bytes as `png`."""
    try:
        content = file.read_bytes()
        with Image.open(io.BytesIO(content)) as sheet:
            return {**json.loads(sheet.info[KEY]), "png": content}
    except (OSError, KeyError, ValueError, SyntaxError) as error:  # Pillow's reader raises each of them
        raise UserError(f"{file} cannot be read as a sheet of examples: {error}") from error


def _size(images: Tensor, labels: int) -> tuple[int, int]:
    """Height and width of a picture: no larger than the image, than LARGEST_SIDE, and than the sheet allows."""
    channels, height, width = images.shape[1:]
    room = math.sqrt(MOST_BYTES / (PICTURES * labels * channels * height * width))
    scale = min(1.0, LARGEST_SIDE / max(height, width), room)
    return max(1, int(height * scale)), max(1, int(width * scale))


def _picture(image: Tensor, width: int, height: int) -> Image.Image:
    """One image, (channels, height, width) in bytes, in the size of the sheet."""
    pixels = image.permute(1, 2, 0).squeeze(-1).contiguous().numpy()
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BOX)


def _png(sheet: Image.Image, about: dict[str, Any]) -> bytes:
    text = PngImagePlugin.PngInfo()
    text.add_itxt(KEY, json.dumps(about, ensure_ascii=False))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", pnginfo=text, optimize=True)
    return buffer.getvalue()

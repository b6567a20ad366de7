"""The examples with the most confident errors, to find wrong labels and blind spots."""

import base64
import io

import msgspec
from torch import Tensor

from labelemb.lab.data import Examples, ImageExamples
from labelemb.lab.data.images.thumbnails import MODES, thumbnail
from labelemb.support.wording import shorten

FILE = "worst.json"
KEPT = 50
"""Examples that a run keeps for its report."""
LARGEST_SIDE = 48
LONGEST_TEXT = 500
"""Characters of a text that a run keeps for its report."""


class WorstExample(msgspec.Struct, frozen=True, omit_defaults=True):
    """A test example whose predicted label is not its own."""

    number: int
    """Its place in the test set, from 0."""
    label: str
    predicted: str
    probability: float
    """Of the predicted label, calibrated where there was a dev set."""
    label_probability: float
    text: str = ""
    """Empty for images."""
    file: str = ""
    """Where an image is in its data's folder; empty where images have no files of their own."""
    picture: str = ""
    """A small PNG in base64; empty for texts."""

    def shortened(self) -> "WorstExample":
        """With a text of one line that is not too long for a page."""
        return msgspec.structs.replace(self, text=shorten(self.text, LONGEST_TEXT))


def worst_examples(examples: Examples, logits: Tensor, names: list[str], count: int) -> list[WorstExample]:
    """The most confident errors, the most confident first. `logits` (rows, labels) are those of the probabilities."""
    shown = examples.original or examples
    probabilities = logits.double().softmax(-1)
    confidence, predicted = probabilities.max(-1)
    wrong = (predicted != examples.targets).nonzero()[:, 0]
    order = wrong[confidence[wrong].sort(descending=True, stable=True).indices[:count]]
    own = probabilities.gather(1, examples.targets[:, None])[:, 0]
    return [
        WorstExample(
            number=row,
            label=names[int(examples.targets[row])],
            predicted=names[int(predicted[row])],
            probability=float(confidence[row]),
            label_probability=float(own[row]),
            text="" if shown.texts is None else shown.texts[row],
            file=_file(shown, row),
            picture=_picture(shown, row),
        )
        for row in order.tolist()
    ]


def _file(examples: Examples, row: int) -> str:
    return examples.files[row] if isinstance(examples, ImageExamples) and examples.files is not None else ""


def _picture(examples: Examples, row: int) -> str:
    if not isinstance(examples, ImageExamples) or examples.images.shape[1] not in MODES:
        return ""
    height, width = examples.images.shape[2:]
    scale = min(1.0, LARGEST_SIDE / max(height, width))
    image = thumbnail(examples.images[row], max(1, int(width * scale)), max(1, int(height * scale)))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()

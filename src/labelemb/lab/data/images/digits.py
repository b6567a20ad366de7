"""The 1,797 handwritten digits of 8 x 8 pixels that are part of scikit-learn."""

from pathlib import Path

import torch

from labelemb.lab.data.images.examples import ImageExamples
from labelemb.lab.data.splits import Splits
from labelemb.lab.recipes.settings import DigitsData
from labelemb.support.errors import UserError


def read_digits(settings: DigitsData, path: Path | None = None) -> Splits[ImageExamples]:
    """All digits as training examples: the settings say how many are held out."""
    if path is not None:
        raise UserError(
            f"the digits come with scikit-learn: leave out --data {path}, or use image-folder for your images"
        )
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = torch.from_numpy(digits.images)  # (rows, 8, 8), whole numbers from 0 to 16
    images = (pixels * (255 / 16)).round().to(torch.uint8).unsqueeze(1)
    examples = ImageExamples(images, torch.from_numpy(digits.target), settings.mean, settings.std)
    return Splits(examples, None, None, [str(digit) for digit in range(10)], "scikit-learn's digits")

"""Crop and flip of a batch, against the same done image by image."""

import torch
from torch import Tensor
from torch.nn import functional as F

from labelemb.lab.data.images.augment import CropFlip
from labelemb.lab.data.images.examples import Normalisation

MEAN, STD = (0.4, 0.5), (0.2, 0.25)


def one_by_one(images: Tensor, rows: Tensor, columns: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Black padding before normalisation, a crop, a mirror image: written per image, on pixels from 0 to 1."""
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (MEAN, STD))
    results = []
    for image, row, column, mirror in zip(images, rows.tolist(), columns.tolist(), mirrored.tolist(), strict=True):
        height, width = image.shape[1:]
        padded = F.pad(image * std + mean, (padding,) * 4)
        crop = padded[:, row : row + height, column : column + width]
        results.append(((crop.flip(-1) if mirror else crop) - mean) / std)
    return torch.stack(results)


def test_a_batch_is_augmented_like_its_images_one_by_one() -> None:
    generator = torch.Generator().manual_seed(3)
    images = torch.randn(50, 2, 7, 5, generator=generator)
    augment = CropFlip(Normalisation(2, MEAN, STD), padding=4)
    draws = augment.draw(50, generator)
    torch.testing.assert_close(
        augment.apply(images, *draws), one_by_one(images, *draws, padding=4), rtol=1e-5, atol=1e-5
    )


def test_every_offset_occurs_and_half_of_the_images_are_mirrored() -> None:
    rows, columns, mirrored = CropFlip(Normalisation(2, MEAN, STD)).draw(5000, torch.Generator().manual_seed(1))
    for offsets in (rows, columns):
        counts = offsets.bincount()
        assert len(counts) == 9
        assert counts.min() > 400
    assert 2300 < mirrored.sum() < 2700


def test_the_same_generator_gives_the_same_images_and_the_input_stays() -> None:
    images = torch.randn(8, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    augment = CropFlip(Normalisation(2, MEAN, STD))
    (first,), (second,) = (augment((images,), torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == images.shape
    assert first.is_contiguous()
    assert torch.equal(images, before)

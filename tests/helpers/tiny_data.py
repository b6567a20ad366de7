"""Writers of small files in the formats that the lab reads."""

import csv
import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from labelemb.lab.recipes.recipe import load_recipe

TRANSLATIONS = ("en-vi-news-small", "iwslt15-en-vi", "multi30k-en-de-small", "zh-titles-small")
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def write_idx(path: Path, values: np.ndarray) -> None:
    """An idx file of bytes, packed if the name ends in .gz."""
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    content = header + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix.lower() == ".gz" else content)


def write_mnist(folder: Path, train: int = 60, test: int = 20, size: int = 28, packed: bool = True) -> Path:
    """The four files of MNIST; label i % 10 is a bright row of pixels, so that it can be learned."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = ".gz" if packed else ""
    for count, (images_name, labels_name) in ((train, IDX_FILES[:2]), (test, IDX_FILES[2:])):
        labels = np.arange(count) % 10
        images = np.random.default_rng(count).integers(0, 64, (count, size, size))
        images[np.arange(count), labels * size // 10] = 255
        write_idx(folder / f"{images_name}{suffix}", images)
        write_idx(folder / f"{labels_name}{suffix}", labels)
    return folder


def cifar_records(count: int, num_labels: int, num_coarse: int = 0) -> bytes:
    """Records of CIFAR's binary version, labels in turn; a coarse label covers neighbouring fine ones."""
    fine = np.arange(count) % num_labels
    pixels = np.random.default_rng(count).integers(0, 256, (count, 3072))
    columns = [fine[:, None], pixels]
    if num_coarse:
        columns.insert(0, (fine * num_coarse // num_labels)[:, None])
    return np.concatenate(columns, axis=1).astype(np.uint8).tobytes()


def write_cifar10(folder: Path, per_file: int = 20) -> Path:
    """Five training files, one test file and the names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(cifar_records(per_file, 10))
    (folder / "batches.meta.txt").write_text("\n".join(f"name{label}" for label in range(10)) + "\n\n")
    return folder


def write_cifar100(folder: Path, train: int = 200, test: int = 100) -> Path:
    """One training file, one test file, fine and coarse names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.bin").write_bytes(cifar_records(train, 100, 20))
    (folder / "test.bin").write_bytes(cifar_records(test, 100, 20))
    (folder / "fine_label_names.txt").write_text("".join(f"fine{label}\n" for label in range(100)))
    (folder / "coarse_label_names.txt").write_text("".join(f"coarse{label}\n" for label in range(20)))
    return folder


def pack_folder(folder: Path, archive: Path) -> Path:
    """The folder as a tar.gz."""
    with tarfile.open(archive, "w:gz") as members:
        members.add(folder, arcname=folder.name)
    return archive


def write_image(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (20, 24)) -> None:
    """A plain image of one color; size is width and height."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)


def write_image_folder(folder: Path, per_label: int = 10) -> Path:
    """Red and blue images of several sizes and formats, one folder per label."""
    for label, color in (("red", (200, 0, 0)), ("blue", (0, 0, 200))):
        for number in range(per_label):
            suffix = ("png", "jpg", "bmp")[number % 3]
            write_image(folder / label / f"{number}.{suffix}", color, size=(16 + number, 40 - number))
    return folder


def write_csv(path: Path, rows: Sequence[Sequence[str]], delimiter: str = ",") -> Path:
    """Rows, the first of them the header, packed if the name ends in .gz."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerows(rows)
    content = buffer.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix.lower() == ".gz" else content)
    return path


def text_rows(per_label: int = 10, labels: Sequence[str] = ("music", "weather")) -> list[list[str]]:
    """A header and rows of text and label, in which the label's own word occurs."""
    rows = [[f"please tell me number {number} about {label}", label] for label in labels for number in range(per_label)]
    return [["text", "label"], *rows]


def write_pairs(
    folder: Path, stems: Sequence[str], suffixes: tuple[str, str], pairs: Sequence[tuple[str, str]]
) -> Path:
    """Line-aligned files with the same pairs under every stem; every second file is packed."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem in stems:
        for packed, suffix in enumerate(suffixes):
            content = "".join(pair[packed] + "\n" for pair in pairs).encode()
            name = folder / f"{stem}.{suffix}{'.gz' if packed else ''}"
            name.write_bytes(gzip.compress(content) if packed else content)
    return folder


def color_pairs() -> list[tuple[str, str]]:
    """Twenty English phrases of two or three words with their German translations."""
    colors = {"red": "rote", "blue": "blaue", "green": "grüne", "black": "schwarze", "white": "weiße"}
    things = {"cat": "katze", "flower": "blume", "old cat": "alte katze", "old flower": "alte blume"}
    return [(f"the {color} {thing}", f"die {colors[color]} {things[thing]}") for color in colors for thing in things]


def title_pairs() -> list[tuple[str, str]]:
    """Chinese texts whose first characters are their titles."""
    signs = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏"
    return [(signs[i:] + signs[:i], signs[i : i + 4]) for i in range(20)]


def write_lcsts(folder: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """The three published files of LCSTS; the second and third have a score a document."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("PART_I", "PART_II", "PART_III"):
        score = "" if part == "PART_I" else "    <human_label>4</human_label>\n"
        documents = (
            f"<doc id={number}>\n{score}    <summary>\n        {summary}\n    </summary>\n"
            f"    <short_text>\n        {text}\n    </short_text>\n</doc>\n"
            for number, (text, summary) in enumerate(pairs)
        )
        (folder / f"{part}.txt").write_text("".join(documents), encoding="utf-8")
    return folder


def small_sizes(recipe: str) -> list[str]:
    """Overrides with which the shipped recipe fits the small data of `write_for_recipe`."""
    held_out = (
        "cifar10-few",
        "cifar100-few",
        "cifar100-pretrained",
        "cifar100-small",
    )  # 5,000 images, more than there are
    return ["data.dev_size=20"] if recipe in held_out else []


def write_for_recipe(recipe: str, folder: Path) -> Path | None:
    """Small data that the shipped recipe can train on, or None where it needs none."""
    if recipe.startswith("mnist"):
        return write_mnist(folder / "mnist", train=5060)  # the recipe holds 5,000 out
    if recipe.startswith("cifar100"):
        return write_cifar100(folder / "cifar-100-binary")
    if recipe.startswith("cifar10"):
        return write_cifar10(folder / "cifar-10-batches-bin")
    if recipe == "image-folder":
        return write_image_folder(folder / "images")
    if recipe in ("text-csv", "text-minilm", "text-vectors"):
        return write_csv(folder / "texts.csv", text_rows())
    if recipe == "lcsts":
        return write_lcsts(folder / "lcsts", title_pairs())
    if recipe in TRANSLATIONS:
        settings = load_recipe(recipe).data
        stems = (*settings.train_files, *settings.dev_files, *settings.test_files)
        pairs = title_pairs() if settings.unit == "char" else color_pairs()
        return write_pairs(folder / "pairs", stems, (settings.source_suffix, settings.target_suffix), pairs)
    return None

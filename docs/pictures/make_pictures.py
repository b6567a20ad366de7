"""The pictures of docs/method.md: from one short training on MNIST, and from finished runs.

    python docs/pictures/make_pictures.py --data DIR
    python docs/pictures/make_pictures.py --labels RUN/labels.safetensors --name cifar10-heatmap
    python docs/pictures/make_pictures.py --labels RUN/labels.safetensors --name cifar100-heatmap --only bottle,can

DIR holds MNIST's files (or the folder mnist with them). The training is the recipe `mnist-mlp` with the method
`label-embedding`, seed 0, written as a loop that looks at the embedding on the way. Each picture is written twice, for
light and for dark pages.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from labelemb import Head, LabelSpace
from labelemb.lab.bodies import make_body
from labelemb.lab.data import load_data
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import load_recipe
from labelemb.lab.runs.engine import make_optimizer
from labelemb.lab.runs.randomness import Streams, stream
from labelemb.lab.tasks.model import out_features
from labelemb.labelspace.pictures import draw_heatmap, heatmap_labels
from labelemb.support.files import write_bytes

SEED = 0
SHOWN = ("4", "3", "7")
"""Labels whose soft targets are followed through the training."""


@dataclass(frozen=True)
class Theme:
    """Colours that colour-blind readers tell apart, and that differ in brightness as well."""

    background: str
    ink: str
    own: str
    other: str


THEMES = {
    "light": Theme(background="#ffffff", ink="#1f2328", own="#e69f00", other="#0072b2"),
    "dark": Theme(background="#0d1117", ink="#e6edf3", own="#f0b440", other="#56b4e9"),
}


def moments_of(epochs: int) -> dict[int, str]:
    """The epochs after which the embedding is looked at, with what the picture calls them."""
    moments = {epoch: f"after {epoch} epochs" for epoch in sorted({0, 1, epochs // 3, epochs})}
    return moments | {0: "at the start", 1: "after 1 epoch"}


def train(data_path: Path, epochs: int | None) -> dict[str, LabelSpace]:
    """Label spaces at the moments of one training."""
    recipe = load_recipe("mnist-mlp", [] if epochs is None else [f"train.epochs={epochs}"])
    data = load_data(recipe, data_path, SEED)
    with stream(SEED, "body"):
        body = make_body(recipe.body, data.inputs, len(data.label_names))
    with stream(SEED, "head"):
        method = parse_method("label-embedding")
        head = method.make_head(recipe, out_features(body), len(data.label_names), rows_per_epoch=data.train.rows)
    optimizer = make_optimizer(recipe, body, head, method.embedding_lr(recipe))
    order = Streams(SEED, 0, torch.device("cpu")).order
    moments = moments_of(recipe.train.epochs)
    spaces = {moments[0]: space_of(head, data.label_names)}
    for epoch in range(1, recipe.train.epochs + 1):
        for index in data.train.batches(recipe.train.batch_size, order):
            inputs, targets = data.train.batch(index)
            optimizer.zero_grad()
            head(body(*inputs), targets).loss.backward()
            optimizer.step()
        if epoch in moments:
            spaces[moments[epoch]] = space_of(head, data.label_names)
    return spaces


def space_of(head: Head, names: Sequence[str]) -> LabelSpace:
    """What the head has learned so far."""
    space = head.label_space(names)
    assert space is not None  # this method learns one
    return space


def draw_soft_targets(spaces: dict[str, LabelSpace], labels: Sequence[str], theme: Theme) -> Figure:
    """A row of axes for each label, a column for each moment: how the label's soft target is shared out."""
    figure = Figure(figsize=(9.0, 1.55 * len(labels) + 0.5), layout="constrained")
    axes = figure.subplots(len(labels), len(spaces), sharex=True, sharey=True, squeeze=False)
    for column, (moment, space) in enumerate(spaces.items()):
        axes[0, column].set_title(moment, fontsize=10)
        for row, label in enumerate(labels):
            shares = space.distribution(label).tolist()
            colours = [theme.own if name == label else theme.other for name in space.names]
            axes[row, column].bar(space.names, shares, color=colours, width=0.8)
            axes[row, column].tick_params(labelsize=8, length=0)
            axes[row, column].spines[["top", "right"]].set_visible(False)
    for row, label in enumerate(labels):
        axes[row, 0].set_ylabel(f"target of {label}")
    return figure


def draw_label_heatmap(space: LabelSpace, labels: Sequence[str] | None = None) -> Figure:
    """The rows of all labels, or of some, as the paper draws them."""
    figure = Figure(figsize=(5.4, 4.4), layout="constrained")
    draw_heatmap(space, heatmap_labels(space, labels), figure.subplots())
    return figure


@contextmanager
def drawn_in(theme: Theme) -> Iterator[None]:
    """Inside, figures have the colours of the theme."""
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    faces = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    colours: dict[Any, str] = {**dict.fromkeys(inks, theme.ink), **dict.fromkeys(faces, theme.background)}
    with matplotlib.rc_context(colours):
        yield


def save(name: str, folder: Path, draw: Callable[[Theme], Figure]) -> None:
    """NAME-light.png and NAME-dark.png."""
    for kind, theme in THEMES.items():
        with drawn_in(theme):
            buffer = io.BytesIO()
            draw(theme).savefig(buffer, format="png", dpi=110, metadata={"Software": None})
        write_bytes(folder / f"{name}-{kind}.png", buffer.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/method.md.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with MNIST's files: train, and draw soft targets and heatmap")
    source.add_argument("--labels", type=Path, help="labels.safetensors of a finished run: draw its heatmap")
    parser.add_argument("--only", help="with --labels: these labels alone, separated by commas")
    parser.add_argument("--name", default="heatmap", help="with --labels: name of the picture")
    parser.add_argument("--epochs", type=int, help="with --data: epochs (the recipe's 15)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    options = parser.parse_args()
    if options.labels:
        space = LabelSpace.load(options.labels)
        some = options.only.split(",") if options.only else None
        save(options.name, options.out, lambda theme: draw_label_heatmap(space, some))
        return
    spaces = train(options.data, options.epochs)
    save("soft-targets", options.out, lambda theme: draw_soft_targets(spaces, SHOWN, theme))
    save("mnist-heatmap", options.out, lambda theme: draw_label_heatmap(list(spaces.values())[-1]))


if __name__ == "__main__":
    main()

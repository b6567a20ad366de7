"""The subcommands about learned labels: nearest, heatmap, map."""

import argparse
import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from labelemb.lab.cli.arguments import Verbs, a_path, add_json, add_verb, existing, positive
from labelemb.lab.runs.finished import require_labels
from labelemb.support.errors import UserError
from labelemb.support.interrupts import importing
from labelemb.support.wording import quote_few

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from labelemb import LabelSpace

FEW_LABELS = 30
"""So many are listed where none was named."""
PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".eps", ".ps", ".svgz", "")
"""Endings of the files that matplotlib writes; a file without one is a PNG."""
DIGITS = 6
"""Decimal places of the numbers in JSON."""

NEAREST_EXAMPLES = """\
  labelemb nearest runs/digits/label-embedding/seed-0 8 9
  labelemb nearest animals.safetensors cat -k 10 --json
  labelemb nearest RUN --frequent 12                  the most frequent words of a translation
"""
HEATMAP_EXAMPLES = """\
  labelemb heatmap runs/digits/label-embedding/seed-0
  labelemb heatmap animals.safetensors --labels cat,dog,horse -o pets.svg
  labelemb heatmap animals.safetensors --json
"""
MAP_EXAMPLES = """\
  labelemb map runs/digits/label-embedding/seed-0
  labelemb map animals.safetensors -o animals.svg
  labelemb map animals.safetensors --json
"""


def add_verbs(verbs: "Verbs[argparse.ArgumentParser]") -> None:
    nearest = add_verb(verbs, "nearest", "print the labels that are most similar to a label", NEAREST_EXAMPLES)
    nearest.add_argument(
        "space",
        type=existing("run folder or file"),
        metavar="RUN_OR_FILE",
        help="folder of a run, or a label space file",
    )
    nearest.add_argument("labels", nargs="*", metavar="LABEL", help="names of labels")
    nearest.add_argument("--list", type=a_path, metavar="FILE", help="also the labels in a file, one per line")
    nearest.add_argument(
        "--frequent", type=positive, metavar="N", help="also the N most frequent labels of the training data"
    )
    nearest.add_argument("-k", type=positive, default=5, metavar="K", help="neighbours per label (default: 5)")
    nearest.add_argument("--symmetric", action="store_true", help="average the similarity in both directions")
    add_json(nearest)
    nearest.set_defaults(run=_nearest)

    heatmap = add_verb(verbs, "heatmap", "draw the similarities of labels as a heatmap", HEATMAP_EXAMPLES)
    heatmap.add_argument(
        "space",
        type=existing("run folder or file"),
        metavar="RUN_OR_FILE",
        help="folder of a run, or a label space file",
    )
    heatmap.add_argument(
        "--labels", metavar="L,L,...", help='only these labels, in this order; one with a comma in "quotes"'
    )
    _add_picture(heatmap, "heatmap.png")
    add_json(heatmap)
    heatmap.set_defaults(run=_heatmap)

    label_map = add_verb(verbs, "map", "draw all labels in two dimensions, similar ones close together", MAP_EXAMPLES)
    label_map.add_argument(
        "space",
        type=existing("run folder or file"),
        metavar="RUN_OR_FILE",
        help="folder of a run, or a label space file",
    )
    _add_picture(label_map, "map.png")
    add_json(label_map)
    label_map.set_defaults(run=_map)


def _add_picture(parser: argparse.ArgumentParser, usual: str) -> None:
    text = f"picture to write, .png, .svg or .pdf (default: {usual} next to the labels; with --json none)"
    parser.add_argument("-o", "--out", type=a_path, metavar="FILE", help=text)


def _load(path: Path) -> "LabelSpace":
    """The label space of a run's folder, or in a file, also a table of similarities."""
    require_labels(path)
    with importing():
        from labelemb.lab.jobs.progress import print_line
        from labelemb.lab.runs.labels import load_space

    return load_space(path, warn=lambda message: print_line(f"labelemb: {message}"))


def _nearest(options: argparse.Namespace) -> int:
    space = _load(options.space)
    labels = [*options.labels, *_listed(options.list), *_frequent(options.space, space, options.frequent or 0)]
    if not labels:
        raise UserError(f"no label given: {_some_labels(space)}")
    nearest = {label: space.nearest(label, k=options.k, symmetric=options.symmetric) for label in dict.fromkeys(labels)}
    if options.json:
        print(json.dumps({label: [near._asdict() for near in neighbors] for label, neighbors in nearest.items()}))
    else:
        print(*nearest.values(), sep="\n")
        if _hardly_differ(space):
            print("(no pair of labels stands out: too little was learned to tell them apart)")
    return 0


def _hardly_differ(space: "LabelSpace") -> bool:
    """Whether no pair of labels stands out, by the check of the report page and the model card."""
    with importing():
        from labelemb.lab.report.labels import NEIGHBORS, likeness_range
        from labelemb.lab.report.model_card import PAIRS
        from labelemb.labelspace.neighbors import MOST_COMPARED_LABELS, neighbor_table
        from labelemb.labelspace.pairs import mutual_pairs

    if space.num_labels > MOST_COMPARED_LABELS:  # comparing all rows would take longer than the answer
        return False
    return likeness_range(mutual_pairs(neighbor_table(space, NEIGHBORS)), PAIRS) is not None


def _some_labels(space: "LabelSpace") -> str:
    """The labels where they are few; elsewhere some of them, and other ways to name labels."""
    names = [name for name in space.names if name not in space.specials]
    if len(names) <= FEW_LABELS:
        return f"name some of {quote_few(names, FEW_LABELS)}"
    return f"name some of the {len(names)} ({quote_few(names, 3)}), or use --list FILE or --frequent N"


def _listed(file: Path | None) -> list[str]:
    """The labels in a file, one a line."""
    with importing():
        from labelemb.lab.data.files import read_lines

    if file is None:
        return []
    return [line.strip() for line in read_lines(file) if line.strip()]


def _frequent(path: Path, space: "LabelSpace", count: int) -> list[str]:
    """The most frequent labels in a run's training; of a space alone, those that were observed right most often."""
    with importing():
        from labelemb.lab.runs.folder import RunFolder

    if not count:
        return []
    counts = RunFolder(path).label_counts()
    if counts is None and space.counts is not None:
        counts = space.counts.tolist()
    if counts is None:
        raise UserError(f"{path} does not say how often a label occurs: name labels instead of --frequent")
    order = sorted(range(len(counts)), key=[-times for times in counts].__getitem__)
    names = [space.names[number] for number in order if space.names[number] not in space.specials]
    return names[:count]


def _split_labels(text: str) -> list[str]:
    """Labels between commas; one that has a comma stands in double quotes."""
    return next(csv.reader([text]))


def _heatmap(options: argparse.Namespace) -> int:
    if options.labels is not None and not options.labels.strip(' ,"'):
        raise UserError("--labels names no label: write names with commas between them, or leave it out for all")
    _check_picture(options)
    with importing():
        from labelemb.lab.comparison.curves import plot_heatmap
        from labelemb.labelspace.pictures import heatmap_labels

    space = _load(options.space)
    out = _picture(options, "heatmap.png")
    shown = heatmap_labels(space, _split_labels(options.labels) if options.labels else None)
    if options.json:
        names, rows = [space.names[index] for index in shown], _rounded(space.matrix(shown).double())
        print(json.dumps({"labels": names, "matrix": rows}))
    if out is not None:
        with _picture_errors():
            plot_heatmap(space, out, shown if options.labels else None)
    if not options.json:
        part = "" if len(shown) == space.num_labels else f" ({len(shown)} of {space.num_labels} labels)"
        print(f"wrote {out}{part}")
    return 0


def _map(options: argparse.Namespace) -> int:
    _check_picture(options)
    with importing():
        from labelemb.lab.comparison.curves import plot_map
        from labelemb.labelspace.map import label_map

    space = _load(options.space)
    layout = label_map(space)
    if options.json:
        positions = dict(zip(space.names, _rounded(layout.positions), strict=True))
        print(json.dumps({"share": round(layout.share, DIGITS), "labels": positions}))
    out = _picture(options, "map.png")
    if out is None:
        return 0
    with _picture_errors():
        plot_map(layout, space.names, out)
    if not options.json:
        print(f"wrote {out} (two dimensions keep {100 * layout.share:.0f} % of the differences)")
    return 0


def _check_picture(options: argparse.Namespace) -> None:
    """Refuse, before anything slow is imported, a folder without labels and a file that is no picture."""
    require_labels(options.space)
    if options.out is not None and options.out.suffix.lower() not in PICTURES:
        raise UserError(f"{options.out} is not a picture file: name a .png, .svg or .pdf file after -o")


def _picture(options: argparse.Namespace, usual: str) -> Path | None:
    """The picture to write: beside the labels unless the user says where; a program that reads JSON wants none."""
    if options.out is not None or options.json:
        return cast("Path | None", options.out)
    folder: Path = options.space if options.space.is_dir() else options.space.parent
    return folder / usual


@contextmanager
def _picture_errors() -> Iterator[None]:
    """Turns matplotlib's error for a file name whose ending is no picture format into a user error."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error


def _rounded(values: "Tensor | np.ndarray") -> list[list[float]]:
    return values.round(decimals=DIGITS).tolist()

"""Small models and texts for the tests of sequence to sequence."""

from pathlib import Path
from typing import Any

import torch

from labelemb import PlainHead
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data import SequenceExamples
from labelemb.lab.data.pairs.sequences import Ragged
from labelemb.lab.data.pairs.vocabulary import SPECIALS
from labelemb.lab.methods.method import parse_method
from labelemb.lab.recipes.recipe import Recipe, load_recipe
from labelemb.lab.runs.loop import train_run
from labelemb.lab.tasks.beam import Symbols
from tests.helpers.tiny_data import color_pairs, write_pairs

SYMBOLS = Symbols(begin=1, end=2)


def make_model(
    source_size: int = 9, target_size: int = 7, seed: int = 0, sharpness: float = 4.0, **options: Any
) -> tuple[Seq2Seq, PlainHead]:
    """A random body and head whose predictions are far from even."""
    torch.manual_seed(seed)
    sizes = {"embedding_size": 6, "hidden_size": 8} | options
    body, head = Seq2Seq(source_size, target_size, **sizes), PlainHead(8, target_size)
    with torch.no_grad():
        for parameter in (*body.parameters(), *head.parameters()):
            parameter.mul_(sharpness)
    return body.eval(), head.eval()


def make_examples(source_lengths: list[int], target_lengths: list[int], labels: int = 7) -> SequenceExamples:
    """Random pairs of these lengths; a target's length counts its end symbol."""
    generator = torch.Generator().manual_seed(5)

    def draw(lengths: list[int], end: bool) -> Ragged:
        rows = [torch.randint(len(SPECIALS), labels, (length,), generator=generator) for length in lengths]
        values = torch.cat(rows).int()
        starts = torch.tensor([0, *lengths]).cumsum(0)
        if end:
            values[starts[1:] - 1] = SYMBOLS.end
        return Ragged(values, starts)

    return SequenceExamples(draw(source_lengths, False), draw(target_lengths, True), SYMBOLS.begin)


TEXT_METHOD = "label-embedding@authors-text+soft_start=0.38"
"""As the recipes of the paper train texts."""


def write_colors(folder: Path) -> Path:
    """Twenty phrases, which are training, development and test set in one."""
    return write_pairs(folder, ["all"], ("en", "de"), color_pairs())


def color_recipe(*overrides: str) -> Recipe:
    """A small body on the twenty phrases."""
    files = [f'data.{part}_files=["all"]' for part in ("train", "dev", "test")]
    sizes = ["body.embedding_size=16", "body.hidden_size=32", "head.rank=8", "decode.max_length=8", "decode.beam=3"]
    training = ["train.batch_size=5", "train.lr=0.01", "train.epochs=2", "body.dropout=0.0", "data.min_count=1"]
    return load_recipe("multi30k-en-de-small", [*files, *sizes, *training, *overrides])


def color_run(
    out: Path, data: Path, *overrides: str, method: str = TEXT_METHOD, seed: int = 0, **arguments: Any
) -> dict[str, Any]:
    return train_run(color_recipe(*overrides), parse_method(method), seed, data, out, **arguments)

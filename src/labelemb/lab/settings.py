"""The settings of a recipe: what each key means, its default, and the values it takes.

One dataclass is one table of the TOML file. `setting` keeps the documentation and the limits beside the field, so that
the reader, the errors and the comments of a written recipe all come from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DATA_KINDS = ("digits", "idx", "cifar10", "cifar100", "image_folder", "text_table")
BODY_KINDS = ("mlp", "cnn", "resnet8", "resnet18", "embedding_bag")
OBJECTIVES = ("default", "paper", "authors_vision", "authors_text", "recommended")


def setting(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    changes_result: bool = True,
) -> Any:
    """A documented field. `changes_result=False` leaves the key out of the recipe's fingerprint."""
    limits = {"choices": choices, "at_least": at_least, "above": above, "below": below}
    metadata = {"help": help, "changes_result": changes_result, **limits}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DataSettings:
    """Which data, how it is split, and what is done to it."""

    kind: str = setting("digits", "what the data is", choices=DATA_KINDS)
    folders: tuple[str, ...] = setting(
        (), "folders looked for inside the data folder, in this order", changes_result=False
    )
    dev_size: float = setting(
        0.0, "training examples held out for development: a count, a share below 1, or 0 for none", at_least=0
    )
    test_size: float = setting(0.1, "the same for testing, where the data brings no test set of its own", at_least=0)
    split_seed: int = setting(
        -1, "seed of a random split; -1 takes the seed of the run, so that every run draws its own split", at_least=-1
    )
    max_per_label: int = setting(
        0, "training examples kept per label (0 keeps all), the same ones in every run", at_least=0
    )
    num_labels: int = setting(10, "idx files: how many labels there are", at_least=2)
    label_names: tuple[str, ...] = setting((), "idx files: names in the order of the labels; empty for 0, 1, 2, ...")
    mean: tuple[float, ...] = setting((), "images: mean of each channel, on pixels from 0 to 1; empty for 0")
    std: tuple[float, ...] = setting((), "images: standard deviation of each channel; empty for 1")
    augment: str = setting(
        "none",
        "images: crop_flip pads by 4, crops at random and mirrors half of the images",
        choices=("none", "crop_flip"),
    )
    image_size: int = setting(32, "image folders: every image becomes a square of this many pixels", at_least=4)
    grayscale: bool = setting(False, "image folders: one channel in place of three")
    skip_corrupt: bool = setting(False, "image folders: leave out files that cannot be read; false stops at the first")
    text_column: str = setting("text", "text tables: the column with the text")
    label_column: str = setting("label", "text tables: the column with the label")
    split_column: str = setting("", "text tables: the column that says train, dev or test; empty for none")
    ngrams: int = setting(2, "text tables: the longest run of words that counts as a feature", at_least=1)
    vocabulary: int = setting(
        50_000, "text tables: at most this many words and word runs, the frequent ones", at_least=1
    )
    min_count: int = setting(1, "text tables: leave out runs of several words that are rarer in training", at_least=1)


@dataclass(frozen=True)
class BodySettings:
    """The network up to the hidden state."""

    kind: str = setting("mlp", "the network", choices=BODY_KINDS)
    hidden: tuple[int, ...] = setting((500, 500), "sizes of the fully connected hidden layers", at_least=1)
    width: float = setting(1.0, "multiplies the channels of cnn, resnet8 and resnet18", above=0)
    embedding_size: int = setting(256, "embedding_bag: size of a word vector", at_least=1)
    dropout: float = setting(0.0, "share of hidden units dropped while training", at_least=0, below=1)
    init: str = setting(
        "torch",
        "initial weights: torch's own, or truncated_normal with zero biases",
        choices=("torch", "truncated_normal"),
    )
    init_std: float = setting(0.1, "standard deviation for truncated_normal", above=0)


@dataclass(frozen=True)
class HeadSettings:
    """What comes after the hidden state, as far as a method has a use for it."""

    objective: str = setting("default", "preset of label embedding's objective", choices=OBJECTIVES)
    overrides: Mapping[str, Any] = setting({}, "single fields of the objective in place of the preset's, as tau = 1.0")
    rank: int = setting(0, "rank of a compressed embedding; 0 for a dense one", at_least=0)
    init_std: float = setting(
        0.0, "output layers: standard deviation of a truncated normal, zero biases; 0 for torch's own", at_least=0
    )
    impl: str = setting("auto", "implementation of the objective", choices=("auto", "reference", "chunked"))


@dataclass(frozen=True)
class TrainSettings:
    """The optimisation."""

    epochs: int = setting(15, "passes over the training data", at_least=1)
    batch_size: int = setting(100, "examples in an update", at_least=1)
    optimizer: str = setting("adam", "the optimiser", choices=("adam", "adamw", "sgd"))
    lr: float = setting(0.001, "learning rate", above=0)
    embedding_lr: float = setting(0.0, "learning rate of a learned label embedding; 0 for the same as lr", at_least=0)
    weight_decay: float = setting(0.0, "weight decay, never on a label embedding", at_least=0)
    momentum: float = setting(0.9, "sgd: momentum", at_least=0, below=1)
    schedule: str = setting(
        "constant",
        "learning rate over time: linear and cosine fall to 0, step multiplies by step_factor",
        choices=("constant", "linear", "cosine", "step"),
    )
    step_every: int = setting(40, "step: epochs between two steps", at_least=1)
    step_factor: float = setting(0.2, "step: what the learning rate is multiplied by", above=0)
    clip_norm: float = setting(0.0, "largest norm of the gradient; 0 for no limit", at_least=0)
    evaluations_per_epoch: int = setting(1, "evaluations in an epoch", at_least=1)
    dev: bool = setting(False, "report the test error at the best development error; false: at the last epoch")
    accumulate: int = setting(1, "parts a batch is split into to save memory", at_least=1)
    precision: str = setting(
        "32", "number format", choices=("32", "64", "16-mixed", "bf16-mixed", "16-true", "bf16-true")
    )
    device: str = setting("auto", "where to compute", choices=("auto", "cpu", "cuda"), changes_result=False)

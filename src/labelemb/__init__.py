"""labelemb: soft-label training for PyTorch.

Replace a network's last linear layer and its cross entropy by one `LabelEmbeddingHead`, and train.
"""

from labelemb.attach import attach, predictor_only
from labelemb.embedding import CompressedEmbedding, DenseEmbedding, FixedEmbedding, LabelEmbedding
from labelemb.heads import (
    ConfidencePenaltyHead,
    FlatTargetHead,
    Head,
    HeadOutput,
    LabelEmbeddingHead,
    OnlineSmoothingHead,
    PlainHead,
    SingleOutputHead,
    TeacherFreeHead,
)
from labelemb.labelspace import LabelSpace, LabelSpaceError
from labelemb.objective import Objective
from labelemb.running import RunningEmbedding
from labelemb.soft_target_loss import SoftTargetLoss
from labelemb.temperature import fit_temperature
from labelemb.terms import LossTerms, label_embedding_loss
from labelemb.version import __version__

__all__ = [
    "CompressedEmbedding",
    "ConfidencePenaltyHead",
    "DenseEmbedding",
    "FixedEmbedding",
    "FlatTargetHead",
    "Head",
    "HeadOutput",
    "LabelEmbedding",
    "LabelEmbeddingHead",
    "LabelSpace",
    "LabelSpaceError",
    "LossTerms",
    "Objective",
    "OnlineSmoothingHead",
    "PlainHead",
    "RunningEmbedding",
    "SingleOutputHead",
    "SoftTargetLoss",
    "TeacherFreeHead",
    "__version__",
    "attach",
    "fit_temperature",
    "label_embedding_loss",
    "predictor_only",
]

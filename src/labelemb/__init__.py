"""labelemb: soft-label training for PyTorch.

Replace a network's last linear layer and its cross entropy by one `LabelEmbeddingHead`, and train.
"""

from labelemb.embeddings.base import LabelEmbedding
from labelemb.embeddings.compressed import CompressedEmbedding
from labelemb.embeddings.dense import DenseEmbedding
from labelemb.embeddings.fixed import FixedEmbedding
from labelemb.embeddings.running import RunningEmbedding
from labelemb.heads import (
    ConfidencePenaltyHead,
    Head,
    HeadOutput,
    LabelEmbeddingHead,
    OnlineSmoothingHead,
    PlainHead,
    TeacherFreeHead,
)
from labelemb.heads.attach import attach, predictor_only
from labelemb.heads.calibration import fit_temperature
from labelemb.labelspace import LabelSpace, LabelSpaceError
from labelemb.losses.objective import Objective
from labelemb.losses.soft_target import SoftTargetLoss
from labelemb.losses.terms import LossTerms, label_embedding_loss
from labelemb.support.version import __version__

__all__ = [
    "CompressedEmbedding",
    "ConfidencePenaltyHead",
    "DenseEmbedding",
    "FixedEmbedding",
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
    "SoftTargetLoss",
    "TeacherFreeHead",
    "__version__",
    "attach",
    "fit_temperature",
    "label_embedding_loss",
    "predictor_only",
]

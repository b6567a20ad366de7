"""labelemb: soft-label training for PyTorch.

Replace a network's last linear layer and its cross entropy by one `LabelEmbeddingHead`, and train.

The public names are loaded when they are first used: `import labelemb` alone does not import torch.
"""

from typing import TYPE_CHECKING

from labelemb.support.lazy import lazy_names

if TYPE_CHECKING:
    from labelemb.embeddings.base import LabelEmbedding as LabelEmbedding
    from labelemb.embeddings.compressed import CompressedEmbedding as CompressedEmbedding
    from labelemb.embeddings.dense import DenseEmbedding as DenseEmbedding
    from labelemb.embeddings.fixed import FixedEmbedding as FixedEmbedding
    from labelemb.embeddings.running import RunningEmbedding as RunningEmbedding
    from labelemb.findings.arrays import audit as audit
    from labelemb.findings.result import Audit as Audit
    from labelemb.heads.attach import attach as attach
    from labelemb.heads.attach import predictor_only as predictor_only
    from labelemb.heads.base import Head as Head
    from labelemb.heads.base import HeadOutput as HeadOutput
    from labelemb.heads.calibration import fit_temperature as fit_temperature
    from labelemb.heads.confidence_penalty import ConfidencePenaltyHead as ConfidencePenaltyHead
    from labelemb.heads.label_embedding import LabelEmbeddingHead as LabelEmbeddingHead
    from labelemb.heads.online_smoothing import OnlineSmoothingHead as OnlineSmoothingHead
    from labelemb.heads.parameters import parameter_groups as parameter_groups
    from labelemb.heads.plain import PlainHead as PlainHead
    from labelemb.heads.sharded.head import ShardedLabelEmbeddingHead as ShardedLabelEmbeddingHead
    from labelemb.heads.teacher_free import TeacherFreeHead as TeacherFreeHead
    from labelemb.labelspace.errors import LabelSpaceError as LabelSpaceError
    from labelemb.labelspace.errors import UnknownLabelError as UnknownLabelError
    from labelemb.labelspace.neighbors import Neighbors as Neighbors
    from labelemb.labelspace.space import LabelSpace as LabelSpace
    from labelemb.losses.objective import Objective as Objective
    from labelemb.losses.result import LossTerms as LossTerms
    from labelemb.losses.soft_target import SoftTargetLoss as SoftTargetLoss
    from labelemb.losses.terms import label_embedding_loss as label_embedding_loss
    from labelemb.support.version import __version__ as __version__

HOMES = {
    "Audit": "labelemb.findings.result",
    "CompressedEmbedding": "labelemb.embeddings.compressed",
    "ConfidencePenaltyHead": "labelemb.heads.confidence_penalty",
    "DenseEmbedding": "labelemb.embeddings.dense",
    "FixedEmbedding": "labelemb.embeddings.fixed",
    "Head": "labelemb.heads.base",
    "HeadOutput": "labelemb.heads.base",
    "LabelEmbedding": "labelemb.embeddings.base",
    "LabelEmbeddingHead": "labelemb.heads.label_embedding",
    "LabelSpace": "labelemb.labelspace.space",
    "LabelSpaceError": "labelemb.labelspace.errors",
    "LossTerms": "labelemb.losses.result",
    "Neighbors": "labelemb.labelspace.neighbors",
    "Objective": "labelemb.losses.objective",
    "OnlineSmoothingHead": "labelemb.heads.online_smoothing",
    "PlainHead": "labelemb.heads.plain",
    "RunningEmbedding": "labelemb.embeddings.running",
    "ShardedLabelEmbeddingHead": "labelemb.heads.sharded.head",
    "SoftTargetLoss": "labelemb.losses.soft_target",
    "TeacherFreeHead": "labelemb.heads.teacher_free",
    "UnknownLabelError": "labelemb.labelspace.errors",
    "__version__": "labelemb.support.version",
    "attach": "labelemb.heads.attach",
    "audit": "labelemb.findings.arrays",
    "fit_temperature": "labelemb.heads.calibration",
    "label_embedding_loss": "labelemb.losses.terms",
    "parameter_groups": "labelemb.heads.parameters",
    "predictor_only": "labelemb.heads.attach",
}
"""The module of each public name."""

__all__ = list(HOMES)
if not TYPE_CHECKING:  # so that type checkers know the names above and no others
    __getattr__, __dir__ = lazy_names(__name__, HOMES)

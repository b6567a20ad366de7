"""Heads: everything after a network's hidden state, all with the same call."""

from labelemb.heads.base import Head, HeadOutput
from labelemb.heads.confidence_penalty import ConfidencePenaltyHead
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.heads.online_smoothing import OnlineSmoothingHead
from labelemb.heads.plain import PlainHead
from labelemb.heads.teacher_free import TeacherFreeHead

__all__ = [
    "ConfidencePenaltyHead",
    "Head",
    "HeadOutput",
    "LabelEmbeddingHead",
    "OnlineSmoothingHead",
    "PlainHead",
    "TeacherFreeHead",
]

"""Heads: everything after a network's hidden state, all with the same call."""

from labelemb.heads.base import Head, HeadOutput
from labelemb.heads.controls import FlatTargetHead, SingleOutputHead
from labelemb.heads.label_embedding import LabelEmbeddingHead
from labelemb.heads.peers import ConfidencePenaltyHead, OnlineSmoothingHead, PlainHead, TeacherFreeHead

__all__ = [
    "ConfidencePenaltyHead",
    "FlatTargetHead",
    "Head",
    "HeadOutput",
    "LabelEmbeddingHead",
    "OnlineSmoothingHead",
    "PlainHead",
    "SingleOutputHead",
    "TeacherFreeHead",
]

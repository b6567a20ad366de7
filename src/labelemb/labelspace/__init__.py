"""`LabelSpace`: the learned similarities of labels, without the training, with queries, files and pictures."""

from labelemb.labelspace.errors import LabelSpaceError, UnknownLabelError
from labelemb.labelspace.neighbors import Neighbor, Neighbors
from labelemb.labelspace.space import LabelSpace

__all__ = ["LabelSpace", "LabelSpaceError", "Neighbor", "Neighbors", "UnknownLabelError"]

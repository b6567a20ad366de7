"""What was learned about labels, detached from training: `LabelSpace`, its questions, files and pictures."""

from labelemb.labelspace.errors import LabelSpaceError, UnknownLabelError
from labelemb.labelspace.neighbors import Neighbor, Neighbors
from labelemb.labelspace.space import LabelSpace

__all__ = ["LabelSpace", "LabelSpaceError", "Neighbor", "Neighbors", "UnknownLabelError"]

"""What a label embedding learned: `LabelSpace`, its file format and its exports."""

from labelemb.labelspace.errors import LabelSpaceError, UnknownLabelError
from labelemb.labelspace.neighbors import Neighbor, Neighbors
from labelemb.labelspace.space import LabelSpace

__all__ = ["LabelSpace", "LabelSpaceError", "Neighbor", "Neighbors", "UnknownLabelError"]

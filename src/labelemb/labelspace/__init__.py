"""What a label embedding learned: `LabelSpace`, its file format and its exports."""

from .errors import LabelSpaceError, UnknownLabelError
from .neighbors import Neighbor, Neighbors
from .space import LabelSpace

__all__ = ["LabelSpace", "LabelSpaceError", "Neighbor", "Neighbors", "UnknownLabelError"]

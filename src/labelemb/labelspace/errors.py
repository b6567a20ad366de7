"""Errors of label spaces, each with a message of one line."""

from labelemb.support.errors import UserError


class LabelSpaceError(UserError, ValueError):
    """Raised if a label space cannot be made, read or written; the message names the value and what to do."""


class UnknownLabelError(LabelSpaceError, KeyError):
    """Raised for a name or index that is not in the label space."""

    # KeyError prints the repr of its argument, which would put quotes around the whole sentence.
    __str__ = ValueError.__str__

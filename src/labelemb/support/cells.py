"""Escapes CSV cells that a spreadsheet would execute as formulas."""

EXECUTED = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet read a cell as a formula when it comes first."""


def defused(text: str) -> str:
    """A text as a cell that no spreadsheet takes for a formula."""
    harmless = text.replace("\0", "")
    # an apostrophe more before those that are there, so that `restored` takes away only what was added
    return f"'{harmless}" if harmless.lstrip(" '").startswith(EXECUTED) else harmless


def restored(cell: str) -> str:
    """The text of which `defused` made this cell."""
    return cell[1:] if cell.startswith("'") and cell.lstrip(" '").startswith(EXECUTED) else cell

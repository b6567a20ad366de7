"""Plain text files, a text a line."""

from pathlib import Path

from labelemb.lab.data.tables import read_text
from labelemb.support.errors import UserError


def read_lines(path: Path) -> list[str]:
    """The lines of a file in UTF-8, packed or not. Only line feeds end a line: other separators belong to the text."""
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} is empty")
    return split_lines(text)


def split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """The pairs of two files, line by line."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise UserError(
            f"{source} has {len(sources)} lines and {target} has {len(targets)}: line by line they must belong together"
        )
    return list(zip(sources, targets, strict=True))

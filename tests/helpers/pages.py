"""The pages of the repository, and the code blocks in them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "results/README.md",
    *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^(?P<mark><!-- run -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block. `marked`: the page has <!-- run --> above it, its commands are small and really run."""

    language: str
    code: str
    line: int
    marked: bool

    @property
    def is_shell(self) -> bool:
        return self.language in ("sh", "bash")

    def commands(self) -> list[str]:
        """The commands of a shell block, without comments and with continued lines joined."""
        lines = (line.partition("  #")[0].strip() for line in self.code.replace("\\\n", " ").splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    text = text_of(page)
    return [
        Block(found["language"], found["code"], text.count("\n", 0, found.start("code")), found["mark"] is not None)
        for found in BLOCK.finditer(text)
    ]


def words_of(command: str) -> list[str]:
    """The words of the first program of a command line: no variables before it, no pipes and redirections."""
    words = shlex.split(command)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    ends = [place for place, word in enumerate(words) if word in ("|", ">", "<", "&&")]
    return words[: ends[0]] if ends else words


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say after its #."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

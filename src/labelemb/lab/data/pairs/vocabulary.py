"""The vocabulary of one side of text pairs: its words, their numbers, and the special symbols."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from labelemb.lab.data.files import read_lines
from labelemb.support.errors import UserError

UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
SPECIALS = (UNKNOWN, BEGIN, END)
"""A word outside the vocabulary, and the start and end of a text. Padding needs no symbol: it is never a label."""


class WordVocabulary:
    """Words in the order of their numbers."""

    def __init__(self, words: Sequence[str], source: str = "the vocabulary") -> None:
        self.words = list(words)
        self.numbers = {word: number for number, word in enumerate(self.words)}
        if len(self.numbers) < len(self.words):
            repeated = Counter(self.words).most_common(1)[0][0]
            raise UserError(f"{source} has the word {repeated!r} more than once")
        missing = [special for special in SPECIALS if special not in self.numbers]
        if missing:
            raise UserError(f"{source} lacks the special symbol {missing[0]}: put {', '.join(SPECIALS)} into it")
        self.unknown, self.begin, self.end = (self.numbers[special] for special in SPECIALS)

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def from_counts(cls, counts: Counter[str], limit: int, min_count: int) -> "WordVocabulary":
        """The special symbols, then words that occur at least `min_count` times, the frequent ones first."""
        if limit <= len(SPECIALS):
            raise UserError(
                f"a vocabulary of {limit} has no room for a word beside {', '.join(SPECIALS)}: raise data.vocabulary "
                "or data.source_vocabulary"
            )
        kept = sorted((-count, word) for word, count in counts.items() if count >= min_count and word not in SPECIALS)
        if not kept:
            raise UserError(f"no word occurs {min_count} times in the training text: lower data.min_count")
        return cls([*SPECIALS, *(word for _, word in kept[: limit - len(SPECIALS)])])

    @classmethod
    def from_file(cls, path: Path) -> "WordVocabulary":
        """One word a line, the special symbols among them."""
        return cls([word for word in read_lines(path) if word], str(path))

    def encode(self, words: Iterable[str]) -> "array[int]":
        unknown = self.unknown
        return array("i", (self.numbers.get(word, unknown) for word in words))

    def decode(self, numbers: Iterable[int]) -> list[str]:
        return [self.words[number] for number in numbers]

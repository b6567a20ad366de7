"""`Vocabulary`: word n-grams as features, and their numbers in a text."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from labelemb.support.errors import UserError

TOKEN = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Lower-cased words and punctuation marks."""
    return TOKEN.findall(text.lower())


class Vocabulary:
    """The n-grams of 1 to `longest` words that count as features. No hashing: what a feature is stays readable."""

    def __init__(self, features: Sequence[str], longest: int) -> None:
        self.features = list(features)
        self.longest = longest
        self._numbers = {feature: number for number, feature in enumerate(self.features)}

    @classmethod
    def from_texts(cls, texts: Iterable[str], longest: int, limit: int, min_count: int) -> "Vocabulary":
        """All words, and longer n-grams that occur at least `min_count` times; of these the `limit` most frequent."""
        counts = Counter(ngram for text in texts for ngram in _ngrams(text, longest))
        kept = [(-count, ngram) for ngram, count in counts.items() if count >= min_count or " " not in ngram]
        if not kept:
            raise UserError("the training texts hold no words")
        return cls([ngram for _, ngram in sorted(kept)[:limit]], longest)

    def encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Feature numbers of all texts one after the other, and where each text starts (one more than texts).

        N-grams outside the vocabulary are left out.
        """
        features: list[int] = []
        starts = [0]
        for text in texts:
            features += [self._numbers[ngram] for ngram in _ngrams(text, self.longest) if ngram in self._numbers]
            starts.append(len(features))
        return torch.tensor(features, dtype=torch.long), torch.tensor(starts, dtype=torch.long)


def _ngrams(text: str, longest: int) -> list[str]:
    words = split_words(text)
    return [
        " ".join(words[start : start + length])
        for length in range(1, longest + 1)
        for start in range(len(words) - length + 1)
    ]

"""Lines in, lines out: generating text with a trained run, in the order of the input."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from labelemb.lab.tasks.beam import Hypothesis, SearchOptions
from labelemb.lab.trained.model import TrainedModel
from labelemb.support.errors import UserError

LONGEST_SOURCE = 5000
"""Words of a line, at most: a whole book in one line is a mistake, and would take memory accordingly."""
LINES_AT_ONCE = 2048
"""Lines read before some are written: they are searched by length."""


@dataclass(frozen=True)
class Translated:
    """One hypothesis of a line: text, score, and for each of its words the source word, from 0, that was looked at."""

    text: str
    score: float
    alignment: list[int]


class Translator:
    """The model of a finished run that learned to generate text."""

    def __init__(self, run: Path) -> None:
        model = TrainedModel(run)
        self.generator = model.generator()
        self.temperature = model.temperature
        self.settings = model.recipe.decode

    def translate(
        self,
        lines: Iterable[str],
        options: SearchOptions,
        replace_unknown: bool | None = None,
        batch_size: int | None = None,
        lines_at_once: int = LINES_AT_ONCE,
    ) -> Iterator[list[Translated]]:
        """The best hypotheses of each line; an empty line has one, which is empty."""
        options.check(len(self.generator.encoder.target))
        replacing = self.settings.replace_unknown if replace_unknown is None else replace_unknown
        numbered = enumerate(lines, 1)
        while part := list(islice(numbered, lines_at_once)):
            sources = [self._source(number, line) for number, line in part]
            filled = [source for source in sources if source]
            found = iter(self._search(filled, options, batch_size))
            for source in sources:
                if not source:
                    yield [Translated("", 0.0, [])]
                    continue
                yield [self._translated(hypothesis, source, replacing) for hypothesis in next(found)]

    def _source(self, number: int, line: str) -> list[str]:
        words = self.generator.encoder.source_units(line)
        if len(words) > LONGEST_SOURCE:
            raise UserError(
                f"line {number} of the input has {len(words)} words, at most {LONGEST_SOURCE} are read: split it"
            )
        return words

    def _search(
        self, sources: list[list[str]], options: SearchOptions, batch_size: int | None
    ) -> list[list[Hypothesis]]:
        if not sources:
            return []
        return self.generator.search(self.generator.encoder.encode_sources(sources), options, batch_size)

    def _translated(self, hypothesis: Hypothesis, source: list[str], replacing: bool) -> Translated:
        words = self.generator.words(hypothesis, source, replacing)
        return Translated(self.generator.encoder.units.join(words), hypothesis.score, hypothesis.attention)

    def search_options(self, **changes: Any) -> SearchOptions:
        """The recipe's way to search with calibrated probabilities, and fields changed that are given and not None."""
        beam = min(self.settings.beam, len(self.generator.encoder.target))
        usual = SearchOptions(beam, self.settings.max_length, temperature=self.temperature)
        return dataclasses.replace(usual, **{name: value for name, value in changes.items() if value is not None})

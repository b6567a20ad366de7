"""Splits a line of text into the units of a model (words, characters or word pieces), and joins them again."""

import base64
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from labelemb.lab.recipes.settings import TextPairData
from labelemb.support.errors import UserError
from labelemb.support.optional import import_optional

SPACE = "▁"
"""Replaces a space where characters or word pieces are the units."""
MARKED = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TextUnits:
    """Splits lines into words, characters or pieces of words. `pieces` is a SentencePiece model in base64."""

    unit: str = "word"
    lower: bool = False
    split_marks: bool = False
    pieces: str = ""

    @classmethod
    def learned(cls, settings: TextPairData, lines: Iterable[str]) -> "TextUnits":
        """The units that the settings name; word pieces are learned from the training lines."""
        units = cls(settings.unit, settings.lower, settings.split_marks)
        if settings.unit != "sentencepiece":
            return units
        pieces = _learn_pieces((units.normalised(line) for line in lines), settings.vocabulary)
        return cls(settings.unit, settings.lower, settings.split_marks, pieces)

    def to_dict(self) -> dict[str, Any]:
        return {"unit": self.unit, "lower": self.lower, "split_marks": self.split_marks, "pieces": self.pieces}

    def normalised(self, line: str) -> str:
        """The line as it is split: lower-cased, marks apart, as the settings say."""
        if self.lower:
            line = line.lower()
        if self.split_marks:
            # a letter with its accents as one sign: apart, the accents would count as marks
            line = " ".join(MARKED.findall(unicodedata.normalize("NFC", line)))
        return line

    def split(self, line: str) -> list[str]:
        words = self.normalised(line).split()
        if self.unit == "word":
            return words
        if self.unit == "char":
            return list(SPACE.join(words))
        return self._model.encode(" ".join(words), out_type=str)

    def join(self, units: Iterable[str]) -> str:
        """Join units to a text for people."""
        if self.unit == "word":
            return " ".join(units)
        return "".join(units).replace(SPACE, " ").strip()

    def scored(self, units: Iterable[str]) -> str:
        """Join units to a text for scores, which count what spaces separate."""
        if self.unit == "char":
            return " ".join(unit for unit in units if unit != SPACE)
        return self.join(units)

    @cached_property
    def _model(self) -> Any:
        return _sentencepiece().SentencePieceProcessor(model_proto=base64.b64decode(self.pieces))


def _sentencepiece() -> Any:
    return import_optional("sentencepiece", "data.unit = sentencepiece", extra="sentencepiece")


def _learn_pieces(lines: Iterable[str], size: int) -> str:
    model = io.BytesIO()
    try:
        _sentencepiece().SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,  # a small text has fewer pieces than asked for
            character_coverage=1.0,
            num_threads=1,  # the same pieces in every run
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[-1]
        raise UserError(f"no word pieces can be learned (data.vocabulary = {size}): {reason}") from error
    return base64.b64encode(model.getvalue()).decode()

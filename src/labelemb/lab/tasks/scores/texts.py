"""Scores of generated texts in percent: BLEU and chrF by sacrebleu, ROUGE by rouge-score."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from labelemb.lab.data.pairs.vocabulary import UNKNOWN
from labelemb.support.optional import import_optional

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
LONGEST_NGRAM = 4
"""In tokens, of BLEU."""
TOKEN = re.compile(rf"{UNKNOWN}|[{HAN}]|[^\W{HAN}]+|[^\w\s]")


class CharacterTokens:
    """A tokenizer for ROUGE: Chinese characters one by one, words of other scripts whole, marks one by one,
    the symbol of an unknown word whole.

    rouge-score's own keeps only a to z and 0 to 9, so that nothing would be left of a Chinese text.
    """

    def tokenize(self, text: str) -> list[str]:
        return TOKEN.findall(text.lower())


@dataclass(frozen=True)
class GeneratedScores:
    """Scores of generated texts, in percent; the length ratio is their words over the words of the references."""

    bleu: float
    length_ratio: float
    chrf: float
    rouge1: float
    rouge2: float
    rougeL: float
    exact: float
    """Texts that are the reference, word by word."""
    bleu_signature: str
    """sacrebleu's description of how BLEU was computed; `order` is the longest n-gram, if it is not four tokens."""


def score_texts(hypotheses: Sequence[str], references: Sequence[str]) -> GeneratedScores:
    """All scores of texts whose tokens are separated by spaces, as the paper scores them.

    BLEU counts n-grams of up to four tokens, or up to the length of the longest reference if that is shorter: without
    a single n-gram of four tokens to find, the usual BLEU is 0 even for perfect texts.
    """
    sacrebleu = _import("sacrebleu")
    order = min(LONGEST_NGRAM, max((len(text.split()) for text in references), default=LONGEST_NGRAM)) or 1
    bleu = sacrebleu.BLEU(tokenize="none", force=True, max_ngram_order=order)
    chrf = sacrebleu.CHRF()
    found = bleu.corpus_score(list(hypotheses), [list(references)])
    exact = sum(one == other for one, other in zip(hypotheses, references, strict=True))
    return GeneratedScores(
        bleu=found.score,
        length_ratio=found.sys_len / max(1, found.ref_len),
        chrf=chrf.corpus_score(list(hypotheses), [list(references)]).score,
        **rouge(hypotheses, references),
        exact=100.0 * exact / max(1, len(references)),
        bleu_signature=str(bleu.get_signature()) + (f"|order:{order}" if order < LONGEST_NGRAM else ""),
    )


def rouge(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Mean F-measure of ROUGE-1, ROUGE-2 and ROUGE-L."""
    scorer = _rouge_scorer()
    totals = {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for name, found in scorer.score(reference, hypothesis).items():
            totals[name] += found.fmeasure
    return {name: 100.0 * total / max(1, len(references)) for name, total in totals.items()}


@cache
def _rouge_scorer() -> Any:
    return _import("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"], tokenizer=CharacterTokens())


def _import(module: str) -> Any:
    return import_optional(module, "scoring texts", extra="text")

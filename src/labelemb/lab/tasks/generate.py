"""Texts from a trained model: sources in, words out, in the order they came."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch

from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.data import PairEncoder, SequenceExamples
from labelemb.lab.tasks.beam import Hypothesis, SearchOptions, Symbols, search
from labelemb.lab.tasks.model import Classifier
from labelemb.support.tensors import evaluating

OPEN_HYPOTHESES = 640
"""Searched at once, over all sentences of a batch: their logits must fit into memory."""
MOST_SENTENCES = 256


class TextGenerator:
    """Searches with a model's body and predictor."""

    def __init__(self, classifier: Classifier, encoder: PairEncoder, device: torch.device) -> None:
        self.classifier, self.encoder, self.device = classifier, encoder, device
        self.body = cast(Seq2Seq, classifier.body)
        self.symbols = Symbols(encoder.target.begin, encoder.target.end)

    def search(
        self, examples: SequenceExamples, options: SearchOptions, batch_size: int | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, the best first."""
        options.check(len(self.encoder.target))
        size = batch_size or max(1, min(MOST_SENTENCES, OPEN_HYPOTHESES // options.beam))
        found: list[list[Hypothesis]] = [[] for _ in range(len(examples))]
        with evaluating(self.classifier):
            for index in examples.batches(size, None):
                source, lengths = examples.source_batch(index)
                hypotheses = search(
                    self.body,
                    self.classifier.head,
                    source.to(self.device),
                    lengths.to(self.device),
                    self.symbols,
                    options,
                )
                for place, best in zip(index.tolist(), hypotheses, strict=True):
                    # nothing was allowed to end: only constraints that contradict each other do that
                    found[place] = best or [Hypothesis([], -torch.inf, -torch.inf, [])]
        return found

    def words(self, hypothesis: Hypothesis, source: list[str], replace_unknown: bool) -> list[str]:
        """The words of a hypothesis; an unknown one may become the source word that the attention looked at."""
        target = self.encoder.target
        words = target.decode(hypothesis.words)
        if not replace_unknown:
            return words
        return [
            source[place] if number == target.unknown else word
            for number, word, place in zip(hypothesis.words, words, hypothesis.attention, strict=True)
        ]

    def scored_texts(self, examples: SequenceExamples, options: SearchOptions, replace_unknown: bool) -> Iterator[str]:
        """The best text of each source, in the form that scores count."""
        found = self.search(examples, replace(options, n_best=1))
        for (best, *_), source in zip(found, examples.source_words, strict=True):
            yield self.encoder.units.scored(self.words(best, source, replace_unknown))

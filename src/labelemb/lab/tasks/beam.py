"""Beam search, vectorised over the sentences of a batch and the hypotheses of each.

A sentence has `beam` slots. In each step the best continuations of its hypotheses fill the open slots; a hypothesis
that ends closes its slot. With a beam of 1 that is greedy search. The search of a sentence ends when no slot is open,
or when no open hypothesis can become better than those that have ended; the sentence then leaves the batch. A
sentence's search depends neither on the other sentences nor on how many hypotheses are asked for.

The score of a hypothesis is log p(words, end) / ((5 + n) / 6)^a with n the number of words and the end symbol, and a
the length penalty: 0 takes the log-probability as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from labelemb import Head
from labelemb.lab.bodies.seq2seq import Memory, Seq2Seq, State
from labelemb.lab.data import PairEncoder, SequenceExamples
from labelemb.lab.tasks.model import Classifier
from labelemb.support.errors import UserError
from labelemb.support.tensors import evaluating

OPEN_HYPOTHESES = 640
"""Searched at once, over all sentences of a batch: their logits must fit into memory."""
MOST_SENTENCES = 256


@dataclass(frozen=True)
class SearchOptions:
    """How to search."""

    beam: int = 1
    max_length: int = 50
    """Words at most: after them only the end may follow."""
    min_length: int = 0
    length_penalty: float = 0.0
    no_repeat_ngram: int = 0
    """No run of this many words twice in a text; 0 allows it."""
    n_best: int = 1
    temperature: float = 1.0
    """Logits are divided by it. Soft targets make a predictor underconfident, and every word then costs so much that
    short texts win; a fitted temperature takes that back."""

    def check(self, num_labels: int) -> None:
        """Refuse what cannot be searched."""
        if self.beam > num_labels:
            raise UserError(f"a beam of {self.beam} is wider than the vocabulary of {num_labels} words")
        if self.n_best > self.beam:
            raise UserError(
                f"{self.n_best} best hypotheses need a beam of as many: the beam is {self.beam}, "
                f"pass --beam {self.n_best}"
            )
        if self.min_length > self.max_length:
            raise UserError(f"the least length {self.min_length} is above the greatest, {self.max_length}")


@dataclass(frozen=True)
class Hypothesis:
    """Words without the end symbol, the log-probability with it, the score, and the source word looked at for each."""

    words: list[int]
    log_probability: float
    score: float
    attention: list[int]


@dataclass(frozen=True)
class Symbols:
    """The numbers of the special symbols."""

    begin: int
    end: int


def penalised(log_probability: float | Tensor, length: int, length_penalty: float) -> float | Tensor:
    """The score of a text of `length` labels, the end symbol among them."""
    return log_probability / ((5 + length) / 6) ** length_penalty


@torch.inference_mode()
def search(
    body: Seq2Seq, head: Head, source: Tensor, lengths: Tensor, symbols: Symbols, options: SearchOptions
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, the best first. Body and head are taken as they are: in eval mode."""
    beams = Beams(body.encode(source, lengths), symbols, options)
    while len(beams.sentences):
        log_probabilities = beams.advance(body, head)
        beams.extend(beams.allowed(log_probabilities))
    return [sorted(found, key=lambda one: -one.score)[: options.n_best] for found in beams.ended]


class Beams:
    """The open hypotheses of the sentences that are still searched.

    Tensors over hypotheses are (sentences, beam); a slot without a hypothesis has the log-probability -inf.
    """

    def __init__(self, memory: Memory, symbols: Symbols, options: SearchOptions) -> None:
        self.symbols, self.options = symbols, options
        sentences, beam = len(memory.states), options.beam
        device = memory.states.device
        self.memory = memory
        self.sentences = torch.arange(sentences, device=device)  # which sentence of the batch stands in each row
        self.state: State = (_repeated(memory.final[0], beam), _repeated(memory.final[1], beam))
        self.last = torch.full((sentences, beam), symbols.begin, device=device)
        self.total = torch.full((sentences, beam), -torch.inf, device=device)
        self.total[:, 0] = 0.0
        self.slots = torch.full((sentences,), beam, device=device)
        self.words = torch.empty(sentences, beam, 0, dtype=torch.long, device=device)
        self.looked = torch.empty(sentences, beam, 0, dtype=torch.long, device=device)
        self.attention = self.looked
        self.ended: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    @property
    def length(self) -> int:
        """Words of every open hypothesis."""
        return self.words.shape[-1]

    def advance(self, body: Seq2Seq, head: Head) -> Tensor:
        """One step of the decoder: log-probabilities of the next label, (sentences, beam, labels)."""
        sentences, beam = self.last.shape
        states, self.state = body.recur(self.last.view(-1, 1), self.state)
        hidden, weights = body.attend(states.view(sentences, beam, -1), self.memory)
        self.attention = weights.argmax(-1)  # (sentences, beam)
        return (head(hidden).float() / self.options.temperature).log_softmax(-1)

    def allowed(self, log_probabilities: Tensor) -> Tensor:
        """-inf for what may not come next."""
        symbols, options = self.symbols, self.options
        log_probabilities[..., symbols.begin] = -torch.inf
        end = log_probabilities[..., symbols.end].clone()
        if options.no_repeat_ngram and self.length >= options.no_repeat_ngram:
            _forbid_repeats(log_probabilities, self.words, options.no_repeat_ngram)
        if self.length >= options.max_length:
            log_probabilities.fill_(-torch.inf)
        log_probabilities[..., symbols.end] = -torch.inf if self.length < options.min_length else end
        return log_probabilities

    def extend(self, log_probabilities: Tensor) -> None:
        """Fill the open slots with the best continuations, and take out what has ended."""
        beam, symbols = self.options.beam, self.symbols
        # the best of all are among the best of each hypothesis
        best, labels = log_probabilities.topk(beam, dim=-1)
        candidates = (self.total.unsqueeze(-1) + best).flatten(1)  # (sentences, beam x beam)
        total, picked = candidates.topk(beam, dim=-1)
        if bool(total.isnan().any()):
            raise UserError(
                "the probabilities of the next word are not finite: the weights of the run are not, or the temperature "
                f"{self.options.temperature:g} is too small"
            )
        parent = picked // beam
        label = labels.flatten(1).gather(1, picked)
        total = total.masked_fill(torch.arange(beam, device=total.device) >= self.slots.unsqueeze(1), -torch.inf)

        looked = torch.cat([_chosen(self.looked, parent), self.attention.gather(1, parent).unsqueeze(-1)], dim=-1)
        words = torch.cat([_chosen(self.words, parent), label.unsqueeze(-1)], dim=-1)
        ends = (label == symbols.end) & total.isfinite()
        self._keep_ended(ends, total, words, looked)
        self.slots -= ends.sum(1)
        self.total = total.masked_fill(ends, -torch.inf)
        self.words, self.looked, self.last = words, looked, label
        rows = (parent + torch.arange(len(parent), device=parent.device).unsqueeze(1) * beam).flatten()
        self.state = (self.state[0].index_select(1, rows), self.state[1].index_select(1, rows))
        self._drop_finished()

    def _keep_ended(self, ends: Tensor, total: Tensor, words: Tensor, looked: Tensor) -> None:
        rows, slots = ends.nonzero(as_tuple=True)
        if not len(rows):
            return
        length = words.shape[-1]
        values = (self.sentences[rows], total[rows, slots], words[rows, slots, :-1], looked[rows, slots, :-1])
        for sentence, value, text, attention in zip(*(value.tolist() for value in values), strict=True):
            score = float(penalised(value, length, self.options.length_penalty))
            self.ended[sentence].append(Hypothesis(text, value, score, attention))

    def _drop_finished(self) -> None:
        """Take sentences out of the batch whose answer is certain."""
        kept = torch.tensor(
            [self._may_improve(*row) for row in zip(self.sentences.tolist(), self.total.amax(1).tolist(), strict=True)],
            dtype=torch.bool,
            device=self.total.device,
        )
        if bool(kept.all()):
            return
        beam = self.options.beam
        rows = kept.nonzero().flatten()
        hypotheses = (rows.unsqueeze(1) * beam + torch.arange(beam, device=rows.device)).flatten()
        states, mask, final = self.memory
        self.memory = Memory(states[rows], mask[rows], final)
        self.state = (self.state[0].index_select(1, hypotheses), self.state[1].index_select(1, hypotheses))
        for name in ("sentences", "last", "total", "slots", "words", "looked"):
            setattr(self, name, getattr(self, name)[rows])

    def _may_improve(self, sentence: int, best_open: float) -> bool:
        """Whether an open hypothesis may still come among the best: its log-probability can only fall from here."""
        if best_open == -torch.inf:
            return False
        ended = self.ended[sentence]
        if len(ended) < self.options.n_best:
            return True
        lengths = (self.length + 1, self.options.max_length + 1)
        bound = max(float(penalised(best_open, length, self.options.length_penalty)) for length in lengths)
        worst = sorted((one.score for one in ended), reverse=True)[self.options.n_best - 1]
        return bound > worst


def _repeated(state: Tensor, beam: int) -> Tensor:
    """(layers, sentences, size) to (layers, sentences x beam, size)."""
    return state.repeat_interleave(beam, dim=1)


def _chosen(history: Tensor, parent: Tensor) -> Tensor:
    """The histories (sentences, beam, length) of the parents (sentences, beam)."""
    return history.gather(1, parent.unsqueeze(-1).expand(-1, -1, history.shape[-1]))


def _forbid_repeats(log_probabilities: Tensor, words: Tensor, size: int) -> None:
    """-inf for labels that would end a run of `size` words which the text has already."""
    runs = words.unfold(-1, size, 1)  # (sentences, beam, runs, size)
    begun = words[..., words.shape[-1] - size + 1 :].unsqueeze(-2)  # the last size - 1 words
    repeats = (runs[..., :-1] == begun).all(-1)
    rows, hypotheses, runs_found = repeats.nonzero(as_tuple=True)
    log_probabilities[rows, hypotheses, runs[rows, hypotheses, runs_found, -1]] = -torch.inf


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
                for row, best in zip(index.tolist(), hypotheses, strict=True):
                    # no hypothesis was allowed to end: only with constraints that contradict each other
                    found[row] = best or [Hypothesis([], -torch.inf, -torch.inf, [])]
        return found

    def words(self, hypothesis: Hypothesis, source: list[str], replace_unknown: bool) -> list[str]:
        """The words of a hypothesis; an unknown one may become the source word that the attention looked at."""
        target = self.encoder.target
        words = target.decode(hypothesis.words)
        if not replace_unknown:
            return words
        return [
            source[attended] if number == target.unknown else word
            for number, word, attended in zip(hypothesis.words, words, hypothesis.attention, strict=True)
        ]

    def scored_texts(self, examples: SequenceExamples, options: SearchOptions, replace_unknown: bool) -> Iterator[str]:
        """The best text of each source, in the form that scores count."""
        found = self.search(examples, replace(options, n_best=1))
        for (best, *_), source in zip(found, examples.source_words, strict=True):
            yield self.encoder.units.scored(self.words(best, source, replace_unknown))

"""Beam search: against exhaustive search, teacher forcing and its own promises."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from labelemb import Head
from labelemb.lab.bodies.seq2seq import Seq2Seq
from labelemb.lab.tasks.beam import Hypothesis, SearchOptions, penalised, search
from labelemb.support.errors import UserError
from tests.helpers.text_models import SYMBOLS, make_model

Model = tuple[Seq2Seq, Head]


def sources(*lengths: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(9, (len(lengths), max(lengths)), generator=generator), torch.tensor(lengths)


def run(model: Model, batch: tuple[Tensor, Tensor], options: SearchOptions) -> list[list[Hypothesis]]:
    return search(*model, *batch, SYMBOLS, options)


@torch.no_grad()
def forced(model: Model, source: Tensor, words: list[int]) -> float:
    """The log-probability of words and the end symbol, with the words given to the decoder."""
    body, head = model
    fed = torch.tensor([[SYMBOLS.begin, *words]])
    logits = head(body(source.unsqueeze(0), torch.tensor([len(source)]), fed)).log_softmax(-1)[0]
    return float(logits.gather(1, torch.tensor([*words, SYMBOLS.end]).unsqueeze(1)).sum())


def texts(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[one.words for one in best] for best in found]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_holds_everything_finds_what_exhaustive_search_finds(seed: int, penalty: float) -> None:
    model = make_model(target_size=5, seed=seed)
    source, lengths = sources(4)
    allowed = [label for label in range(5) if label not in (SYMBOLS.begin, SYMBOLS.end)]
    every = [list(words) for length in range(4) for words in itertools.product(allowed, repeat=length)]
    scored = [(float(penalised(forced(model, source[0], words), len(words) + 1, penalty)), words) for words in every]
    ranked = [words for _, words in sorted(scored, key=lambda entry: -entry[0])]
    found = widened_search(model, source, lengths, SearchOptions(len(every), 3, 0, penalty, 0, n_best=5))
    assert texts(found) == [ranked[:5]]


def widened_search(model: Model, source: Tensor, lengths: Tensor, options: SearchOptions) -> list[list[Hypothesis]]:
    """A search with a beam beyond the vocabulary: the model gets labels that are never likely."""
    body, head = model
    more = options.beam - head.num_labels
    wide = torch.nn.Linear(head.in_features, options.beam)
    with torch.no_grad():
        wide.weight.copy_(torch.cat([head.predictor.weight, torch.zeros(more, head.in_features)]))
        wide.bias.copy_(torch.cat([head.predictor.bias, torch.full((more,), -1e9)]))
    vectors = torch.nn.Embedding(options.beam, body.target_vectors.embedding_dim)
    with torch.no_grad():
        vectors.weight[: head.num_labels] = body.target_vectors.weight
    model[0].target_vectors, head.predictor = vectors, wide
    return search(body, head, source, lengths, SYMBOLS, options)


def test_a_beam_of_one_is_greedy_search() -> None:
    model = make_model()
    body, head = model
    source, lengths = sources(5, 3, 6)
    for row, (best,) in enumerate(run(model, (source, lengths), SearchOptions(max_length=6, length_penalty=1.0))):
        words: list[int] = []
        while len(words) < 6:
            fed = torch.tensor([[SYMBOLS.begin, *words]])
            with torch.no_grad():
                scores = head(body(source[row : row + 1, : lengths[row]], lengths[row : row + 1], fed))[0, -1]
            scores[SYMBOLS.begin] = -torch.inf
            if int(scores.argmax()) == SYMBOLS.end:
                break
            words.append(int(scores.argmax()))
        assert best.words == words


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_a_score_is_the_teacher_forced_one_over_the_length_penalty(penalty: float) -> None:
    model = make_model(seed=3)
    source, lengths = sources(5, 2, 7)
    found = run(model, (source, lengths), SearchOptions(4, 6, length_penalty=penalty, n_best=4))
    for row, best in enumerate(found):
        assert len(best) == 4
        for one in best:
            expected = forced(model, source[row, : lengths[row]], one.words)
            assert one.log_probability == pytest.approx(expected, abs=1e-4)
            assert one.score == pytest.approx(expected / ((5 + len(one.words) + 1) / 6) ** penalty, abs=1e-4)
        assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)


def test_a_temperature_divides_the_logits() -> None:
    body, head = make_model(seed=3)
    warm = run((body, head), sources(5, 2), SearchOptions(4, 6, n_best=4, temperature=2.0))
    with torch.no_grad():
        head.predictor.weight.div_(2)
        head.predictor.bias.div_(2)
    halved = run((body, head), sources(5, 2), SearchOptions(4, 6, n_best=4))
    assert texts(warm) == texts(halved)
    assert warm[0][0].score == pytest.approx(halved[0][0].score, abs=1e-5)


@pytest.mark.parametrize("options", [SearchOptions(1), SearchOptions(5), SearchOptions(5, length_penalty=1.0)])
@pytest.mark.parametrize("body", [{}, {"bidirectional": True, "layers": 2}])
def test_a_sentences_result_depends_neither_on_its_neighbours_nor_on_their_order(
    options: SearchOptions, body: dict[str, object]
) -> None:
    model = make_model(seed=2, **body)
    options = replace(options, max_length=12)
    source, lengths = sources(3, 8, 1, 5, 8, 2)
    together = run(model, (source, lengths), options)
    alone = [run(model, (source[i : i + 1, : lengths[i]], lengths[i : i + 1]), options)[0] for i in range(6)]
    assert texts(together) == texts(alone)
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    moved = run(model, (source[order], lengths[order]), options)
    assert texts(moved) == [texts(together)[i] for i in order.tolist()]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_the_best_is_the_same_however_many_are_asked_for(penalty: float) -> None:
    model = make_model(seed=4)
    one, five = (run(model, sources(4, 6, 2), SearchOptions(5, 10, 0, penalty, 0, n)) for n in (1, 5))
    assert texts(one) == [best[:1] for best in texts(five)]


def test_no_text_is_longer_or_shorter_than_asked_for_and_none_has_the_begin_symbol() -> None:
    found = run(make_model(), sources(4, 6), SearchOptions(4, max_length=5, min_length=3, n_best=4))
    for best in found:
        for one in best:
            assert 3 <= len(one.words) <= 5
            assert SYMBOLS.begin not in one.words
            assert SYMBOLS.end not in one.words
            assert len(one.attention) == len(one.words)


@pytest.mark.parametrize("size", [1, 2])
def test_no_run_of_words_comes_twice(size: int) -> None:
    options = SearchOptions(3, max_length=8, min_length=4, no_repeat_ngram=size)
    for best in run(make_model(seed=1), sources(4, 6, 3), options):
        runs = [tuple(best[0].words[i : i + size]) for i in range(len(best[0].words) - size + 1)]
        assert len(runs) == len(set(runs))
    free = run(make_model(seed=1), sources(4, 6, 3), replace(options, no_repeat_ngram=0))
    assert any(len(set(best[0].words)) < len(best[0].words) for best in free), "without the option words do repeat"


def test_the_attention_of_a_word_is_where_its_step_looked() -> None:
    body, head = make_model(seed=6)
    source, lengths = sources(6)
    (best,) = run((body, head), (source, lengths), SearchOptions(3, 6))[0]
    memory = body.encode(source, lengths)
    states, _ = body.recur(torch.tensor([[SYMBOLS.begin, *best.words]]), memory.final)
    _, weights = body.attend(states, memory)
    assert best.attention == weights[0, : len(best.words)].argmax(-1).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SearchOptions(beam=8), "a beam of 8 is wider than the vocabulary of 7"),
        (SearchOptions(beam=2, n_best=3), "3 best hypotheses need a beam of as many"),
        (SearchOptions(min_length=9, max_length=4), "least length 9 is above the greatest, 4"),
    ],
)
def test_a_search_that_cannot_be_is_refused(options: SearchOptions, message: str) -> None:
    with pytest.raises(UserError, match=message):
        options.check(num_labels=7)

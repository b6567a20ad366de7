"""Speed of translation beside joeynmt, both in one process, interleaved: a training step and beam search.

    pip install --no-deps joeynmt==2.3.0 sacremoses subword-nmt importlib_metadata==8.7.0 zipp
    python -m benchmarks.beside_joeynmt --rounds 5

joeynmt is installed without its dependencies, into an environment with the extras lab, text and tensorboard, because
it asks for a protobuf of 2022. Both sides have the same sizes and sentences: an LSTM encoder (of both directions,
joeynmt's only one that runs) and decoder of one layer, bilinear attention, no input feeding, cross entropy, Adam. In
the search every hypothesis is as long as the target, so that both do the same work.
"""

import argparse
import logging
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.__main__ import machine, markdown
from benchmarks.timing import best_seconds
from benchmarks.translation import MULTI30K, SYMBOLS, TINY, Row, Size, Step, against, make_body, make_head, make_pairs
from labelemb.lab.data.pairs.sequences import Ragged, SequenceExamples
from labelemb.lab.tasks.beam import SearchOptions, search

SPECIALS = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
SHIFT = 1
"""joeynmt has one special symbol more before the words."""


def make_joeynmt(size: Size) -> Any:
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    names = {f"{name}_token": f"<{name}>" for name in SPECIALS} | {"sep_token": None}
    symbols = SimpleNamespace(**names, **{f"{name}_id": place for name, place in SPECIALS.items()}, lang_tags=[])
    words = Vocabulary([str(word) for word in range(size.labels - len(SPECIALS))], symbols)
    layers = {"type": "recurrent", "rnn_type": "lstm", "num_layers": size.layers, "dropout": 0.0}
    layers |= {"embeddings": {"embedding_dim": size.embedding}}
    encoder = {"bidirectional": True, "hidden_size": size.hidden // 2}
    decoder = {"attention": "luong", "input_feeding": False, "init_hidden": "last", "hidden_size": size.hidden}
    torch.manual_seed(0)
    model = build_model({"encoder": layers | encoder, "decoder": layers | decoder}, words, words)
    model.loss_function = ("crossentropy", 0.0)
    return model


def make_batch(examples: SequenceExamples) -> Any:
    """The same sentences for joeynmt, which wants the longest first."""
    from joeynmt.batch import Batch

    def sentences(pairs: Ragged) -> list[torch.Tensor]:
        return [values.long() + SHIFT for values in pairs.values.tensor_split(pairs.starts[1:-1])]

    def padded(rows: list[torch.Tensor]) -> torch.Tensor:
        return pad_sequence(rows, batch_first=True, padding_value=SPECIALS["pad"])

    begin = torch.tensor([SPECIALS["bos"]])
    pairs = zip(sentences(examples.source), sentences(examples.target), strict=True)
    longest_first = sorted(pairs, key=lambda pair: -len(pair[0]))
    source, target = [pair[0] for pair in longest_first], [torch.cat([begin, pair[1]]) for pair in longest_first]
    lengths = torch.tensor([len(row) for row in source])
    order = torch.arange(len(source))
    symbols = {"pad_index": SPECIALS["pad"], "eos_index": SPECIALS["eos"], "device": torch.device("cpu")}
    return Batch(padded(source), lengths, None, padded(target), None, order, **symbols)


def training_row(size: Size, rounds: int) -> Row:
    lab, model, batch = Step(size, "plain"), make_joeynmt(size), make_batch(make_pairs(size, size.pairs))
    assert int(batch.ntokens) == lab.tokens
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def joeynmt() -> None:
        optimizer.zero_grad()
        loss, _, _, _ = model(return_type="loss", **vars(batch))
        (loss / batch.ntokens).backward()
        optimizer.step()

    seconds = best_seconds({"lab": lab, "joeynmt": joeynmt}, rounds=rounds)
    return against("training, target tokens/s", {name: lab.tokens / value for name, value in seconds.items()})


def beam_row(size: Size, rounds: int, beam: int, count: int) -> Row:
    from joeynmt.search import search as joeynmt_search

    examples, words = make_pairs(size, count), size.target
    body, head, model = make_body(size).eval(), make_head(size, "plain").eval(), make_joeynmt(size).eval()
    with torch.no_grad():
        head.predictor.bias[SYMBOLS.end] -= 100.0
    source, lengths = examples.source_batch(torch.arange(count))
    options, batch = SearchOptions(beam, max_length=words), make_batch(examples)
    batch.has_trg = False
    sides: dict[str, Callable[[], object]] = {
        "lab": lambda: search(body, head, source, lengths, SYMBOLS, options),
        "joeynmt": lambda: joeynmt_search(model, batch, words, beam, beam_alpha=-1, min_output_length=words),
    }
    seconds = best_seconds(sides, rounds=rounds)
    return against(f"beam {beam}, sentences/s", {name: count / value for name, value in seconds.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts (5)")
    parser.add_argument("--tiny", action="store_true", help="toy sizes")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    size, beam, count = (TINY, 3, 6) if options.tiny else (MULTI30K, 10, 64)
    size = replace(size, bidirectional=True)
    rows = [training_row(size, options.rounds), beam_row(size, options.rounds, beam, count)]
    print(f"{machine()}\n\n{markdown(rows)}")


if __name__ == "__main__":
    main()

"""LSTM encoder and decoder with attention: from source text and target prefix to h at every target position.

There is no input feeding: the attention reads the decoder's states and nothing flows back from it, so that in training
encoder, decoder and attention each run over whole sequences at once.

    score  = W s_t . m_j          s_t the decoder's state, m_j the encoder's states of the source; padding is masked
    h_t    = tanh(V [sum_j softmax(score)_j m_j ; s_t])
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

State = tuple[Tensor, Tensor]
"""Hidden and cell states of an LSTM, each (layers, rows, hidden size)."""


class Memory(NamedTuple):
    """An encoded batch of sources."""

    states: Tensor  # (pairs, source positions, hidden size)
    mask: Tensor  # (pairs, source positions), true where there is a word
    final: State  # where the decoder begins


class Seq2Seq(nn.Module):
    """`body(source, lengths, shifted target)` gives h, (pairs, target positions, hidden size)."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        embedding_size: int,
        hidden_size: int,
        layers: int = 1,
        dropout: float = 0.0,
        bidirectional: bool = False,
        query_tanh: bool = False,
        share_vectors: bool = False,
        scaled_vectors: bool = False,
    ) -> None:
        super().__init__()
        self.target_vectors = nn.Embedding(target_size, embedding_size)
        self.source_vectors = self.target_vectors if share_vectors else nn.Embedding(source_size, embedding_size)
        if scaled_vectors:  # vectors that are also an output layer's weights must start as small as those
            nn.init.normal_(self.target_vectors.weight, std=embedding_size**-0.5)
        directions = 2 if bidirectional else 1
        between = dropout if layers > 1 else 0.0
        self.encoder = nn.LSTM(
            embedding_size,
            hidden_size // directions,
            layers,
            batch_first=True,
            dropout=between,
            bidirectional=bidirectional,
        )
        self.decoder = nn.LSTM(embedding_size, hidden_size, layers, batch_first=True, dropout=between)
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.combine = nn.Linear(2 * hidden_size, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.layers, self.directions, self.query_tanh = layers, directions, query_tanh
        self.out_features = hidden_size

    def forward(self, source: Tensor, lengths: Tensor, shifted: Tensor) -> Tensor:
        memory = self.encode(source, lengths)
        states, _ = self.recur(shifted, memory.final)
        hidden, _ = self.attend(states, memory)
        return hidden

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """source (pairs, positions) with lengths (pairs,), none of them 0; what stands behind a source's end is not
        looked at."""
        vectors = self.source_vectors(source)
        width = source.shape[1]
        if bool((lengths == width).all()):  # nothing to leave out: the faster call
            states, final = self.encoder(vectors)
        else:
            packed = pack_padded_sequence(vectors, lengths.cpu(), batch_first=True, enforce_sorted=False)
            outputs, final = self.encoder(packed)
            states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=width)
        mask = torch.arange(width, device=source.device) < lengths.unsqueeze(1)
        return Memory(states, mask, (self._both_directions(final[0]), self._both_directions(final[1])))

    def recur(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """The decoder over words (rows, positions): its states (rows, positions, hidden size), and the last one."""
        return self.decoder(self.target_vectors(words), state)

    def attend(self, states: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """h (pairs, queries, hidden size) and where it looked, (pairs, queries, source positions).

        A pair's queries are its target positions in training, and its hypotheses in a beam search.
        """
        queries = self.query(states)
        if self.query_tanh:
            queries = queries.tanh()
        scores = queries @ memory.states.transpose(1, 2)
        weights = scores.masked_fill(~memory.mask.unsqueeze(1), -torch.inf).softmax(-1)
        context = weights @ memory.states
        return self.dropout(self.combine(torch.cat([context, states], dim=-1)).tanh()), weights

    def _both_directions(self, final: Tensor) -> Tensor:
        """(layers x directions, pairs, size) to (layers, pairs, hidden size)."""
        if self.directions == 1:
            return final
        pairs = final.shape[1]
        return final.view(self.layers, 2, pairs, -1).transpose(1, 2).reshape(self.layers, pairs, -1)

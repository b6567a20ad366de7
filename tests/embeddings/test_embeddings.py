"""Label embeddings: how each starts, what a row is, how gradients come back, and what a space becomes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from labelemb import (
    CompressedEmbedding,
    DenseEmbedding,
    FixedEmbedding,
    LabelEmbedding,
    LabelEmbeddingHead,
    LabelSpace,
    RunningEmbedding,
)

NAMES = ["cat", "dog", "car", "van"]
PROBABILITIES = torch.tensor(
    [[0.7, 0.2, 0.05, 0.05], [0.25, 0.6, 0.1, 0.05], [0.0, 0.1, 0.5, 0.4], [0.05, 0.05, 0.3, 0.6]]
)


def spaces() -> dict[str, LabelSpace]:
    """One space in each storage."""
    generator = torch.Generator().manual_seed(3)
    A, B, bias = (torch.randn(*shape, generator=generator) for shape in ((4, 2), (2, 4), (4,)))
    return {
        "dense": LabelSpace.from_matrix(PROBABILITIES, NAMES),
        "factors": LabelSpace.from_factors(A, B, None, NAMES),
        "factors with bias": LabelSpace.from_factors(A, B, bias, NAMES),
        "top_k": LabelSpace.from_top_k(
            [[0, 1], [1, 0], [2, -1], [3, 2]], [[0.7, 0.2], [0.6, 0.3], [0.8, 0.0], [0.5, 0.5]], NAMES
        ),
    }


def test_a_dense_embedding_starts_as_the_identity_or_a_multiple_of_it() -> None:
    assert torch.equal(DenseEmbedding(5).weight, torch.eye(5))
    assert torch.equal(DenseEmbedding(5, identity_scale=3.0).weight, 3 * torch.eye(5))
    assert torch.equal(DenseEmbedding(5, identity_scale=0.0).weight, torch.zeros(5, 5))


def test_a_compressed_embedding_starts_with_normal_rows_and_a_bounded_projection() -> None:
    torch.manual_seed(0)
    embedding = CompressedEmbedding(4000, rank=25)
    assert embedding.A.shape == (4000, 25)
    assert embedding.B.shape == (25, 4000)
    assert embedding.bias is None
    assert embedding.A.mean().item() == pytest.approx(0, abs=0.02)
    assert embedding.A.std().item() == pytest.approx(1, abs=0.02)
    assert embedding.B.abs().max().item() <= 1 / math.sqrt(25)
    assert embedding.B.std().item() == pytest.approx(1 / math.sqrt(25) / math.sqrt(3), rel=0.02)  # a uniform one's


def test_the_authors_bias_is_one_number_per_label() -> None:
    embedding = CompressedEmbedding(7, rank=2, bias=True)
    assert embedding.bias is not None
    assert embedding.bias.shape == (7,)


def test_a_compressed_row_is_relu_of_the_product() -> None:
    torch.manual_seed(1)
    embedding = CompressedEmbedding(6, rank=3, bias=True)
    labels = torch.tensor([4, 0, 4])
    assert embedding.bias is not None
    expected = torch.relu(embedding.A[labels] @ embedding.B + embedding.bias)
    torch.testing.assert_close(embedding.rows(labels), expected)


@pytest.mark.parametrize(
    "embedding",
    [DenseEmbedding(6), CompressedEmbedding(6, 2), RunningEmbedding(6), RunningEmbedding(6, top_k=2)],
    ids=["dense", "compressed", "running", "running top_k"],
)
def test_rows_are_logits_whose_softmax_is_the_soft_target(embedding: LabelEmbedding) -> None:
    labels = torch.tensor([5, 0, 0])
    assert embedding.rows(labels).shape == (3, 6)
    torch.testing.assert_close(embedding.rows(labels).softmax(-1), embedding.probabilities(labels))
    torch.testing.assert_close(embedding.probabilities(labels).sum(-1), torch.ones(3))


@pytest.mark.parametrize(
    "make",
    [lambda: DenseEmbedding(1), lambda: CompressedEmbedding(1, 2), lambda: RunningEmbedding(0)],
    ids=["dense", "compressed", "running"],
)
def test_fewer_than_two_labels_are_refused(make: Callable[[], LabelEmbedding]) -> None:
    with pytest.raises(ValueError, match="needs 2 labels or more"):
        make()


def test_a_rank_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="rank is 0, but must be 1 or more"):
        CompressedEmbedding(5, 0)


def test_a_dense_embedding_that_does_not_fit_names_its_size_and_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"50000 labels needs 9\.3 GB .*pass embedding="):
        DenseEmbedding(50_000)


@pytest.mark.parametrize("storage", list(spaces()))
def test_a_warm_start_begins_where_the_space_ended(storage: str) -> None:
    space = spaces()[storage]
    embedding = DenseEmbedding.from_space(space)
    assert embedding.weight.requires_grad
    torch.testing.assert_close(embedding.probabilities(torch.arange(4)), space.matrix())


@pytest.mark.parametrize("storage", ["factors", "factors with bias"])
def test_a_compressed_embedding_starts_from_factors_and_draws_nothing(storage: str) -> None:
    space, before = spaces()[storage], torch.random.get_rng_state()
    embedding = CompressedEmbedding.from_space(space)
    assert all(parameter.requires_grad for parameter in embedding.parameters())
    torch.testing.assert_close(embedding.probabilities(torch.arange(4)), space.matrix())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_compressed_embedding_needs_factors() -> None:
    with pytest.raises(ValueError, match="stored as dense, but must be factors"):
        CompressedEmbedding.from_space(spaces()["dense"])


@pytest.mark.parametrize("storage", list(spaces()))
def test_a_fixed_embedding_gives_the_rows_of_its_space(storage: str) -> None:
    space = spaces()[storage]
    embedding = FixedEmbedding(space)
    labels = torch.tensor([2, 0, 3, 1, 2])
    torch.testing.assert_close(embedding.rows(labels).softmax(-1), space.rows(labels.tolist()).softmax(-1))
    torch.testing.assert_close(embedding.probabilities(labels), space.matrix()[labels])


@pytest.mark.parametrize("storage", list(spaces()))
def test_a_fixed_embedding_has_no_parameters_no_observer_and_moves_with_its_module(storage: str) -> None:
    embedding = FixedEmbedding(spaces()[storage])
    assert list(embedding.parameters()) == []
    head = LabelEmbeddingHead(3, 4, embedding=spaces()[storage])
    assert head.observer is None
    assert all(
        not buffer.is_floating_point() or buffer.dtype == torch.float64 for buffer in embedding.double().buffers()
    )


def test_a_fixed_embedding_of_top_k_rows_spreads_the_rest_evenly() -> None:
    found = FixedEmbedding(spaces()["top_k"]).probabilities(torch.arange(4))
    expected = [[0.7, 0.2, 0.05, 0.05], [0.3, 0.6, 0.05, 0.05], [0.2 / 3, 0.2 / 3, 0.8, 0.2 / 3], [0.0, 0.0, 0.5, 0.5]]
    torch.testing.assert_close(found, torch.tensor(expected))


class CosineEmbedding(LabelEmbedding):
    """What a user may write: rows are scaled cosines of a vector per label, and one parameter is not used at all."""

    def __init__(self, num_labels: int) -> None:
        super().__init__(num_labels)
        self.vectors = nn.Parameter(torch.randn(num_labels, 3))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.idle = nn.Parameter(torch.zeros(2))

    def rows(self, labels: Tensor) -> Tensor:
        unit = nn.functional.normalize(self.vectors, dim=1)
        return self.scale * unit[labels] @ unit.T


@pytest.mark.parametrize(
    "make",
    [
        lambda: DenseEmbedding(6),
        lambda: CompressedEmbedding(6, 3),
        lambda: CompressedEmbedding(6, 3, bias=True),
        lambda: CosineEmbedding(6),
    ],
    ids=["dense", "compressed", "compressed with bias", "user-defined"],
)
def test_row_gradients_are_those_of_autograd_and_add_to_what_is_there(make: Callable[[], LabelEmbedding]) -> None:
    torch.manual_seed(2)
    embedding = make().double()
    labels, gradient = torch.tensor([3, 0, 5]), torch.randn(3, 6, dtype=torch.float64)
    parameters = dict(embedding.named_parameters())
    found = torch.autograd.grad(embedding.rows(labels), list(parameters.values()), gradient, allow_unused=True)
    buffers = {name: torch.ones_like(parameter) for name, parameter in parameters.items()}
    embedding.add_row_gradients(labels, embedding.rows(labels).detach(), gradient.clone(), buffers)
    for (name, buffer), value in zip(buffers.items(), found, strict=True):
        expected = torch.ones_like(buffer) if value is None else 1 + value
        torch.testing.assert_close(buffer, expected, msg=lambda m, n=name: f"{n}: {m}")


def test_a_user_defined_embedding_trains_alike_in_both_implementations() -> None:
    torch.manual_seed(4)
    hidden, targets = torch.randn(9, 5), torch.tensor([0, 5, 3, 3, 1, 2, 4, 4, 0])
    head = LabelEmbeddingHead(5, 6, embedding=CosineEmbedding(6), impl="autograd").double()
    gradients: dict[str, dict[str, Tensor]] = {}
    for impl in ("autograd", "chunked"):
        head.impl = impl
        head.zero_grad()
        head(hidden.double(), targets).loss.backward()
        gradients[impl] = {name: p.grad for name, p in head.named_parameters() if p.grad is not None}
    for name, gradient in gradients["autograd"].items():
        torch.testing.assert_close(gradients["chunked"][name], gradient, msg=name)
    assert gradients["autograd"]["embedding.vectors"].abs().sum() > 0


@pytest.mark.parametrize("storage", list(spaces()))
def test_a_fixed_head_gives_back_the_space_it_was_made_from(storage: str) -> None:
    space = spaces()[storage]
    again = LabelEmbeddingHead(3, 4, embedding=space).label_space(NAMES)
    assert again.names == space.names
    torch.testing.assert_close(again.matrix(), space.matrix())


ANY_PRECISION = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])


@pytest.mark.parametrize("storage", list(spaces()))
@ANY_PRECISION
def test_a_fixed_embedding_loses_nothing_where_its_head_is_in_another_precision(
    storage: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    space, labels = spaces()[storage], torch.arange(4)
    head = LabelEmbeddingHead(3, 4, embedding=space).to(dtype)
    torch.testing.assert_close(head.embedding.probabilities(labels).float(), space.matrix(), rtol=1e-6, atol=1e-7)
    hidden = torch.randn(4, 3)
    assert torch.isfinite(head(hidden.to(dtype), labels).loss)
    head.label_space().save(tmp_path / "labels.safetensors")
    again = LabelSpace.load(tmp_path / "labels.safetensors")
    for name, tensor in space.form.tensors().items():
        assert torch.equal(again.form.tensors()[name], tensor)


@pytest.mark.parametrize("storage", list(spaces()))
@ANY_PRECISION
def test_a_fixed_embedding_given_in_another_precision_is_in_float32(storage: str, dtype: torch.dtype) -> None:
    form = spaces()[storage].form
    given = {name: x.to(dtype) if x.is_floating_point() else x for name, x in form.tensors().items()}
    embedding = FixedEmbedding(LabelSpace(type(form)(**given)))
    assert all(buffer.dtype in (torch.float32, torch.int32) for buffer in embedding.buffers())
    torch.testing.assert_close(embedding.probabilities(torch.arange(4)), spaces()[storage].matrix(), rtol=0, atol=0.02)


def test_the_space_of_a_fixed_head_stays_apart_from_it() -> None:
    head = LabelEmbeddingHead(3, 4, embedding=spaces()["dense"])
    space = head.label_space()
    for buffer in head.embedding.buffers():
        buffer.zero_()
    torch.testing.assert_close(space.matrix(), spaces()["dense"].matrix())


@pytest.mark.parametrize(
    "embedding", [DenseEmbedding(4), CompressedEmbedding(4, 2, bias=True)], ids=["dense", "compressed"]
)
def test_a_learned_embedding_becomes_a_space_with_the_same_rows_and_stays_apart_from_it(
    embedding: LabelEmbedding,
) -> None:
    counts = torch.tensor([1, 0, 2, 3])
    space = embedding.to_space(NAMES, counts, {"tau": 2.0})
    before = space.matrix()
    torch.testing.assert_close(before, embedding.probabilities(torch.arange(4)).detach())
    assert space.counts is not None
    assert space.counts.tolist() == [1, 0, 2, 3]
    with torch.no_grad():
        for parameter in embedding.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(space.matrix(), before)

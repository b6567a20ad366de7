"""Labels split over processes: whatever the head gives, it is what the unsharded head gives."""

from __future__ import annotations

import copy
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from labelemb import LabelEmbeddingHead, Objective
from labelemb.heads.sharded import ShardedLabelEmbeddingHead, gather_rows
from labelemb.heads.sharded.shard import LabelShard
from labelemb.support.tensors import sum_over_processes
from tests.helpers.cases import Case
from tests.helpers.processes import run_checks

PROCESSES = 3
LABELS = [2, 4, 5, 7]  # 2 and 4 leave the last of three processes without a label


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each check; all of them run in one start of the processes."""
    return run_checks(PROCESSES, named_checks, tmp_path_factory.mktemp("processes"))


def check_parts_are_cut_as_dtensor_cuts(mesh: DeviceMesh) -> None:
    for labels in LABELS:
        whole = torch.arange(2.0 * labels).reshape(labels, 2)
        shard = LabelShard(mesh, labels)
        for dim, tensor in enumerate((whole, whole.T.contiguous())):
            expected, found = distribute_tensor(tensor, mesh, [Shard(dim)]), shard.cut(tensor, dim)
            assert torch.equal(found.to_local(), expected.to_local())
            assert torch.equal(found.full_tensor(), tensor)
            assert found.stride() == expected.stride()


def check_loss_terms_counts_and_all_gradients(mesh: DeviceMesh) -> None:
    for case in cases():
        head = case.head()
        sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
        hidden, targets, keywords = case.inputs()
        mine = hidden.clone().requires_grad_()
        hidden.requires_grad_()
        expected, found = head(hidden, targets, **keywords), sharded(mine, targets, **keywords)
        (3.0 * expected.loss).backward()
        (3.0 * found.loss).backward()
        close(found.loss, expected.loss)
        close(torch.stack(list(found.terms)), torch.stack(list(expected.terms)))
        assert (int(found.correct), int(found.observer_correct)) == (
            int(expected.correct),
            int(expected.observer_correct),
        ), case
        close(mine.grad, hidden.grad)
        wholes = {name: parameter.grad.full_tensor() for name, parameter in sharded.named_parameters()}
        for name, parameter in head.named_parameters():
            close(wholes[name], parameter.grad)
        assert torch.equal(sharded.counts.full_tensor(), head.counts)


def cases() -> Iterator[Case]:
    """Every option of the objective, of the call and of the sizes, drawn alike in all processes."""
    chance = random.Random(0)
    for seed in range(24):

        def one_of(*values: Any) -> Any:
            return chance.choice(values)

        mass_floor = one_of(0.0, 0.4)
        objective = Objective(
            tau=one_of(0.05, 0.7, 2.0),
            alpha=one_of(0.23, 0.6),
            cap_power=one_of(1, 2),
            two_sided_cap=one_of(True, False),
            hard_weight=None if mass_floor else one_of(0, 0.3, 1),
            soft_weight=one_of(0.8, 1),
            cap_weight=one_of(0, 1, 2.5),
            cap_reduction=one_of("mean", "sum"),
            embedding_reduction=one_of("all", "correct"),
            correct_only=one_of(True, False),
            soft_start=one_of(0, 5),
            mass_floor=mass_floor,
        )
        yield Case(
            objective,
            one_of("compressed", "compressed-bias"),
            "chunked",
            chunk_rows=one_of(None, 1, 2, 3),
            seed=seed,
            rows=one_of(1, 6, 9),
            num_labels=LABELS[seed % len(LABELS)],
            bias=one_of(True, False),
            training=one_of(True, True, False),
            weight=one_of(True, False),
            sample_weight=one_of(True, False),
            ignored=one_of(True, False),
            num_items=one_of(None, 13.0),
            observed_hidden=one_of(True, False),
            ties=one_of(True, False),
            updates=one_of(0, 5),
            progress=one_of(0.0, 0.5),
            observe_rows=one_of(None, 2, 4),  # all processes observe the same rows
            draws=one_of(0, 3),
        )


def check_rows_that_are_not_finite_do_not_reach_the_embedding(mesh: DeviceMesh) -> None:
    case = Case(Objective(correct_only=False), "compressed", chunk_rows=2, num_labels=5)
    head = ShardedLabelEmbeddingHead.from_head(case.head(), mesh)
    hidden, targets, _ = case.inputs()
    for value in (float("nan"), float("inf")):
        hidden[2] = value
        head.zero_grad()
        output = head(hidden, targets)
        output.loss.backward()
        assert not output.loss.isfinite()
        assert all(p.grad.full_tensor().isfinite().all() for p in head.embedding.parameters())


def check_prediction(mesh: DeviceMesh) -> None:
    for labels, temperature in itertools.product(LABELS, (1.0, 2.5)):
        head = Case(embedding="compressed", num_labels=labels).head()
        head.temperature.fill_(temperature)
        sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
        sharded.chunk_rows = 2
        hidden = torch.randn(2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        logits = head(hidden).detach()
        log_p = (logits / temperature).log_softmax(-1)
        close(sharded(hidden).full_tensor(), logits)
        close(sharded.log_probabilities(hidden).full_tensor(), log_p)
        close(sharded.probabilities(hidden).full_tensor(), head.probabilities(hidden))
        assert torch.equal(sharded.predict(hidden), logits.argmax(-1))
        for k in range(1, labels + 1):
            found, expected = sharded.top_labels(hidden, k), log_p.topk(k)
            close(found.log_probabilities, expected.values)
            assert torch.equal(found.labels, expected.indices)


def check_equal_logits_predict_the_first_label(mesh: DeviceMesh) -> None:
    head = Case(embedding="compressed", num_labels=7).head()
    for parameter in head.predictor.parameters():
        nn.init.zeros_(parameter)
    sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
    assert sharded.predict(torch.ones(2, 3)).tolist() == [0, 0]


def check_logits_have_gradients(mesh: DeviceMesh) -> None:
    head = Case(embedding="compressed", num_labels=5).head()
    sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
    hidden = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    mine = hidden.detach().clone().requires_grad_()
    (head(hidden) ** 2).sum().backward()
    (sharded(mine).full_tensor() ** 2).sum().backward()
    close(mine.grad, hidden.grad)
    close(sharded.predictor.weight.grad.full_tensor(), head.predictor.weight.grad)


def check_training_with_a_data_parallel_body(mesh: DeviceMesh) -> None:
    """Rows of the processes are brought together in front of the head; the body is averaged by DDP."""
    case = Case(Objective(soft_start=2), "compressed", num_labels=7)
    body, head = make_body(), case.head()
    sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
    parallel_body = DistributedDataParallel(make_body(), process_group=mesh.get_group())
    inputs, targets = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5)), case_targets()
    rank = mesh.get_local_rank()
    mine = slice(2 * rank, 2 * rank + 2) if rank < mesh.size() - 1 else slice(2 * rank, 9)  # unequal shares

    one = train(body, head, lambda step: head(body(inputs), targets).loss)

    def parallel_loss(step: int) -> Tensor:
        hidden = gather_rows(parallel_body(inputs[mine]), mesh)
        return sharded(hidden, gather_rows(targets[mine], mesh)).loss

    many = train(parallel_body, sharded, parallel_loss)
    close(torch.tensor(many), torch.tensor(one))
    for (name, parameter), expected in zip(parallel_body.module.named_parameters(), body.parameters(), strict=True):
        close(parameter, expected, name)
    state = {name: full(value) for name, value in sharded.state_dict().items()}
    for name, value in head.state_dict().items():
        close(state[name], value, name)


def make_body() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        return nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()


def case_targets() -> Tensor:
    return torch.tensor([0, 6, 3, -100, 1, 5, 2, 6, 4])


def train(body: nn.Module, head: LabelEmbeddingHead, loss_of: Callable[[int], Tensor]) -> list[float]:
    groups = [{"params": list(body.parameters())}, *head.parameter_groups(lr=0.05, embedding_lr=0.1, weight_decay=0.1)]
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    losses = []
    for step in range(4):
        loss = loss_of(step)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_heads_are_split_and_put_together(mesh: DeviceMesh) -> None:
    for embedding, labels in (("compressed", 7), ("compressed-bias", 4)):
        head = Case(Objective(soft_start=3), embedding, num_labels=labels, weight=True).head()
        head.counts.copy_(torch.arange(labels))
        sharded = ShardedLabelEmbeddingHead.from_head(head, mesh)
        again, space = sharded.unsharded(), sharded.label_space([f"label {k}" for k in range(labels)])
        assert (again is None) == (space is None) == (mesh.get_local_rank() > 0)
        if again is not None and space is not None:
            assert again.state_dict().keys() == head.state_dict().keys()
            for name, value in head.state_dict().items():
                assert torch.equal(again.state_dict()[name], value), name
            assert torch.equal(space.matrix(), head.label_space().matrix())
            assert torch.equal(space.counts, head.counts)
            assert space.names[1] == "label 1"


def check_copies_are_independent(mesh: DeviceMesh) -> None:
    head = ShardedLabelEmbeddingHead.from_head(Case(embedding="compressed", num_labels=5).head(), mesh)
    other = copy.deepcopy(head)
    assert other.predictor.weight.placements == head.predictor.weight.placements
    nn.init.zeros_(other.predictor.weight)
    assert not full(other.predictor.weight).any()
    assert full(head.predictor.weight).all()


class CountingShard(LabelShard):
    """Writes down how many numbers each reduction takes."""

    def __init__(self, shard: LabelShard, sizes: list[int]) -> None:
        super().__init__(shard.mesh, shard.num_labels)
        self.sizes = sizes

    def max(self, value: Tensor) -> Tensor:
        self.sizes.append(value.numel())
        return super().max(value)

    def sum(self, value: Tensor) -> Tensor:
        self.sizes.append(value.numel())
        return super().sum(value)


def check_bytes_on_the_wire(mesh: DeviceMesh) -> None:
    """docs/many-processes.md: numbers that each step of a training call reduces over the processes."""
    rows, distinct, features, rank = 8, 5, 3, 2
    head = ShardedLabelEmbeddingHead.from_head(Case(embedding="compressed", num_labels=7).head(), mesh)
    sizes: list[int] = []
    head.shard = CountingShard(head.shard, sizes)
    hidden = torch.randn(rows, features, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    head.chunk_rows = 2
    head(hidden.requires_grad_(), torch.tensor([0, 6, 3, 3, 1, 6, 2, 3]))
    assert sum(sizes) == rows * (7 + features) + distinct * (3 * rank + 4) + 3


def check_initial_values_do_not_depend_on_the_number_of_processes(meshes: dict[int, DeviceMesh]) -> None:
    found: dict[str, list[Tensor]] = {}
    labels = 2500  # more than two blocks of labels that share a generator
    for count, mesh in meshes.items():
        if dist.get_rank() < count:
            torch.manual_seed(4)
            head = ShardedLabelEmbeddingHead(3, labels, mesh=mesh, rank=2, embedding_bias=True)
            for name, parameter in head.named_parameters():
                found.setdefault(name, []).append(full(parameter))
    for name, wholes in found.items():
        assert all(torch.equal(whole, wholes[0]) for whole in wholes), name
        assert not torch.equal(wholes[0].flatten()[:1024], wholes[0].flatten()[1024:2048]), name
    if dist.get_rank() == 0:
        assert found["embedding.A"][0].std() == pytest.approx(1, abs=0.05)
        for name in ("predictor.weight", "observer.weight", "predictor.bias"):
            assert found[name][0].abs().max() == pytest.approx(3**-0.5, rel=0.01), name
        assert found["embedding.B"][0].abs().max() == pytest.approx(2**-0.5, rel=0.01)


def check_a_checkpoint_of_two_processes_is_read_by_three(meshes: dict[int, DeviceMesh]) -> None:
    """Parameters, counters and the optimiser's state; four labels leave the third process with none."""
    case = Case(Objective(soft_start=1), "compressed", num_labels=4, weight=True)
    hidden, targets, _ = case.inputs()
    shared = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(shared)
    path = f"{shared[0]}/checkpoint"

    def one_update(head: ShardedLabelEmbeddingHead, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        head(hidden, targets).loss.backward()
        optimizer.step()

    expected: dict[str, Tensor] = {}
    if dist.get_rank() < 2:
        head = ShardedLabelEmbeddingHead.from_head(case.head(), meshes[2])
        optimizer = torch.optim.Adam(head.parameters())
        one_update(head, optimizer)
        model_state, optimizer_state = get_state_dict(head, optimizer)
        checkpoint.save(
            {"model": model_state, "optimizer": optimizer_state},
            checkpoint_id=path,
            process_group=meshes[2].get_group(),
        )
        one_update(head, optimizer)
        expected = {name: full(value) for name, value in head.state_dict().items()}
    dist.barrier()
    head = ShardedLabelEmbeddingHead(
        3, 4, mesh=meshes[3], rank=2, objective=case.objective, weight=torch.ones(4)
    ).double()
    optimizer = torch.optim.Adam(head.parameters())
    model_state, optimizer_state = get_state_dict(head, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(state, checkpoint_id=path)
    set_state_dict(head, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    one_update(head, optimizer)
    found = {name: full(value) for name, value in head.state_dict().items()}
    for name, value in expected.items():
        close(found[name], value, name)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(shared[0])


def check_bad_input(meshes: dict[int, DeviceMesh]) -> None:
    mesh = meshes[3]
    head = ShardedLabelEmbeddingHead(3, 5, mesh=mesh, rank=2, weight=torch.ones(5))
    hidden, targets = torch.randn(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"soft targets are rows of all labels.*pass integer labels"):
        head(hidden, torch.full((2, 5), 0.2))
    with pytest.raises(ValueError, match=r'reduction="none" needs all labels of a row.*call unsharded\(\)'):
        head(hidden, targets, reduction="none")
    with pytest.raises(ValueError, match=r"a target is 5, but must be in \[0, 5\)"):
        head(hidden, torch.tensor([0, 5]))
    with pytest.raises(TypeError, match=r"targets is \[0, 1\], but must be a tensor"):
        head(hidden, [0, 1])
    with pytest.raises(ValueError, match=r"sample_weight has shape \(\), but targets have \(2,\)"):
        head(hidden, targets, sample_weight=torch.tensor(2.0))
    with pytest.raises(TypeError, match=r"sample_weight is \[1.0, 1.0\], but must be a tensor"):
        head(hidden, targets, sample_weight=[1.0, 1.0])
    with pytest.raises(ValueError, match=r"k is 6, but must be in \[1, 5\]"):
        head.top_labels(hidden, 6)
    with pytest.raises(ValueError, match="DenseEmbedding, but only a compressed one can be split: make it with"):
        ShardedLabelEmbeddingHead.from_head(LabelEmbeddingHead(3, 5), mesh)
    with pytest.raises(ValueError, match=r"from_head\(LabelEmbeddingHead.from_linear"):
        ShardedLabelEmbeddingHead.from_linear(nn.Linear(3, 5), mesh=mesh, rank=2)
    with pytest.raises(ValueError, match="rank is 0, but must be 1 or more"):
        ShardedLabelEmbeddingHead(3, 5, mesh=mesh, rank=0)
    with pytest.raises(ValueError, match="mesh has 2 dimensions"):
        ShardedLabelEmbeddingHead(3, 5, mesh=init_device_mesh("cpu", (1, 3)), rank=2)
    with pytest.raises(TypeError, match="mesh is a int"):
        ShardedLabelEmbeddingHead(3, 5, mesh=3, rank=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be calibrated: call unsharded"):
        head.calibrate([hidden])
    with pytest.raises(ValueError, match="call unsharded"):
        head.export_predictor()
    with pytest.raises(RuntimeError, match=r"size mismatch for predictor.weight"):
        head.load_state_dict(LabelEmbeddingHead(4, 5, embedding="compressed", rank=2).state_dict(), strict=False)


CHECKS = [
    check_parts_are_cut_as_dtensor_cuts,
    check_loss_terms_counts_and_all_gradients,
    check_rows_that_are_not_finite_do_not_reach_the_embedding,
    check_prediction,
    check_equal_logits_predict_the_first_label,
    check_logits_have_gradients,
    check_training_with_a_data_parallel_body,
    check_heads_are_split_and_put_together,
    check_copies_are_independent,
    check_bytes_on_the_wire,
]
WHOLE_CHECKS = [
    check_initial_values_do_not_depend_on_the_number_of_processes,
    check_a_checkpoint_of_two_processes_is_read_by_three,
    check_bad_input,
]
SIZES = (2, 3)


def named_checks() -> dict[str, Callable[[], None]]:
    """In a process: every check with meshes of two and three processes, and those that need all meshes."""
    sum_over_processes.enabled = False  # the unsharded heads here are each process's own
    meshes = {count: DeviceMesh("cpu", list(range(count))) for count in (1, *SIZES)}

    def in_mesh(check: Callable[[DeviceMesh], None], count: int) -> None:
        if dist.get_rank() < count:
            check(meshes[count])

    checks = {f"{name_of(c)}-{count}": partial(in_mesh, c, count) for c in CHECKS for count in SIZES}
    return checks | {name_of(check): partial(check, meshes) for check in WHOLE_CHECKS}


def name_of(check: Callable[..., None]) -> str:
    return check.__name__.removeprefix("check_")


@pytest.mark.parametrize("processes", SIZES)
@pytest.mark.parametrize("check", [name_of(check) for check in CHECKS])
def test_labels_split_over_processes(check: str, processes: int, outcomes: dict[str, str]) -> None:
    problem = outcomes[f"{check}-{processes}"]
    assert not problem, problem


@pytest.mark.parametrize("check", [name_of(check) for check in WHOLE_CHECKS])
def test_labels_split_over_several_numbers_of_processes(check: str, outcomes: dict[str, str]) -> None:
    assert not outcomes[check], outcomes[check]


def full(value: Tensor) -> Tensor:
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()


def close(found: Tensor | None, expected: Tensor | None, name: str = "") -> None:
    assert found is not None
    assert expected is not None
    torch.testing.assert_close(
        found.detach(), expected.detach(), rtol=1e-9, atol=1e-11, equal_nan=True, msg=lambda m: f"{name}: {m}"
    )

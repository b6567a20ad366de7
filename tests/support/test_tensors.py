"""Sums over processes: when they are made, and when each process keeps its own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from labelemb.support.tensors import sum_over_processes
from tests.helpers.processes import run_in_processes


@pytest.fixture
def group_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process group as torch reports it; nothing is sent."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)


def test_a_single_process_gets_its_own_tensor_back() -> None:
    value = torch.ones(2)
    assert sum_over_processes(value) is value
    assert sum_over_processes.processes() == 1


@pytest.mark.usefixtures("group_of_two")
def test_suspended_sums_are_this_processs_own_until_the_block_ends() -> None:
    value = torch.ones(2)
    assert sum_over_processes.processes() == 2
    with sum_over_processes.suspended():
        with sum_over_processes.suspended():
            assert sum_over_processes(value) is value
        assert sum_over_processes.processes() == 1
    assert sum_over_processes.active()
    with pytest.raises(RuntimeError), sum_over_processes.suspended():
        raise RuntimeError("a failed training")
    assert sum_over_processes.active()


@pytest.mark.usefixtures("group_of_two")
def test_other_threads_go_on_summing() -> None:
    seen: list[bool] = []
    with sum_over_processes.suspended():
        thread = threading.Thread(target=lambda: seen.append(sum_over_processes.active()))
        thread.start()
        thread.join()
        assert not sum_over_processes.active()
    assert seen == [True]


@pytest.mark.usefixtures("group_of_two")
def test_the_switch_for_the_whole_process_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_over_processes, "enabled", False)
    assert not sum_over_processes.active()


def sums_of_a_process() -> list[float]:
    """This process's rank summed over two processes: as it is, suspended, and in a compiled graph."""
    rank = torch.tensor(float(dist.get_rank()))
    with sum_over_processes.suspended():
        suspended = sum_over_processes(rank)
    compiled = torch.compile(lambda x: x * 10 if sum_over_processes.active() else x, fullgraph=True, backend="eager")
    return [float(sum_over_processes(rank)), float(suspended), float(compiled(rank))]


def test_two_processes_sum_unless_suspended(tmp_path: Path) -> None:
    assert run_in_processes(2, sums_of_a_process, tmp_path) == [[1, 0, 0], [1, 1, 10]]

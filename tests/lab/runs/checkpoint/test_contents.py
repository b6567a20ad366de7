"""Checkpoints with the right checksum that no training wrote are passed over for the one before, or refused."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from labelemb.lab.runs.checkpoint.file import CURRENT, FORMAT, PREVIOUS, load_checkpoint, save_checkpoint
from labelemb.support.errors import UserError
from labelemb.support.interrupts import Interrupted
from tests.helpers.quick_runs import StopAt, assert_same_run, every_update_saved, quick_run

State = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    quick_run(folder)
    return folder


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    stop = StopAt(15)
    with pytest.raises(Interrupted):
        quick_run(tmp_path / "stopped", options=every_update_saved(), report=stop.hear, stop=stop)
    return tmp_path / "stopped"


def with_optimizer(change: Callable[[State], object]) -> Callable[[State], object]:
    return lambda state: change(state["optimizer"])


DAMAGES: dict[str, Callable[[State], object]] = {
    "an entry is missing": lambda state: state.pop("order"),
    "a list in place of the model": lambda state: state.update(model=[]),
    "a tensor in place of the model": lambda state: state.update(model=torch.zeros(3)),
    "a name that is no text": lambda state: state.update({"\ud800": 1}),
    "a weight of another shape": lambda state: state["model"].update({"head.predictor.bias": torch.zeros(3)}),
    "a weight of another type": lambda state: state["model"].update(
        {"head.predictor.bias": torch.zeros(10, dtype=torch.long)}
    ),
    "a weight that the model lacks": lambda state: state["model"].update({"extra": torch.zeros(3)}),
    "no best weights": lambda state: state.update(best_state=None),
    "a generator state of floats": lambda state: state.update(order=state["order"].float()),
    "a short generator state": lambda state: state["streams"].update(augment=state["order"][:7]),
    "a generator state of zeros": lambda state: state["streams"].update(dropout=torch.zeros_like(state["order"])),
    "no generator states": lambda state: state.update(streams={}),
    "a negative epoch": lambda state: state.update(epoch=-1),
    "an epoch after the last": lambda state: state.update(epoch=1000),
    "a batch after the last": lambda state: state.update(batch=10),
    "a loss row of another length": lambda state: state.update(log=[torch.zeros(2)]),
    "evaluations that are texts": lambda state: state.update(records=["a"]),
    "evaluations without a step": lambda state: state.update(records=[{}]),
    "no evaluations": lambda state: state.update(records=[]),
    "a best evaluation without its score": lambda state: state["best"].pop("dev_error"),
    "times that are texts": lambda state: state.update(seconds={"training": "a", "evaluation": 1.0}),
    "times that are not numbers": lambda state: state.update(seconds={"training": float("nan"), "evaluation": 1.0}),
    "an optimiser of texts": lambda state: state.update(optimizer="adam"),
    "an optimiser without groups": with_optimizer(lambda optimizer: optimizer.pop("param_groups")),
    "an optimiser with other settings": with_optimizer(lambda optimizer: optimizer["param_groups"][0].update(eps="x")),
    "an optimiser with a tensor as a setting": with_optimizer(
        lambda optimizer: optimizer["param_groups"][0].update(eps=torch.zeros(2, 2))
    ),
    "an optimiser with a learning rate of nothing": with_optimizer(
        lambda optimizer: optimizer["param_groups"][0].update(lr=None)
    ),
    "moments of another shape": with_optimizer(lambda optimizer: optimizer["state"][0].update(exp_avg=torch.zeros(3))),
    "moments that are lost": with_optimizer(lambda optimizer: optimizer["state"][0].pop("exp_avg")),
    "moments of a parameter that is not there": with_optimizer(
        lambda optimizer: optimizer["state"].update({99: optimizer["state"][0]})
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_state_that_does_not_fit_gives_way_to_the_one_before(
    whole: Path, stopped: Path, damage: Callable[[State], object]
) -> None:
    previous = (stopped / PREVIOUS).read_bytes()
    state = load_checkpoint(stopped, pytest.fail).state
    assert state is not None
    damage(state)
    save_checkpoint(stopped, state)
    (stopped / PREVIOUS).write_bytes(previous)
    warnings: list[str] = []
    quick_run(stopped, warn=warnings.append)
    assert len(warnings) == 1
    assert "checkpoint is corrupted (" in warnings[0]
    assert_same_run(whole, stopped)


@pytest.mark.parametrize("payload", [b"", b"\x80", b"PK\x03\x04", b"\x80\x02ctorch\n", b"\x80\x02X\xff\xff\xff\xff"])
def test_bytes_that_no_program_wrote_are_one_line(stopped: Path, payload: bytes) -> None:
    for name in (CURRENT, PREVIOUS):
        (stopped / name).write_bytes(FORMAT + hashlib.sha256(payload).digest() + payload)
    with pytest.raises(UserError, match=r"checkpoint is corrupted .* to start the run again"):
        quick_run(stopped)

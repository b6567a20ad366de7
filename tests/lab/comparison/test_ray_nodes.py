"""Runs on a real Ray cluster of two nodes on this machine: one is killed, the command is interrupted, jobs use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from labelemb.lab.runs.messages import RunOptions
from tests.helpers.quick_runs import assert_same_run, quick_recipe, quick_run
from tests.helpers.ray_nodes import PATIENCE_SECONDS, node_options, ray_cluster

pytestmark = pytest.mark.slow

EPOCHS = "train.epochs=400"  # some seconds


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster with one node, the head, that has room for one run."""
    with ray_cluster() as started:
        yield started


@contextmanager
def command(nodes: Any, verb: str, out: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command on the cluster, in the middle of its runs or at their end."""
    settings = [word for setting in ("body.hidden=[16]", "train.lr=0.01") for word in ("--set", setting)]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "labelemb.lab.cli", verb, "digits", "--out", str(out)),
            *("--ray", nodes.address, "--checkpoint-seconds", "0.2", *settings, *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def comparing(nodes: Any, out: Path, seeds: int) -> Iterator[subprocess.Popen[str]]:
    long = ("--methods", "plain", "--seeds", str(seeds), "--set", EPOCHS)
    with command(nodes, "compare", out, *long) as process:
        yield process


def wait_for_checkpoints(out: Path, seeds: int, process: subprocess.Popen[str]) -> None:
    files = [out / "plain" / f"seed-{seed}" / "checkpoint" for seed in range(seeds)]
    end = time.monotonic() + PATIENCE_SECONDS
    while not all(file.exists() for file in files):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no run has begun"
        time.sleep(0.05)


def test_the_runs_of_a_killed_node_go_on_elsewhere_and_end_the_same(nodes: Any, tmp_path: Path) -> None:
    other = nodes.add_node(**node_options())
    out = tmp_path / "out"
    with comparing(nodes, out, seeds=2) as process:
        wait_for_checkpoints(out, 2, process)
        nodes.remove_node(other, allow_graceful=False)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    assert errors.count("it starts again from its last checkpoint") == 1, errors
    for seed in range(2):
        mine = out / "plain" / f"seed-{seed}"
        words = json.loads((mine / "result.json").read_text())["command"]
        options = RunOptions(threads=1, command=words)
        quick_run(tmp_path / str(seed), quick_recipe(EPOCHS), "plain", seed, options=options)
        assert_same_run(tmp_path / str(seed), mine)


def test_ctrl_c_saves_the_runs_of_the_cluster_and_the_command_goes_on(nodes: Any, tmp_path: Path) -> None:
    with comparing(nodes, tmp_path, seeds=1) as process:
        wait_for_checkpoints(tmp_path, 1, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, errors
    assert errors.strip() == "labelemb: interrupted; run the same command again to go on"
    assert not (tmp_path / "plain" / "seed-0" / "result.json").exists()
    with comparing(nodes, tmp_path, seeds=1) as again:
        assert "[1/1] plain seed 0" in again.communicate(timeout=PATIENCE_SECONDS)[1]


def test_an_audit_trains_its_folds_on_the_cluster(nodes: Any, tmp_path: Path) -> None:
    with command(nodes, "audit", tmp_path, "--folds", "2", "--set", "train.epochs=2") as process:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    assert "[2/2] label-embedding fold 2 of 2" in errors
    assert (tmp_path / "audit.csv").exists()


def test_a_search_trains_its_trials_and_its_test_on_the_cluster(nodes: Any, tmp_path: Path) -> None:
    limits = ("--trials", "5", "--fresh-seeds", "2", "--set", "train.epochs=2")
    with command(nodes, "choose", tmp_path, *limits) as process:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    choice = json.loads((tmp_path / "choice.json").read_text())
    assert [trial["state"] for trial in choice["trials"]].count("failed") == 0
    assert len(choice["trials"]) == 5
    assert choice["fresh"]["methods"]["plain"]["test_error"]["n"] == 2

"""Commands that are killed anywhere end as if nobody had killed them."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

campaign = pytest.importorskip("benchmarks.kills.campaign")
commands = pytest.importorskip("benchmarks.kills.commands")
processes = pytest.importorskip("benchmarks.kills.processes")


@pytest.mark.slow
@pytest.mark.parametrize("verb", commands.VERBS)
def test_kills_change_no_byte_and_leave_nothing(verb: str, tmp_path: Path) -> None:
    for outcome in campaign.run_campaign(kills=5, seed=17, place=tmp_path, verbs=[verb]):
        assert outcome.problems == []
    assert outcome.kills.total() == 5


def test_a_file_that_differs_is_missing_or_is_left_over_is_found(tmp_path: Path) -> None:
    expected = {"model.safetensors": b"1", "result.json": b"{}", "recipe.toml": b""}
    found = {"model.safetensors": b"2", "result.json": b"{}", ".labelemb-1.tmp": b""}
    assert campaign.differences(expected, found) == [
        ".labelemb-1.tmp is left over",
        "model.safetensors differs",
        "recipe.toml is missing",
    ]


def test_empty_folders_count_as_left_over(tmp_path: Path) -> None:
    (tmp_path / "owners").mkdir()
    assert campaign.differences({}, campaign.contents(tmp_path)) == ["owners is left over"]


def test_a_worker_that_lives_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STRAY_SECONDS", 0.0)
    tree = processes.Tree()
    tree.begin(None, "all")
    assert tree.strays() == 0
    tree.join(tree.place(), os.getpid())  # this process, which lives
    assert tree.strays() == 1


def test_one_alone_kills_of_those_that_come_to_the_deadly_operation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers that killed each other would leave their command alive."""
    tree, killed, command, worker = processes.Tree(), [], 1001, 1002
    meanwhile = iter([tree.count])  # what another process does between this one's look and its kill

    def own_pid() -> int:
        for count in meanwhile:
            count()
        return worker

    monkeypatch.setattr(processes, "os", SimpleNamespace(getpid=lambda: command))
    tree.begin(0, "all")
    tree.lead()
    monkeypatch.setattr(processes, "os", SimpleNamespace(getpid=own_pid))
    monkeypatch.setattr(processes, "_kill", killed.append)
    tree.count()
    assert killed == [command, worker]
    assert tree.killed
    tree.begin(0, "command")  # the next command can be killed again
    tree.count()
    assert len(killed) == 3


def test_workers_that_start_at_once_have_places_of_their_own() -> None:
    tree = processes.Tree()
    places = [tree.place(), tree.place()]
    tree.begin(None, "all")
    for place, pid in zip(places, (1001, 1002), strict=True):
        tree.join(place, pid)
    assert tree.workers() == [1001, 1002]

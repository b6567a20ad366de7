"""The order of runs: a run that needs another waits for it, and only for it."""

import threading
from pathlib import Path

from labelemb.lab.comparison.protocol import Busy, Done, Failed
from labelemb.lab.comparison.run_order import PlannedRun, RunOrder


def planned(name: str, after: str | None = None) -> PlannedRun:
    return PlannedRun(name, 0, Path(name), after=None if after is None else Path(after))


def taken(order: RunOrder) -> str:
    found = order.take()
    assert found is not None
    return found.method


def test_runs_come_in_their_order_but_not_before_the_one_they_need() -> None:
    order = RunOrder([planned("plain"), planned("reused", after="source"), planned("source"), planned("other")])
    assert [taken(order) for _ in range(3)] == ["plain", "source", "other"]
    order.end(planned("source"), Done(""))
    assert taken(order) == "reused"
    assert order.take() is None


def test_a_run_that_is_not_in_the_list_is_not_waited_for() -> None:
    assert taken(RunOrder([planned("reused", after="finished before")])) == "reused"


def test_whoever_finds_no_run_to_start_waits_until_one_can_start() -> None:
    source, reused = planned("source"), planned("reused", after="source")
    order = RunOrder([source, reused])
    assert order.take() == source
    found: list[PlannedRun | None] = []
    waiting = threading.Thread(target=lambda: found.append(order.take()))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    order.end(source, Done(""))
    waiting.join(60)
    assert found == [reused]
    assert order.obstacle(reused) == ""


def test_a_run_whose_need_failed_is_given_out_with_the_obstacle() -> None:
    source, reused = planned("source"), planned("reused", after="source")
    order = RunOrder([source, reused])
    order.take()
    order.end(source, Failed("no good"))
    assert order.take() == reused
    assert order.obstacle(reused) == "source seed 0"


def test_clearing_wakes_those_that_wait() -> None:
    order = RunOrder([planned("source"), planned("reused", after="source")])
    order.take()
    waiting = threading.Thread(target=order.take)
    waiting.start()
    order.clear()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_postponed_run_comes_last_and_is_still_waited_for() -> None:
    order = RunOrder([planned("source"), planned("reused", after="source"), planned("plain")])
    assert taken(order) == "source"
    order.end(planned("source"), Busy())
    assert [taken(order), taken(order)] == ["plain", "source"]
    order.end(planned("source"), Done(""))
    assert taken(order) == "reused"

"""The order of runs: a run that needs another waits for it, and only for it."""

import threading
from pathlib import Path

from labelemb.lab.comparison.order import Task, TaskOrder


def task(name: str, after: str | None = None) -> Task:
    return Task(name, 0, Path(name), after=None if after is None else Path(after))


def taken(order: TaskOrder) -> str:
    found = order.take()
    assert found is not None
    return found.method


def test_tasks_come_in_their_order_but_not_before_the_one_they_need() -> None:
    order = TaskOrder([task("plain"), task("reused", after="source"), task("source"), task("other")])
    assert [taken(order) for _ in range(3)] == ["plain", "source", "other"]
    order.end(task("source"), done=True)
    assert taken(order) == "reused"
    assert order.take() is None


def test_a_task_that_is_not_in_the_list_is_not_waited_for() -> None:
    assert taken(TaskOrder([task("reused", after="finished before")])) == "reused"


def test_whoever_finds_no_task_to_start_waits_until_one_can_start() -> None:
    source, reused = task("source"), task("reused", after="source")
    order = TaskOrder([source, reused])
    assert order.take() == source
    found: list[Task | None] = []
    waiting = threading.Thread(target=lambda: found.append(order.take()))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    order.end(source, done=True)
    waiting.join(10)
    assert found == [reused]
    assert order.obstacle(reused) == ""


def test_a_task_whose_need_failed_is_given_out_with_the_obstacle() -> None:
    source, reused = task("source"), task("reused", after="source")
    order = TaskOrder([source, reused])
    order.take()
    order.end(source, done=False)
    assert order.take() == reused
    assert order.obstacle(reused) == "source seed 0"


def test_clearing_wakes_those_that_wait() -> None:
    order = TaskOrder([task("source"), task("reused", after="source")])
    order.take()
    waiting = threading.Thread(target=order.take)
    waiting.start()
    order.clear()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_postponed_task_comes_last_and_is_still_waited_for() -> None:
    order = TaskOrder([task("source"), task("reused", after="source"), task("plain")])
    assert taken(order) == "source"
    order.postpone(task("source"))
    assert [taken(order), taken(order)] == ["plain", "source"]
    order.end(task("source"), done=True)
    assert taken(order) == "reused"

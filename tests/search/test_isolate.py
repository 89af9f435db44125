"""One bad call takes no other down."""

import os
import signal
import time
from collections.abc import Callable

from scaleacross.search.isolate import Failure, run_isolated

CALLS: dict[str, Callable[[], object]] = {
    "fine": lambda: "value",
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(7),
    "sleep": lambda: time.sleep(60),
    "raise": lambda: 1 / 0,
}


def call(name: str) -> object:
    return CALLS[name]()


def test_every_task_gets_its_own_result() -> None:
    tasks = ["fine", "kill", "fine", "exit", "sleep", "raise", "fine"]
    start = time.monotonic()
    done = list(run_isolated(call, tasks, hard_limit=1.0))
    assert [item.task for item in done] == tasks
    kinds = [item.result.kind if isinstance(item.result, Failure) else item.result for item in done]
    assert kinds == ["value", "crash", "value", "crash", "timeout", "crash", "value"]
    assert isinstance(done[1].result, Failure) and "SIGKILL" in done[1].result.cause
    assert isinstance(done[3].result, Failure) and "exit code 7" in done[3].result.cause
    assert time.monotonic() - start < 20


def test_state_is_kept_from_task_to_task() -> None:
    seen: list[int] = []

    def remember(number: int) -> list[int]:
        seen.append(number)
        return list(seen)

    results = [item.result for item in run_isolated(remember, [1, 2, 3], hard_limit=30.0)]
    assert results == [[1], [1, 2], [1, 2, 3]]
    assert seen == []


def test_no_tasks() -> None:
    assert list(run_isolated(call, [], hard_limit=1.0)) == []

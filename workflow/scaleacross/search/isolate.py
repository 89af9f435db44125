"""Run one call after another in a child process, so that no call can take the others down with it.

A simulated point may run out of memory, crash inside compiled code or never end. Results come back one by one; when
the child dies or a call exceeds the hard time limit, that call alone gets the failure and a new child goes on with the
next.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Failure:
    """A call that gave no result: ``kind`` is ``timeout`` or ``crash``, ``cause`` one line for the user."""

    kind: str
    cause: str


@dataclass(frozen=True)
class Done(Generic[Task, Result]):
    """A task with its result or failure."""

    task: Task
    result: Result | Failure


def run_isolated(
    function: Callable[[Task], Result], tasks: Sequence[Task], hard_limit: float
) -> Iterator[Done[Task, Result]]:
    """Results of ``function(task)`` in the order of the tasks, each within ``hard_limit`` seconds of wall time.

    ``function`` runs in a forked child that keeps its state (caches, imported modules) from task to task.
    """
    context = multiprocessing.get_context("fork")
    position = 0
    while position < len(tasks):
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_serve, args=(function, tasks[position:], sending), daemon=True)
        child.start()
        sending.close()
        try:
            while position < len(tasks):
                outcome = _receive(receiving, hard_limit, child)
                yield Done(tasks[position], outcome)
                position += 1
                if isinstance(outcome, Failure):
                    break
        finally:
            receiving.close()
            _end(child)


def _serve(function: Callable[[Any], Any], tasks: Sequence[Any], connection: Connection) -> None:
    """The child: one message a task, then the end. It leads a process group, so that all of it can be ended."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):  # the parent has gone: so do we
        for task in tasks:
            connection.send(function(task))


def _receive(connection: Connection, hard_limit: float, child: Any) -> Any:
    try:
        if connection.poll(hard_limit):
            return connection.recv()
    except (EOFError, ConnectionError):
        child.join()
        code = child.exitcode
        how = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        return Failure("crash", f"the simulating process {how}")
    return Failure("timeout", f"no result within {hard_limit:g} s; the process was ended")


def _end(child: Any) -> None:
    if child.is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()  # in case it had not become the leader of its group yet
    child.join()

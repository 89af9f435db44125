"""The processes of a certified search."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any

from . import certify_worker
from .replay import compile_replay

AHEAD = 3  # tasks a process has waiting


class Pool:
    """Processes with the same study. Tasks of a plan prefer the process that knows it; who is idle takes others."""

    def __init__(self, cores: int, arguments: Sequence[Any]) -> None:
        compile_replay()  # once, before the processes fork
        self.arguments = tuple(arguments)
        self.members = [self._start() for _ in range(cores)]
        self._homes: dict[int, int] = {}
        self._load = [0] * cores
        self._place: dict[Future[Any], int] = {}

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(1, context, initializer=certify_worker.start, initargs=self.arguments)

    @property
    def room(self) -> int:
        """Tasks that may be submitted before one should wait."""
        return AHEAD * len(self.members) - sum(self._load)

    def submit(self, plan: int, method: str, *arguments: Any) -> Future[Any]:
        """A task of a plan: a method of :class:`.certify_worker.Worker`."""
        least = min(range(len(self.members)), key=self._load.__getitem__)
        place = self._homes.get(plan, least)
        if self._load[place] >= AHEAD:
            place = least
        self._homes[plan] = place
        try:
            future = self.members[place].submit(certify_worker.call, method, *arguments)
        except BrokenExecutor:  # a process that has died is started anew
            self.members[place] = self._start()
            future = self.members[place].submit(certify_worker.call, method, *arguments)
        self._load[place] += 1
        self._place[future] = place
        return future

    def done(self, future: Future[Any]) -> None:
        """A task has ended."""
        self._load[self._place.pop(future)] -= 1

    def close(self) -> None:
        """End all processes, whatever they are at."""
        for member in self.members:
            processes = list((getattr(member, "_processes", None) or {}).values())
            member.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()

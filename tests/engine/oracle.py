"""A slow, obvious simulator: one Python object a thing, one closure an event. The engine is compared with it.

It follows the rules of ``docs/astra-sim-differences.md`` literally and shares no code with :mod:`scaleacross.engine`
but the file readers. Not here: shared bus, custom collectives, shared remote memory.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scaleacross.engine import Config
from scaleacross.trace.columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, COLL, COMP, RECV, SEND, Trace

Event = Callable[[], None]


@dataclass(eq=False)
class Message:
    size: int
    at_sender: Event
    at_receiver: Event | None = None
    arrived: bool = False


@dataclass(eq=False)
class Stream:
    rank: Rank
    tag: int
    priority: int
    phases: list[tuple[str, Any]]  # (queue, algorithm)
    started: bool = False


@dataclass(eq=False)
class Node:
    id: int
    row: int
    waits: set[int]
    children: list[Node] = field(default_factory=list)


class Oracle:
    """All ranks, one clock."""

    def __init__(
        self,
        traces: list[Trace],
        config: Config,
        aware: bool = False,
        queues: int = 1,
        injection: float = 1.0,
        rendezvous: bool = False,
    ) -> None:
        self.config, self.aware, self.queues, self.rendezvous = config, aware, queues, rendezvous
        self.delay = int(config.system.endpoint_delay * injection)
        self.now, self.count = 0, 0
        self.events: list[tuple[int, int, Event]] = []
        self.timers: dict[tuple[int, int], deque[Event]] = {}
        self.sent: dict[Any, deque[Message]] = defaultdict(deque)
        self.posted: dict[Any, deque[Event]] = defaultdict(deque)
        self.links: dict[tuple[int, int], deque[Event] | None] = {}
        self.ranks = [Rank(self, number, trace) for number, trace in enumerate(traces[: config.npus])]

    def run(self) -> list[int]:
        """Finish of every rank, -1 where it has nodes left."""
        for rank in self.ranks:
            rank.issue()
        while self.events:
            self.now, _, event = heapq.heappop(self.events)
            event()
        return [rank.finish if not rank.left else -1 for rank in self.ranks]

    def at(self, time: int, event: Event) -> None:
        """Run an event at a time, behind those scheduled before for that time."""
        self.count += 1
        heapq.heappush(self.events, (time, self.count, event))

    def timer(self, rank: int, wait: int, event: Event) -> None:
        """A rank's own timers of one time run together, when the first of them would."""
        key = (rank, self.now + wait)
        if key not in self.timers:
            self.timers[key] = deque()
            self.at(key[1], lambda: self._timers(key))
        self.timers[key].append(event)

    def _timers(self, key: tuple[int, int]) -> None:
        while self.timers[key]:
            self.timers[key].popleft()()
        del self.timers[key]

    # Network
    def coordinates(self, rank: int) -> list[int]:
        found = []
        for size in self.config.network.npus_count:
            found.append(rank % size)
            rank //= size
        return found

    def transfer(self, src: int, dst: int, size: int, arrive: Event) -> None:
        network = self.config.network
        if self.aware:
            self._hop(self._route(src, dst), size, arrive)
            return
        for d, (a, b) in enumerate(zip(self.coordinates(src), self.coordinates(dst), strict=True)):
            if a != b:
                n = network.npus_count[d]
                away = abs(a - b)
                hops = {"Ring": min(away, n - away), "FullyConnected": 1, "Switch": 2}[network.topology[d]]
                wait = int(hops * network.latency[d] + size / (network.bandwidth[d] * 2**30 / 1e9))
                self.at(self.now + wait, arrive)
                return
        raise ValueError("a message to its own sender")

    def _route(self, src: int, dst: int) -> list[int]:
        n, kind = self.config.npus, self.config.network.topology[0]
        if kind == "FullyConnected":
            return [src, dst]
        if kind == "Switch":
            return [src, n, dst]
        step = -1 if n - (dst - src) % n < (dst - src) % n else 1
        path = [src]
        while path[-1] != dst:
            path.append((path[-1] + step) % n)
        return path

    def _hop(self, path: list[int], size: int, arrive: Event) -> None:
        if len(path) == 1:
            arrive()
            return
        link = (path[0], path[1])

        def go() -> None:
            self.links[link] = self.links.get(link) or deque()
            time = size / (self.config.network.bandwidth[0] * 2**30 / 1e9)
            self.at(self.now + int(self.config.network.latency[0] + time), lambda: self._hop(path[1:], size, arrive))
            self.at(self.now + int(time), lambda: self._free(link))

        waiting = self.links.get(link)
        if waiting is None:
            go()
        else:
            waiting.append(go)

    def _free(self, link: tuple[int, int]) -> None:
        waiting = self.links[link]
        if waiting:
            following = waiting.popleft()
            following()
        else:
            self.links[link] = None

    # Sends and receives: the nth send of a key meets its nth receive
    def send(self, key: tuple[int, int, int, int], done: Event) -> None:
        if self.rendezvous and key[0] < 10**9:
            self.receive((key[0] + 10**9, key[2], key[1], 8192), lambda: self._send(key, done))
        else:
            self._send(key, done)

    def receive(self, key: tuple[int, int, int, int], done: Event) -> None:
        if self.rendezvous and key[0] < 10**9:
            self._send((key[0] + 10**9, key[2], key[1], 8192), lambda: self._receive(key, done))
        else:
            self._receive(key, done)

    def _send(self, key: tuple[int, int, int, int], done: Event) -> None:
        message = Message(key[3], done)
        if self.posted[key]:
            message.at_receiver = self.posted[key].popleft()
        else:
            self.sent[key].append(message)

        def arrive() -> None:
            receiver = message.at_receiver
            message.arrived = True
            message.at_sender()
            if receiver is not None:
                receiver()

        self.transfer(key[1], key[2], key[3], arrive)

    def _receive(self, key: tuple[int, int, int, int], done: Event) -> None:
        if not self.sent[key]:
            self.posted[key].append(done)
            return
        message = self.sent[key].popleft()
        message.at_receiver = done
        if message.arrived:
            self.at(self.now, done)


class Rank:
    """One rank: its graph, its slots, its queues of streams."""

    def __init__(self, oracle: Oracle, number: int, trace: Trace) -> None:
        self.oracle, self.number, self.trace = oracle, number, trace
        self.busy = {"cpu": False, "compute": False, "comm": False}
        self.finish, self.ongoing = -1, 0
        self.queues: dict[Any, list[Stream]] = defaultdict(list)
        self.running: dict[Any, int] = defaultdict(int)
        self.robins: dict[Any, int] = {}
        self.trees: dict[Any, int] = defaultdict(int)
        self.counters: dict[int, int] = defaultdict(int)
        self.priority = 0
        ids = trace.ids.tolist()
        deps = [
            set(trace.data_deps[trace.data_ptr[k] : trace.data_ptr[k + 1]].tolist())
            | set(trace.ctrl_deps[trace.ctrl_ptr[k] : trace.ctrl_ptr[k + 1]].tolist())
            for k in range(len(ids))
        ]
        nodes = {i: Node(i, k, deps[k]) for k, i in enumerate(ids)}
        for node in nodes.values():
            for parent in node.waits:
                nodes[parent].children.append(node)
        self.ready = {node for node in nodes.values() if not node.waits}
        self.left = len(nodes)

    def slot(self, node: Node) -> str | None:
        if self.trace.is_cpu_op[node.row] == 1:
            return "cpu"
        return {COMP: "compute", RECV: None}.get(int(self.trace.types[node.row]), "comm")

    def issue(self) -> None:
        for node in sorted(self.ready, key=lambda node: node.id):
            slot = self.slot(node)
            if slot is None or not self.busy[slot]:
                self.ready.discard(node)
                self.ongoing += 1
                if slot is not None:
                    self.busy[slot] = True
                self.start(node)
        if not self.ready and not self.ongoing and self.finish < 0:
            self.finish = self.oracle.now

    def done(self, node: Node) -> None:
        slot = self.slot(node)
        if slot is not None:
            self.busy[slot] = False
        self.ongoing -= 1
        self.left -= 1
        for child in node.children:
            child.waits.discard(node.id)
            if not child.waits:
                self.ready.add(child)
        self.issue()

    def start(self, node: Node) -> None:
        trace, row, oracle = self.trace, node.row, self.oracle
        kind, size, tag = int(trace.types[row]), int(trace.comm_size[row]), int(trace.comm_tag[row])
        if kind == SEND:
            oracle.send((tag, self.number, int(trace.comm_dst[row]), size), lambda: self.done(node))
        elif kind == RECV:
            oracle.receive((tag, int(trace.comm_src[row]), self.number, size), lambda: self.done(node))
        elif kind == COLL and trace.comm_type[row] != BROADCAST:
            self.collective(node)
        else:
            oracle.timer(self.number, self.duration(row), lambda: self.done(node))

    def duration(self, row: int) -> int:
        system, trace = self.oracle.config.system, self.trace
        if system.roofline_enabled and trace.types[row] == COMP and trace.is_cpu_op[row] != 1:
            ops, size = float(trace.num_ops[row]), float(trace.tensor_size[row])
            speed = min(system.local_mem_bandwidth * 1_000_000_000 * (ops / size), system.peak_perf * 1_000_000_000_000)
            return int(ops / speed * 1e9)
        return int(trace.duration_micros[row]) * 1000 or 1

    # Collectives
    def collective(self, node: Node) -> None:
        config, trace, row = self.oracle.config, self.trace, node.row
        kind, size = int(trace.comm_type[row]), int(trace.comm_size[row])
        name = trace.pg_names[trace.pg[row]]
        group = int(name) if name not in ("", "0") else 0
        system = config.system
        chunk = size // system.preferred_dataset_splits
        if kind != ALL_GATHER and config.npus > chunk:
            chunk = config.npus
            size = chunk * system.preferred_dataset_splits
        count = math.ceil(size / chunk)
        priority = int(trace.comm_priority[row])
        if system.scheduling_policy != "EXPLICIT":
            priority = self.priority
            self.priority += 1 if system.scheduling_policy == "LIFO" else -1
        left = [count]

        def over() -> None:
            left[0] -= 1
            if left[0] == 0:
                self.done(node)

        involved = trace.involved_sets[trace.involved[row]]
        for _ in range(count):
            phases = self.phases(kind, chunk, involved, group)
            tag = group * 1_000_000 + self.counters[group]
            self.counters[group] += 1
            stream = Stream(self, tag % 500_000_000 + 500_000_000, priority, phases)
            if phases:
                self.enter(stream, over)

    def phases(self, kind: int, data: int, involved: tuple[bool, ...] | None, group: int) -> list[tuple[str, Any]]:
        config = self.oracle.config
        listed = config.system.implementations[kind]
        sizes = config.network.npus_count
        half = kind == ALL_REDUCE and config.system.collective_optimization != "baseline"
        if group and len(config.groups[group]) < config.npus:
            members = list(config.groups[group])
            impl = listed[0] if len(listed) == 1 else None
            queue, reverse = self.queue(0, int(half))
            return [(queue, Algorithm(self, impl, kind, data, members, True, reverse))]
        if listed[0].one:
            spaces = [(0, list(range(config.npus)))]
        else:
            spaces = []
            stride = 1
            for d, n in enumerate(sizes):
                own = self.number // stride % n
                if group or involved is None or involved[d]:
                    spaces.append((d, [self.number + (k - own) * stride for k in range(n)]))
                stride *= n
        if not half:
            walk = [(s, kind, 0) for s in (reversed(spaces) if kind == ALL_GATHER else spaces)]
        else:
            walk = [(s, 7, 1) for s in spaces[:-1]] + [(s, ALL_REDUCE, 1) for s in spaces[-1:]]
            walk += [(s, ALL_GATHER, 2) for s in reversed(spaces[:-1])]
        found: list[tuple[str, Any]] = []
        for (d, members), step, robin in walk:
            queue, reverse = self.queue(d, robin)
            if listed[d].algorithm == "doubleBinaryTree":
                which = self.trees[kind, d]
                self.trees[kind, d] += 1
                found.append((queue, Tree(self, data, members, which % 2)))
                continue
            algorithm = Algorithm(self, listed[d], step, data, members, False, reverse)
            found.append((queue, algorithm))
            data = {ALL_GATHER: data * len(members), 7: data // len(members)}.get(step, data)
        return found

    def queue(self, dimension: int, robin: int) -> tuple[Any, bool]:
        """Next queue of a dimension: of all, of the first half, of the second half; and whether the ring is
        reversed."""
        n = self.oracle.queues
        low, high = ((0, n), (0, n // 2), (n // 2, n))[robin]
        queue = self.robins.get((dimension, robin), low)
        self.robins[dimension, robin] = low if queue + 1 >= high else queue + 1
        return (dimension, queue), robin == 2 or (robin == 0 and n > 1 and queue >= n // 2)

    def enter(self, stream: Stream, over: Event) -> None:
        queue, algorithm = stream.phases[0]
        algorithm.stream, algorithm.over = stream, lambda: self.leave(stream, over)
        stream.started = False
        line = self.queues[queue]
        place = 0
        while place < len(line) and (line[place].started or line[place].priority >= stream.priority):
            place += 1
        line.insert(place, stream)
        self.admit(queue)

    def leave(self, stream: Stream, over: Event) -> None:
        queue, _ = stream.phases.pop(0)
        if not stream.phases:
            over()  # what starts now sees the place still taken
        self.queues[queue].remove(stream)
        if not stream.phases:
            self.running[queue] -= 1
            self.admit(queue)
            return
        following = stream.phases[0][0]
        algorithm = stream.phases[0][1]
        algorithm.stream, algorithm.over = stream, lambda: self.leave(stream, over)
        stream.started = False
        line = self.queues[following]
        place = 0
        while place < len(line) and (line[place].started or line[place].priority >= stream.priority):
            place += 1
        line.insert(place, stream)
        self.running[queue] -= 1
        self.admit(queue)
        self.admit(following)

    def admit(self, queue: Any) -> None:
        room = math.ceil(self.oracle.config.system.active_chunks_per_dimension / self.oracle.queues)
        line = self.queues[queue]
        place = self.running[queue]
        while place < len(line) and self.running[queue] < room:
            line[place].started = True
            line[place].phases[0][1].begin()
            self.running[queue] += 1
            place += 1


class Algorithm:
    """ring, direct, halving-doubling: packets are inserted, pass the endpoint (and memory), then send in order."""

    stream: Stream
    over: Event

    def __init__(
        self, rank: Rank, impl: Any, kind: int, data: int, members: list[int], group: bool, reverse: bool
    ) -> None:
        self.rank, self.kind, self.members = rank, kind, members
        self.delay = 10 if group else rank.oracle.delay
        self.me, n = members.index(rank.number), len(members)
        self.name = impl.algorithm if impl else "ring"
        part = data if kind == ALL_GATHER else data // n
        self.window, step = 1, -1 if reverse else 1
        ring = [(self.me + step) % n, (self.me - step) % n]
        if self.name == "ring":
            self.steps = {ALL_REDUCE: 2 * (n - 1), ALL_TO_ALL: n * (n - 1) // 2}.get(kind, n - 1)
            self.plan = [(*ring, part)] * (self.steps + 1)
            self.work = n - 1
        elif self.name == "direct":
            self.steps = (2 if kind == ALL_REDUCE else 1) * (n - 1)
            self.window = n - 1 if impl.window < 0 else min(impl.window, n - 1)
            turns = [(step * (k % (n - 1) + 1)) for k in range(self.steps + self.window)]
            self.plan = [((self.me + t) % n, (self.me - t) % n, part) for t in turns]
            self.work = (n - 1) * self.window if group else self.window
        else:
            self.steps = int((2 if kind == ALL_REDUCE else 1) * math.log2(n))
            self.work = int(math.log2(n) - 1)
            self.plan = self.halving(kind, data, n)
        self.part = part
        self.inserted = self.sent = self.free = self.received = self.plain = self.busy = 0
        self.reduces = False

    def halving(self, kind: int, data: int, n: int) -> list[tuple[int, int, int]]:
        offset, size, up = (n // 2, data, False) if kind == ALL_GATHER else (1, data // 2, True)
        plan = []
        for _ in range(self.steps + 2):
            back = offset > 0 and self.me // offset % 2 == 1
            peer = (self.me - offset if back else self.me + offset) % n
            plan.append((peer, peer, size))
            if up:
                offset, size = offset * 2, size // 2
                if offset == n and kind == ALL_REDUCE:
                    up, offset, size = False, offset // 2, size * 2
            else:
                offset, size = offset // 2, size * 2
        return plan

    def begin(self) -> None:
        for _ in range(self.window):
            self.insert()

    def insert(self) -> None:
        if not self.plain and not self.busy:
            self.plain, self.busy, self.reduces = self.window, self.work, not self.reduces
        work = 0
        if self.plain:
            self.plain -= 1
        else:
            self.busy -= 1
            if self.kind == 7 or (self.kind == ALL_REDUCE and self.reduces):
                work = self.plan[self.inserted][2] if self.name == "halvingDoubling" else self.part
        self.inserted += 1
        number = self.rank.number
        memory = self.rank.oracle.config.system.local_mem_bandwidth * 1_000_000_000
        timer = self.rank.oracle.timer
        if work:
            wait = 3 * int(work / memory * 1e9)
            timer(number, self.delay, lambda: timer(number, wait, self.passed))
        else:
            timer(number, self.delay, self.passed)

    def passed(self) -> None:
        self.free += 1
        half = len(self.members) - 1
        if self.name == "direct" and self.kind == ALL_REDUCE and self.steps <= half:
            if self.received < half:
                return
            for _ in range(self.window):
                self.send()
        else:
            self.send()
        if self.steps == 0 and self.free == self.window:
            self.over()

    def send(self) -> None:
        if self.sent == self.inserted or not self.steps or not self.free:
            return
        to, come, size = self.plan[self.sent]
        oracle, tag, me = self.rank.oracle, self.stream.tag, self.rank.number
        oracle.send((tag, me, self.members[to], size), lambda: None)
        oracle.receive((tag, self.members[come], me, size), self.arrived)
        self.steps, self.sent, self.free = self.steps - 1, self.sent + 1, self.free - 1

    def arrived(self) -> None:
        self.received += 1
        self.insert()


class Tree:
    """One of the two trees: reduce up, broadcast down."""

    stream: Stream
    over: Event

    def __init__(self, rank: Rank, size: int, members: list[int], which: int) -> None:
        self.rank, self.size = rank, size
        n, me = len(members), members.index(rank.number)
        parent: dict[int, int] = {}
        children: dict[int, list[int]] = defaultdict(list)

        def build(low: int, high: int, above: int) -> None:
            middle = (low + high) // 2
            parent[middle] = above
            children[above].append(middle)
            if high - low > 1:
                build(low, middle, middle)
                build(middle + 1, high, middle)

        build(*((0, n - 1, n - 1) if which == 0 else (1, n, 0)))
        self.parent = members[parent[me]] if me in parent else None
        self.children = [members[k] for k in children[me]]
        self.missing = len(self.children)

    def pass_packet(self, work: bool, then: Event) -> None:
        oracle, number = self.rank.oracle, self.rank.number
        memory = oracle.config.system.local_mem_bandwidth * 1_000_000_000
        wait = 3 * int(self.size / memory * 1e9)
        if work:
            oracle.timer(number, oracle.delay, lambda: oracle.timer(number, wait, then))
        else:
            oracle.timer(number, oracle.delay, then)

    def begin(self) -> None:
        if not self.children:
            self.pass_packet(False, self.up)
        for child in self.children:
            self.rank.oracle.receive((self.stream.tag, child, self.rank.number, self.size), self.from_child)

    def from_child(self) -> None:
        self.pass_packet(True, self.reduced)

    def reduced(self) -> None:
        self.missing -= 1
        if self.missing == 0:
            self.up() if self.parent is not None else self.down()

    def up(self) -> None:
        assert self.parent is not None
        oracle, tag, me = self.rank.oracle, self.stream.tag, self.rank.number
        oracle.send((tag, me, self.parent, self.size), lambda: None)
        work = bool(self.children)
        oracle.receive((tag, self.parent, me, self.size), lambda: self.pass_packet(work, self.down))

    def down(self) -> None:
        for child in self.children:
            self.rank.oracle.send((self.stream.tag, self.rank.number, child, self.size), lambda: None)
        self.over()

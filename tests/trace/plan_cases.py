"""Small plans of every kind, and an executor that runs traces as ASTRA-sim orders them, without a network."""

from __future__ import annotations

import heapq
import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.model import Model, Moe
from scaleacross.plan.degrees import Parallelism, Training, parallelism_from
from scaleacross.plan.placement import Placement, place
from scaleacross.plan.rules import micro_batches, validate
from scaleacross.schedule import Schedule, build
from scaleacross.trace.columns import COLL, COMP, RECV, SEND, Trace
from scaleacross.trace.generate import Generated, generate
from scaleacross.trace.ranks import RankMap

CONFIG = Path(__file__).parents[2] / "config"
H100 = load_accelerator(CONFIG / "accelerators" / "h100-sxm.yaml")
TRAINING = Training(1024, 16)
SIZES = {"hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1024, "vocab": 4096}
DENSE = Model.model_validate({"name": "dense", "layers": 8, **SIZES})
TIED = DENSE.model_copy(update={"tied_embeddings": True})
EXPERTS = DENSE.model_copy(update={"moe": Moe(experts=8, top_k=2, ffn=256, shared_experts=1)})
PREDICTING = EXPERTS.model_copy(update={"mtp_modules": 1})


class Level(NamedTuple):
    name: str
    size: int


TIERS = (Level("node", 2), Level("zone", 4), Level("campus", 2))

# name -> (model, values): every schedule shape, sharding, overlap and axis on 16 ranks
CASES: dict[str, tuple[Model, dict[str, Any]]] = {
    "1f1b": (DENSE, {"tp": 2, "pp": 4}),
    "no sequence parallelism": (DENSE, {"tp": 2, "pp": 2, "sequence_parallel": False, "scatter_gather": True}),
    "interleaved fsdp": (
        DENSE,
        {"tp": 2, "pp": 4, "schedule": "interleaved", "chunks": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"},
    ),
    "pipeline of two": (DENSE, {"pp": 2, "tp": 2, "schedule": "interleaved", "chunks": 2, "p2p_overlap": False}),
    "across": (DENSE, {"pp": 4, "order": ["dp", "tp", "cp", "pp"], "dp_overlap": "none", "dp_sharding": "ddp"}),
    "hsdp": (DENSE, {"pp": 2, "tp": 2, "dp_sharding": "hsdp", "dp_overlap": "prefetch"}),
    "reshard": (DENSE, {"pp": 2, "cp": 2, "dp_sharding": "fsdp-reshard", "dp_overlap": "prefetch"}),
    "zero2 alone": (DENSE, {"pp": 2, "cp": 2, "dp_sharding": "zero2", "dp_overlap": "none", "cp_method": "ring"}),
    "zero bubble": (DENSE, {"tp": 2, "pp": 4, "schedule": "zb-h1"}),
    "v": (DENSE, {"tp": 2, "pp": 2, "schedule": "zbv", "chunks": 2, "recompute": "selective"}),
    "tied v": (TIED, {"tp": 2, "pp": 2, "schedule": "zbv", "chunks": 2, "recompute": "full"}),
    "tied": (TIED, {"tp": 2, "pp": 4, "schedule": "gpipe"}),
    "dualpipe": (TIED, {"tp": 2, "pp": 4, "schedule": "dualpipe", "dp_overlap": "prefetch"}),
    "dualpipe-v": (EXPERTS, {"tp": 2, "pp": 4, "etp": 1, "ep": 4, "schedule": "dualpipe-v", "chunks": 2}),
    "experts": (EXPERTS, {"tp": 2, "cp": 2, "pp": 2, "ep": 4, "dp_sharding": "zero2"}),
    "experts over tensor ranks": (PREDICTING, {"tp": 2, "pp": 2, "ep": 8, "etp": 1, "dp_overlap": "prefetch"}),
    "flat rings": (
        EXPERTS,
        {"tp": 2, "pp": 2, "ep": 2, "flat_rings": ["dp", "ep"], "dp_sharding": "hsdp", "dp_overlap": "prefetch"},
    ),
    "split kv heads": (
        DENSE.model_copy(update={"kv_heads": 2}),
        {"tp": 4, "cp": 2, "pp": 2, "recompute": "full", "sequence_parallel": True},
    ),
    "one stage": (DENSE, {"tp": 2, "cp": 2, "dp_sharding": "fsdp", "dp_overlap": "prefetch"}),
    "buckets": (DENSE, {"tp": 2, "pp": 2, "bucket_layers": 3, "gradient_bytes": 2}),
    "operators": (EXPERTS, {"tp": 2, "pp": 2, "ep": 2, "granularity": "operator"}),
    "blocks": (EXPERTS, {"tp": 2, "pp": 2, "ep": 2, "granularity": "block"}),
}


@dataclass(frozen=True)
class Made:
    """A generated case."""

    model: Model
    training: Training
    parallelism: Parallelism
    placement: Placement
    schedule: Schedule
    generated: Generated

    @property
    def stage_traces(self) -> list[Trace]:
        return list(self.generated.traces.values())


def make(
    model: Model,
    values: Mapping[str, Any],
    training: Training = TRAINING,
    tiers: Sequence[Level] = TIERS,
) -> Made:
    gpus = math.prod(tier.size for tier in tiers)
    plan = parallelism_from(values, gpus)
    validate(model, training, plan, gpus)
    placement = place(plan, tiers)
    schedule = build(
        plan.schedule, plan.pp, micro_batches(training, plan), plan.chunks, **dict(plan.schedule_parameters)
    )
    generated = generate(model, training, plan, placement, schedule, H100)
    return Made(model, training, generated.parallelism, placement, schedule, generated)


def make_case(name: str, **changes: Any) -> Made:
    model, values = CASES[name]
    return make(model, {**values, **changes})


class Stuck(AssertionError):
    """Some rank never finished."""


class _Rank:
    """One rank's nodes: what is ready, what each node waits for, and its two slots."""

    def __init__(self, trace: Trace) -> None:
        count = len(trace)
        self.trace = trace
        self.waiting = [0] * count
        self.children: list[list[int]] = [[] for _ in range(count)]
        for pointers, deps in ((trace.data_ptr, trace.data_deps), (trace.ctrl_ptr, trace.ctrl_deps)):
            starts, flat = pointers.tolist(), deps.tolist()
            for node in range(count):
                for parent in flat[starts[node] : starts[node + 1]]:
                    self.waiting[node] += 1
                    self.children[parent].append(node)
        self.ready = sorted(node for node in range(count) if not self.waiting[node])
        self.types = trace.types.tolist()
        self.busy = {COMP: False, COLL: False}
        self.left = count


def execute(made: Made, seed: int | None = None, uneven: bool = False) -> float:
    """Run every rank; the time at which the last one ends.

    Issue as ASTRA-sim does: on every completion, ready nodes in ascending id whose slot is free (one for compute, one
    for sends and collectives, none for receives). Collectives are matched by members and by how many collectives the
    rank has issued before on involved dimensions, or on the same communicator. Durations are 1, or random for each
    rank and node.

    Raises:
        Stuck: with a rank that never finishes and the nodes it waits in.
    """
    return _Run(made, seed, uneven).run()


class _Run:
    def __init__(self, made: Made, seed: int | None, uneven: bool) -> None:
        self.map = RankMap.from_json(made.generated.ranks)
        self.groups = {int(key): members for key, members in (made.generated.comm_groups or {}).items()}
        self.placement, self.seed, self.uneven = made.placement, seed, uneven
        files = [entry.file for entry in self.map.classes]
        self.class_of = self.map.class_of.tolist()
        self.ranks = [_Rank(made.generated.traces[files[index]]) for index in self.class_of]
        self.events: list[tuple[float, int, int, int]] = []
        self.sent: dict[tuple[int, int, int, int], float] = {}
        self.posted: dict[tuple[int, int, int, int], tuple[int, int]] = {}
        self.issued: dict[tuple[int, str], int] = defaultdict(int)
        self.meeting: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        self.now, self.order = 0.0, itertools.count()

    def run(self) -> float:
        for rank in range(len(self.ranks)):
            self.issue(rank)
        while self.events:
            self.now, _, rank, node = heapq.heappop(self.events)
            self.complete(rank, node)
        for rank, state in enumerate(self.ranks):
            if state.left:
                stuck = [state.trace.names[node] for node in range(len(state.trace)) if state.waiting[node] == 0]
                raise Stuck(f"rank {rank} has {state.left} nodes left; met so far: {stuck[-3:]}")
        return self.now

    def after(self, delay: float, rank: int, node: int) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.order), rank, node))

    def duration(self, rank: int, node: int) -> float:
        """1, or random for each node of a class, or for each node of a rank."""
        if self.seed is None:
            return 1.0
        owner = f"r{rank}" if self.uneven else f"c{self.class_of[rank]}"
        return 0.1 + zlib.crc32(f"{self.seed} {owner} {node}".encode()) / 2**29

    def issue(self, rank: int) -> None:
        state = self.ranks[rank]
        for node in list(state.ready):
            kind = state.types[node]
            slot = COMP if kind == COMP else COLL
            if kind != RECV:
                if state.busy[slot]:
                    continue
                state.busy[slot] = True
            state.ready.remove(node)
            self.start(rank, node, kind)

    def start(self, rank: int, node: int, kind: int) -> None:
        if kind == COMP:
            self.after(self.duration(rank, node), rank, node)
        elif kind == COLL:
            self.join(rank, node)
        else:
            key = self.message(rank, node, kind)
            if kind == SEND:
                self.after(self.duration(rank, node), rank, node)
                assert key not in self.sent, f"two messages {key}"
                self.sent[key] = self.now
                if key in self.posted:
                    self.after(0.0, *self.posted.pop(key))
            elif key in self.sent:
                self.after(0.0, rank, node)
            else:
                self.posted[key] = rank, node

    def message(self, rank: int, node: int, kind: int) -> tuple[int, int, int, int]:
        trace = self.ranks[rank].trace
        peer = int((trace.comm_dst if kind == SEND else trace.comm_src)[node])
        peer = int(self.map.translate(self.class_of[rank], rank, peer))
        assert peer != rank
        ends = (rank, peer) if kind == SEND else (peer, rank)
        return (*ends, int(trace.comm_tag[node]), int(trace.comm_size[node]))

    def join(self, rank: int, node: int) -> None:
        trace = self.ranks[rank].trace
        name = trace.pg_names[trace.pg[node]]
        if name:
            group = next(
                key for key in self.map.group_families[self.map.family_of[int(name)]] if rank in self.groups[key]
            )
            members, counter = tuple(sorted(self.groups[group])), f"pg {group}"
        else:
            dims = trace.involved_sets[trace.involved[node]]
            assert dims is not None and len(dims) == len(self.placement.dims)
            members, counter = self.neighbours(rank, dims), "all"
        count = self.issued[rank, counter]
        self.issued[rank, counter] += 1
        key = (members, counter, count, int(trace.comm_type[node]), int(trace.comm_size[node]))
        here = self.meeting[key]
        here.append((rank, node))
        if len(here) == len(members):
            for member in self.meeting.pop(key):  # members finish apart where ranks are uneven, as round an uneven ring
                self.after(self.duration(*member), *member)

    def neighbours(self, rank: int, dims: tuple[bool, ...]) -> tuple[int, ...]:
        members = [rank]
        for index, used in enumerate(dims):
            if used:
                stride, size = self.placement.strides[index], self.placement.shape[index]
                bases = [member - member // stride % size * stride for member in members]
                members = sorted({base + step * stride for base in bases for step in range(size)})
        return tuple(members)

    def complete(self, rank: int, node: int) -> None:
        state = self.ranks[rank]
        kind = state.types[node]
        if kind != RECV:
            state.busy[COMP if kind == COMP else COLL] = False
        state.left -= 1
        for child in state.children[node]:
            state.waiting[child] -= 1
            if not state.waiting[child]:
                state.ready.append(child)
        state.ready.sort()
        self.issue(rank)

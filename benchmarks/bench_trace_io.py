"""Rates of reading and writing Chakra traces on one core: ``python benchmarks/bench_trace_io.py [nodes]``.

The trace is like a layer-level pipeline stage: compute, tensor-parallel collectives by dimension, data-parallel ones by
group, and one send and one receive with a tag of its own in every ``--every`` layers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from google.protobuf.internal import api_implementation
from scaleacross.trace.chakra_io import parse_trace, serialize_trace
from scaleacross.trace.columns import ALL_REDUCE, Trace, TraceBuilder

TARGET = 200_000


def build(nodes: int, every: int) -> TraceBuilder:
    """A trace of about ``nodes`` nodes with 3 to 5 attributes and 1 to 3 dependencies each."""
    builder = TraceBuilder(rank=3)
    last: list[int] = []
    layer = 0
    while len(builder) < nodes:
        where = f"m{layer % 8}.c0.l{layer % 126}"
        compute = builder.compute(f"F.{where}.attention", 10**12 + layer % 100, 10**9 + layer % 100, deps=last)
        dims = (True, False, False, False, False)
        reduced = builder.collective(f"tp.ar.{where}", ALL_REDUCE, 2**25, deps=[compute], involved=dims)
        compute = builder.compute(f"F.{where}.mlp", 3 * 10**12 + layer % 100, 2 * 10**9, deps=[reduced, compute])
        last = [builder.collective(f"dp.ar.{where}", ALL_REDUCE, 2**26, deps=[compute], pg=1 + layer % 5)]
        if layer % every == 0:
            received = builder.recv(f"pp.recv.{where}", 5, 2**24, layer, deps=last)
            last = [builder.send(f"pp.send.{where}", 5, 2**24, layer, deps=[*last, received], ctrl=[compute])]
        layer += 1
    return builder


def best(repeats: int, work: Callable[[], object]) -> float:
    """Shortest CPU time of ``work`` in seconds: other load on the machine only makes it longer."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main() -> int:
    """Print nodes/s of building, writing and reading; exit code 1 below the target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    print(f"protobuf backend: {api_implementation.Type()}; CPU time of one core, best of {args.repeats}")
    print(f"{'sends + receives':>18} {'bytes/node':>11} {'build/s':>12} {'write/s':>12} {'read/s':>12}")
    slow = False
    for every in (20, 4):
        builder = build(args.nodes, every)
        trace: Trace = builder.build()
        data = serialize_trace(trace)
        if not (parse_trace(data).nodes_equal(trace) and serialize_trace(parse_trace(data)) == data):
            raise SystemExit("a trace read back differs from the one written")
        works = (builder.build, partial(serialize_trace, trace), partial(parse_trace, data))
        rates = [len(trace) / best(args.repeats, work) for work in works]
        slow = slow or min(rates) < TARGET
        share = 2 / (2 + 4 * every)
        print(f"{share:>18.1%} {len(data) / len(trace):>11.0f} " + " ".join(f"{rate:>12,.0f}" for rate in rates))
    print(f"target {TARGET:,} nodes/s each: {'missed' if slow else 'met'}")
    return int(slow)


if __name__ == "__main__":
    raise SystemExit(main())

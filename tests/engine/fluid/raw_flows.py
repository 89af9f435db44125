"""Flows over resources of any shape, straight into the event loop; and plain twins of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scaleacross.engine.fluid import layout as L
from scaleacross.engine.fluid.build import Tables
from scaleacross.engine.fluid.loop import run
from scaleacross.engine.fluid.machine import Machine, make_machine
from scaleacross.engine.fluid.prepared import COLLECTIVE

INF = float("inf")


@dataclass(frozen=True)
class Flow:
    """Bytes over resources; ``uses``: (resource, load for a byte). ``delay``: ns before the first byte."""

    size: float
    uses: tuple[tuple[int, float], ...]
    limit: float = INF
    delay: float = 0.0


def machine_of(capacities: Sequence[float], flows: Sequence[Flow]) -> Machine:
    """A machine where every flow is a row of its own slot, all ready at time 0."""
    n = len(flows)
    everyone, ends = np.arange(n), np.arange(n + 1)
    alone = [min([flow.limit, *(capacities[r] / load for r, load in flow.uses)]) for flow in flows]
    tables = Tables(
        kind=np.full(n, COLLECTIVE),
        slot=everyone,
        job=everyone,
        channel=np.full(n, -1),
        axis=np.full(n, 5),
        sim=np.zeros(n, np.int64),
        child_ptr=np.zeros(n + 1, np.int64),
        child=np.zeros(0, np.int64),
        time=np.zeros(n),
        ready_ptr=ends,
        in_line=everyone,
        first=everyone,
        stretches=np.ones(n, np.int64),
        need=np.ones(n, np.int64),
        traffic=np.zeros(n, np.int64),
        member_ptr=ends,
        latency=np.array([flow.delay for flow in flows]),
        size=np.array([flow.size for flow in flows]),
        limit=np.array(alone),
        tightest=np.full(n, -1),
        use_ptr=np.cumsum([0, *(len(flow.uses) for flow in flows)]),
        use_resource=np.array([r for flow in flows for r, _ in flow.uses], np.int64),
        use_load=np.array([load for flow in flows for _, load in flow.uses]),
        capacity=np.array(capacities, np.float64),
        send_ptr=np.zeros(1, np.int64),
        receive_ptr=np.zeros(1, np.int64),
        turn=np.zeros(n, np.int64),
        former=np.full(n, -1),
        latter=np.full(n, -1),
        others=np.full(n, -1),
        servers=np.full((n, 2), -1),
        turn_time=np.zeros((n, 3)),
        ends_ptr=np.zeros(n + 1, np.int64),
    )
    return make_machine(tables, np.zeros(n, np.int64), False)


def loop_rates(capacities: Sequence[float], flows: Sequence[Flow]) -> NDArray[np.float64]:
    """Rates once all flows (without delay) have begun."""
    machine = machine_of(capacities, flows)
    run(machine.m, machine.f, 1)
    return machine.real("job", L.RATE)


def loop_ends(capacities: Sequence[float], flows: Sequence[Flow]) -> NDArray[np.float64]:
    """When each flow has sent its bytes."""
    machine = machine_of(capacities, flows)
    run(machine.m, machine.f, 1 << 60)
    return machine.real("row", L.END)


def naive_rates(capacities: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    """Progressive filling by the textbook: raise everybody by the least that fills something, again and again."""
    rates = [0.0] * len(flows)
    growing = set(range(len(flows)))
    while growing:
        step = min(flows[k].limit - rates[k] for k in growing)
        for r, capacity in enumerate(capacities):
            used = sum(rates[k] * load for k, flow in enumerate(flows) for q, load in flow.uses if q == r)
            weight = sum(load for k in growing for q, load in flows[k].uses if q == r)
            if weight > 0:
                step = min(step, (capacity - used) / weight)
        for k in growing:
            rates[k] += max(0.0, step)
        full = {
            r
            for r, capacity in enumerate(capacities)
            if sum(rates[k] * load for k, flow in enumerate(flows) for q, load in flow.uses if q == r)
            >= capacity * (1 - 1e-9)
        }
        growing = {
            k
            for k in growing
            if rates[k] < flows[k].limit * (1 - 1e-9) and not any(r in full for r, _ in flows[k].uses)
        }
    return rates


def naive_ends(capacities: Sequence[float], flows: Sequence[Flow]) -> list[float]:
    """Fluid progress step by step, with every rate computed anew at each change."""
    left = [flow.size for flow in flows]
    ends = [0.0] * len(flows)
    now, waiting, going = 0.0, set(range(len(flows))), set[int]()
    while waiting or going:
        going |= {k for k in waiting if flows[k].delay <= now}
        waiting -= going
        order = sorted(going)
        rates = naive_rates(capacities, [flows[k] for k in order])
        moments = [left[k] / rate for k, rate in zip(order, rates, strict=True)]
        step = min([*moments, *(flows[k].delay - now for k in waiting)])
        now += step
        for k, rate, moment in zip(order, rates, moments, strict=True):
            left[k] -= rate * step
            if moment <= step * (1 + 1e-12):
                ends[k] = now
                going.discard(k)
    return ends

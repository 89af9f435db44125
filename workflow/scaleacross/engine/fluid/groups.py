"""Collectives of communicator groups: members in list order, wherever they are on the network.

A flat ring over two buildings has one member in many that sends across the cut. What each member and each uplink
carries is counted message by message over all images of the group; the pace is that of the slowest member, because
every step of a ring waits for the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInput
from ..kernel import layout
from ..plan import Phase
from .fabric import Fabric, ring_hops
from .flows import IN, OUT, Lane, Local, Transfer, fixed_time

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
MAX_MESSAGES = 1 << 27


@dataclass
class Spread:
    """Loads for one byte a member sends, counted over all ranks and units.

    Attributes:
        ports: (level, lane) -> load of every rank's port, float64[npus].
        uplinks: (level, lane) -> load of every unit's uplink, float64[units of the level below].
    """

    fabric: Fabric
    ports: dict[tuple[int, Lane], Float64] = field(default_factory=dict)
    uplinks: dict[tuple[int, Lane], Float64] = field(default_factory=dict)

    def add(self, sources: Int64, targets: Int64, share: float) -> None:
        """Count messages of ``share`` of a byte, one from each source to its target."""
        fabric = self.fabric
        top = fabric.top(sources, targets)
        for k in range(len(fabric.levels)):
            if fabric.tiered:
                reached = (top == 0) if k == 0 else (top >= k)
                highest = top == k
            else:
                stride, size = fabric.strides[k], fabric.shape[k]
                reached = highest = sources // stride % size != targets // stride % size
            if fabric.levels[k].topology != "Switch" and highest.any():
                self._add_lanes(k, sources[highest], targets[highest], share)
                reached = reached & ~highest
            if reached.any():
                self._add(k, OUT, sources[reached], share)
                self._add(k, IN, targets[reached], share)

    def _add_lanes(self, k: int, sources: Int64, targets: Int64, share: float) -> None:
        """Messages over a level whose ports have a direction or a peer."""
        fabric, level = self.fabric, self.fabric.levels[k]
        steps = {d: (targets // fabric.strides[d] - sources // fabric.strides[d]) % fabric.shape[d] for d in level.dims}
        if level.topology == "FullyConnected":
            code = np.stack([steps[d] for d in level.dims])
            for key in np.unique(code, axis=1).T:
                lane = ("peer", *((d, int(o)) for d, o in zip(level.dims, key, strict=True) if o))
                self._add(k, lane, sources[(code == key[:, None]).all(axis=0)], share)
            return
        here = sources.copy()
        for d in level.dims:
            size, stride = fabric.shape[d], fabric.strides[d]
            forward = 2 * steps[d] <= size
            for hop in range(int(ring_hops(steps[d], size).max())):
                for sign, going in ((1, forward & (steps[d] > hop)), (-1, ~forward & (size - steps[d] > hop))):
                    if going.any():
                        self._add(k, ("ring", d, sign), here[going], share, ports=hop == 0 or not fabric.tiered)
                        at = here[going] // stride % size
                        here[going] += ((at + sign) % size - at) * stride

    def _add(self, k: int, lane: Lane, ranks: Int64, share: float, ports: bool = True) -> None:
        fabric = self.fabric
        if ports:
            if (k, lane) not in self.ports:
                self.ports[k, lane] = np.zeros(fabric.npus)
            self.ports[k, lane] += np.bincount(ranks, minlength=fabric.npus) * share
        level = fabric.levels[k]
        if fabric.tiered and level.unit > 1:
            units = fabric.npus // level.unit
            if (k, lane) not in self.uplinks:
                self.uplinks[k, lane] = np.zeros(units)
            self.uplinks[k, lane] += np.bincount(ranks // level.unit, minlength=units) * share

    def added(self, parts: Sequence[tuple[Spread, float]]) -> Spread:
        """The loads of several spreads, weighted and added up."""
        total = Spread(self.fabric)
        for part, share in parts:
            for mine, theirs in ((total.ports, part.ports), (total.uplinks, part.uplinks)):
                for key, load in theirs.items():
                    mine[key] = mine.get(key, 0.0) + load * share
        return total


def group_transfers(fabric: Fabric, phase: Phase, groups: Int64, local: Local) -> list[Transfer]:
    """The transfers of a phase over groups int64[images, members] in list order.

    Raises:
        InvalidInput: E-COLL-SIZE where the messages are too many to count.
    """
    fixed = fixed_time(phase, local)
    if phase.algorithm == layout.RING:
        nxt = np.roll(groups, -1, axis=1)
        return [_transfer(fabric, groups, [(nxt, 1.0)], fixed + _ring_latency(fabric, groups, nxt, phase.steps), phase)]
    if phase.algorithm == layout.DIRECT:
        return [_direct(fabric, phase, groups, fixed)]
    made = []
    places = np.arange(phase.nodes)
    for number, (offset, size) in enumerate(phase.table[: phase.steps]):
        partners = groups[:, places ^ offset]
        latency = float(pair_latency(fabric, groups, partners).max()) + (fixed if number == 0 else 0)
        made.append(_transfer(fabric, groups, [(partners, 1.0)], latency, phase, size))
    return made


def _direct(fabric: Fabric, phase: Phase, groups: Int64, fixed: float) -> Transfer:
    n, w = phase.nodes, phase.window
    if groups.size * (n - 1) > MAX_MESSAGES:
        clash = f"direct over groups of {n} is {groups.size * (n - 1)} messages"
        raise InvalidInput("E-COLL-SIZE", clash, "use ring, or whole dimensions")
    targets = [(np.roll(groups, -offset, axis=1), 1.0 / (n - 1)) for offset in range(1, n)]
    slowest = [float(pair_latency(fabric, groups, to).max()) for to, _ in targets]
    times = phase.steps // (n - 1)
    latency = sum(max(slowest[k : k + w]) for k in range(0, n - 1, w))
    one_by_one = np.max(sum(1.0 / pair_rate(fabric, groups, to) for to, _ in targets))  # ns for a byte to each
    made = _transfer(fabric, groups, targets, fixed + times * latency, phase)
    return replace(made, limit=min(w, n - 1) * (n - 1) / float(one_by_one))


def _transfer(
    fabric: Fabric,
    groups: Int64,
    targets: Sequence[tuple[Int64, float]],
    latency: float,
    phase: Phase,
    size: int | None = None,
) -> Transfer:
    spread = Spread(fabric)
    shares = np.zeros(len(fabric.shape))
    for to, share in targets:
        spread.add(groups.ravel(), to.ravel(), share)
        shares += share * dimension_shares(fabric, groups.ravel(), to.ravel())
    sent = phase.steps * phase.size if size is None else size
    dims = {d: float(part) for d, part in enumerate(shares) if part}
    return Transfer(latency, float(sent), spread=spread, dims=dims)


def dimension_shares(fabric: Fabric, sources: Int64, targets: Int64) -> Float64:
    """Share of the messages that counts for each dimension: the highest in which the ends differ."""
    differ = fabric.digits(sources) != fabric.digits(targets)
    highest = len(fabric.shape) - 1 - np.argmax(differ[::-1], axis=0)
    return np.bincount(highest, minlength=len(fabric.shape)) / len(sources)


def pair_latency(fabric: Fabric, sources: Int64, targets: Int64) -> Float64:
    """Nanoseconds one way: of the highest tier crossed, or of every plain dimension crossed; on a ring for each hop."""
    total = np.zeros(np.broadcast(sources, targets).shape)
    top = fabric.top(sources, targets)
    for k, level in enumerate(fabric.levels):
        hops = np.zeros_like(total)
        for d in level.dims:
            steps = (targets // fabric.strides[d] - sources // fabric.strides[d]) % fabric.shape[d]
            hops += ring_hops(steps, fabric.shape[d]) if level.topology == "Ring" else 0
        if level.topology != "Ring":
            hops += (
                (top == k)
                if fabric.tiered
                else sources // level.unit % level.size != targets // level.unit % level.size
            )
        elif fabric.tiered:
            hops *= top == k
        total += hops * level.latency
    return total


def pair_rate(fabric: Fabric, sources: Int64, targets: Int64) -> Float64:
    """Bytes per ns of a message that has every port on its way to itself."""
    rate = np.full(sources.shape, np.inf)
    top = fabric.top(sources, targets)
    for k, level in enumerate(fabric.levels):
        if fabric.tiered:
            used = (top == 0) if k == 0 else (top >= k)
        else:
            used = sources // level.unit % level.size != targets // level.unit % level.size
        rate = np.where(used, np.minimum(rate, level.port), rate)
    return rate


def _ring_latency(fabric: Fabric, groups: Int64, nxt: Int64, steps: int) -> float:
    """What the slowest block waits on its way: the latencies of ``steps`` hops in a row, wherever it starts.

    A block of a ring goes round hop by hop; only those hops that cross a cut cost the cut's latency.
    """
    hops = pair_latency(fabric, groups, nxt)
    n = hops.shape[1]
    whole, rest = divmod(steps, n)
    total = whole * hops.sum(axis=1)
    if rest:
        sums = np.cumsum(np.concatenate([np.zeros((len(hops), 1)), hops, hops[:, : rest - 1]], axis=1), axis=1)
        total = total + (sums[:, rest:] - sums[:, :-rest]).max(axis=1)
    return float(total.max())

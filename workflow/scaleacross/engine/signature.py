"""How long a collective takes each of its ranks, chunk by chunk, on the smallest set of ranks that shows it.

A collective's timing depends on its plan, the ranks' places, when each arrives relative to the others, and what
persists: the round robins of its queues and whether it starts inside the end of another stream. Ranks whose places a
translation maps on each
other, with all of that equal, behave alike: one period of each dimension (or of a group's hop pattern) is simulated.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from ..errors import Deadlock, InvalidInput
from .assemble import Assembly, Orbit, Signature
from .kernel import layout as L
from .kernel.loop import BROKEN
from .machine import Parts, RankPart
from .settings import Config, Options

Int64 = NDArray[np.int64]
Result = tuple[Int64, Int64, Int64]  # per member: end after the first arrival, lead, queue (+ 1) of the end


class Composer:
    """Times collectives, and remembers.

    Under the rendezvous protocol that is exact only where all members arrive at once; else every rank is needed.
    """

    def __init__(self, config: Config, options: Options) -> None:
        self.config, self.options = config, options
        self.known: dict[tuple[object, ...], Result] = {}

    def settle(self, assembly: Assembly) -> None:
        """Fill in the durations of every collective that waits for them."""
        m = assembly.machine.m
        orbit = int(m[L.G_NEED])
        while orbit:
            self._settle(assembly, assembly.orbit_at[orbit])
            orbit = int(m[orbit + L.O_WAITING])

    def _settle(self, assembly: Assembly, orbit: Orbit) -> None:
        m = assembly.machine.m
        kind = int(m[int(m[orbit.handle + L.O_CALL]) + L.C_SIGNATURE])
        signature = assembly.signatures[kind]
        cells = [orbit.first + k * L.MEMBER_SIZE for k in range(len(orbit.sims))]
        arrival = np.array([m[c + L.MEMBER_TIME] for c in cells], np.int64)
        stale = np.array([m[c + L.MEMBER_STALE] for c in cells], np.int64)
        robins = self._robins(assembly, orbit, signature)
        place = np.searchsorted(np.array(orbit.sims), assembly.population.sim_of[orbit.who.members])
        first = int(arrival.min())
        if self.options.rendezvous and (arrival != first).any():
            clash = "a collective whose ranks arrive at different times under the rendezvous protocol"
            raise InvalidInput("E-FOLDED", clash, "write every rank's trace with scaleacross expand")
        result = self.time(orbit, signature, (arrival - first)[place], stale[place], robins, place)
        slot = np.empty(len(orbit.sims), np.int64)
        slot[place] = np.arange(len(place))
        for cell, at in zip(cells, slot.tolist(), strict=True):
            m[cell + L.MEMBER_END] = first + int(result[0][at])
            m[cell + L.MEMBER_LEAD] = int(result[1][at])
            m[cell + L.MEMBER_QUEUE] = int(result[2][at])
        self._advance(assembly, orbit, signature)
        if signature.even and robins is None and (arrival == first).all() and (stale == stale[0]).all():
            self._remember_even(m, kind, int(stale[0]), result)

    def _remember_even(self, m: L.Memory, cell: int, stale: int, result: Result) -> None:
        known = int(m[cell + L.Y_KNOWN])
        to = cell + (L.Y_STALE if stale else L.Y_FRESH)
        if stale:
            m[cell + L.Y_QUEUE] = stale
        m[cell + L.Y_KNOWN] = known | (2 if stale else 1)
        for k in range(3):
            m[to + k] = int(result[k][0])

    def _robins(self, assembly: Assembly, orbit: Orbit, signature: Signature) -> list[list[int]] | None:
        """Round robins of each member, None where there is only one queue and no tree."""
        if self.options.queues_per_dim == 1 and all(phase.algorithm != L.TREE for phase in signature.plan.phases):
            return None
        m, cells = assembly.machine.m, 7 * self.config.network.dimensions
        first = [self._robin(m, sim) for sim in orbit.sims]
        return [[int(cell) for cell in m[at : at + cells]] for at in first]

    @staticmethod
    def _robin(m: L.Memory, sim: int) -> int:
        return int(m[int(m[L.G_RANKS]) + sim * L.R_SIZE + L.R_ROBINS])

    def _advance(self, assembly: Assembly, orbit: Orbit, signature: Signature) -> None:
        """Move the members' round robins on as the collective's chunks do."""
        if self._robins(assembly, orbit, signature) is None:
            return
        m, queues = assembly.machine.m, self.options.queues_per_dim
        dims = self.config.network.dimensions
        for sim in orbit.sims:
            for phase in signature.plan.phases:
                low, high = ((0, queues), (0, queues // 2), (queues // 2, queues))[phase.allocator]
                cell = self._robin(m, sim) + 3 * phase.level + phase.allocator
                for _ in range(signature.plan.chunks):
                    following = int(m[cell]) + 1
                    m[cell] = low if following >= high else following
                if phase.algorithm == L.TREE:
                    tree = self._robin(m, sim) + 3 * dims + 4 * phase.level + phase.family
                    m[tree] = (int(m[tree]) + signature.plan.chunks) % 2

    def time(
        self,
        orbit: Orbit,
        signature: Signature,
        arrival: Int64,
        stale: Int64,
        robins: list[list[int]] | None,
        place: Int64,
    ) -> Result:
        """Ends of all members (in the order of ``orbit.who.members``) for relative arrivals, remembered."""
        shared = robins is not None and all(robin == robins[0] for robin in robins)
        states = None if robins is None else [robins[0]] if shared else [robins[k] for k in place.tolist()]
        key = (signature.call, signature.pattern, len(place), arrival.tobytes(), stale.tobytes(), str(states))
        if key not in self.known:
            marks = np.stack([arrival, stale, np.zeros_like(place) if states is None or shared else place])
            chosen, image = self._period(orbit, signature, marks)
            parts = self._parts(orbit, signature, chosen, len(chosen) < len(image))
            if states is not None:
                parts.robins = [states[0] if shared else states[k] for k in chosen.tolist()]
            self.known[key] = self._run(parts, orbit, arrival[chosen], stale[chosen], chosen, image)
        return self.known[key]

    def _period(self, orbit: Orbit, signature: Signature, marks: Int64) -> tuple[Int64, Int64]:
        """Members to simulate, and for each member which of them stands for it."""
        plan = signature.plan
        n = marks.shape[1]
        if not orbit.who.dims:
            if plan.phases[0].algorithm == L.RING:
                costs = np.array(signature.pattern or (0,) * n, np.int64)
                period = _period_of(np.vstack([marks, costs]), n)
            elif signature.pattern:
                period = n
            else:
                period = _period_of(marks, n, plan.phases[0].algorithm == L.HALVING)
            return np.arange(period), np.arange(n) % period
        shape = [self.config.network.npus_count[d] for d in orbit.who.dims]
        by_dim = {phase.level: phase for phase in plan.phases}
        one = plan.phases[0].nodes == n and len(shape) > 1
        periods = []
        for axis, d in enumerate(orbit.who.dims):
            phase = by_dim.get(d)
            if one or phase is None or phase.algorithm == L.TREE:
                periods.append(shape[axis])
                continue
            cube = marks.reshape(len(marks), *reversed(shape))
            lines = np.moveaxis(cube, len(shape) - axis, -1).reshape(-1, shape[axis])
            periods.append(_period_of(lines, shape[axis], phase.algorithm == L.HALVING))
        if one and (marks == marks[:, :1]).all() and _alike(self.config, orbit):
            periods = [1] * len(shape)
        return _quotient(shape, periods)

    def _parts(self, orbit: Orbit, signature: Signature, chosen: Int64, folded: bool) -> Parts:
        """A machine of the chosen members: each waits for its arrival, then makes the call."""
        parts = Parts(self.config, self.options, quotient=folded)
        members = orbit.who.members
        group = 0 if orbit.who.dims else parts.put(members.tolist())
        phases = parts.add_phases(signature.plan, group)
        for k, member in enumerate(chosen.tolist()):
            cells = [0] * L.C_SIZE
            cells[L.C_CHUNKS] = signature.plan.chunks
            cells[L.C_PHASES] = phases
            cells[L.C_COUNT] = len(signature.plan.phases)
            cells[L.C_POSITION] = member
            cells[L.C_COUNTER] = parts.put([0])
            cells[L.C_PRIORITY] = signature.call.priority
            parts.ranks.append(RankPart(int(members[member]), 2 * k, 2, parts.put(cells)))
        return parts

    def _run(self, parts: Parts, orbit: Orbit, arrival: Int64, stale: Int64, chosen: Int64, image: Int64) -> Result:
        count = len(chosen)
        rows = np.zeros((2 * count, L.N_SIZE), np.int64)
        rows[::2, L.N_KIND] = np.where(stale > 0, L.STALE, L.TIMED)
        rows[::2, L.N_SLOT] = L.CPU
        rows[::2, L.N_TIME] = arrival
        rows[::2, L.N_CALL] = stale - 1
        rows[::2, L.N_CHILDREN_END] = 1
        rows[1::2, L.N_KIND] = L.COLLECTIVE
        rows[1::2, L.N_SLOT] = L.COMM
        sim_of = np.full(self.config.npus, -1, np.int64)
        sim_of[orbit.who.members] = image
        machine = parts.build(rows, np.ones(1, np.int64), np.tile([0, 1], count), sim_of)
        machine.start()
        if machine.run() == BROKEN:
            raise machine.complain()
        ends = machine.nodes(L.W_END)[1::2]
        if (ends < 0).any():
            raise Deadlock(
                "E-DEADLOCK", f"a collective of {len(image)} ranks never ends", "see its algorithm and settings"
            )
        return ends[image], machine.ranks(L.R_LEAD)[image], machine.ranks(L.R_END_QUEUE)[image]


def _period_of(lines: Int64, n: int, power_of_two: bool = False) -> int:
    """Smallest divisor p of n with every row of ``lines`` of period p (``power_of_two``: and n / p's cofactor
    aligned)."""
    for period in range(1, n):
        if n % period or (power_of_two and period & (period - 1)):
            continue
        folded = lines.reshape(len(lines), n // period, period)
        if (folded == folded[:, :1]).all():
            return period
    return n


def _quotient(shape: list[int], periods: list[int]) -> tuple[Int64, Int64]:
    """Chosen places and image of each place, for places in ascending order with the first axis fastest."""
    chosen = []
    strides = [int(np.prod(shape[:axis])) for axis in range(len(shape))]
    for coordinates in product(*(range(p) for p in reversed(periods))):
        chosen.append(sum(c * s for c, s in zip(reversed(coordinates), strides, strict=True)))
    place = np.arange(int(np.prod(shape)))
    image = np.zeros_like(place)
    factor = 1
    for axis, period in enumerate(periods):
        image += (place // strides[axis] % shape[axis] % period) * factor
        factor *= period
    return np.array(chosen, np.int64), image


def _alike(config: Config, orbit: Orbit) -> bool:
    """True when all pairs of ranks of a one* collective cost the same."""
    network = config.network
    return len({(network.bandwidth[d], network.latency[d], network.topology[d]) for d in orbit.who.dims}) == 1 and (
        network.topology[0] != "Ring"
    )

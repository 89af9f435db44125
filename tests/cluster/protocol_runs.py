"""The protocols themselves, packet by packet, over many seeds: what the closed forms are compared with."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def go_back_n(
    packets: int,
    window: float,
    time: float,
    rtt: float,
    loss: float,
    timeout: float,
    runs: int,
    seed: int,
    pairs: int = 1,
) -> Floats:
    """Delivery time of the last packet of each run: queue pairs at a fixed share of the line, NAK at the first packet
    received behind a gap, timeout where none follows."""
    rng = np.random.default_rng(seed)
    spacing, each = pairs * time, packets // pairs
    shape = (runs, pairs)
    acks = np.full((each, *shape), -np.inf)
    free = np.zeros(shape)  # when the queue pair may start its next packet
    end = np.zeros(shape)
    for i in range(each):
        start = np.maximum(free, acks[i - int(window)]) if i >= window else free.copy()
        lost = rng.random(shape) < loss
        while lost.any():
            again = start + timeout  # nobody tells
            waiting = lost.copy()
            probe = start.copy()
            for j in range(1, each - i):
                if not waiting.any() or j >= window:
                    break
                opened = acks[i + j - int(window)] if i + j >= window else -np.inf
                probe = np.maximum(probe + spacing, opened)
                told = waiting & (rng.random(shape) >= loss)
                again = np.where(told, np.minimum(again, probe + time + rtt), again)
                waiting &= ~told
            start = np.where(lost, again, start)
            lost &= rng.random(shape) < loss
        acks[i] = start + time + rtt
        free = start + spacing
        end = start + time + rtt / 2
    offset = np.arange(pairs) * time  # round robin over the queue pairs
    return np.asarray((end + offset).max(axis=1))


def selective_repeat(
    packets: int,
    window: float,
    time: float,
    rtt: float,
    loss: float,
    repair: float,
    runs: int,
    seed: int,
    pairs: int = 1,
) -> Floats:
    """Delivery time of the last packet of each run; repeats go first; each queue pair waits for its oldest packet."""
    rng = np.random.default_rng(seed)
    return np.array([_selective_run(packets, window, time, rtt, loss, repair, rng, pairs) for _ in range(runs)])


def _selective_run(
    packets: int,
    window: float,
    time: float,
    rtt: float,
    loss: float,
    repair: float,
    rng: np.random.Generator,
    pairs: int,
) -> float:
    each = packets // pairs
    nxt, base = [0] * pairs, [0] * pairs
    acked: list[set[int]] = [set() for _ in range(pairs)]
    acks: list[tuple[float, int, int]] = []
    repeats: list[tuple[float, int, int]] = []
    now = last = 0.0
    turn = done = 0
    while done < each * pairs:
        while acks and acks[0][0] <= now:
            _, q, i = heapq.heappop(acks)
            acked[q].add(i)
            while base[q] in acked[q]:
                acked[q].discard(base[q])
                base[q] += 1
        choice = None
        if repeats and repeats[0][0] <= now:
            _, q, i = heapq.heappop(repeats)
            choice = (q, i)
        else:
            for step in range(pairs):
                q = (turn + step) % pairs
                if nxt[q] < each and nxt[q] < base[q] + window:
                    choice = (q, nxt[q])
                    nxt[q] += 1
                    turn = q + 1
                    break
        if choice is None:
            now = min(queue[0][0] for queue in (acks, repeats) if queue)
            continue
        now += time
        if rng.random() < loss:
            heapq.heappush(repeats, (now + repair - time, *choice))
        else:
            done += 1
            last = max(last, now + rtt / 2)
            heapq.heappush(acks, (now + rtt, *choice))
    return last


def erasure_coding(
    groups: int,
    data: int,
    parity: int,
    code: str,
    time: float,
    rtt: float,
    loss: float,
    slack: float,
    runs: int,
    seed: int,
) -> Floats:
    """Delivery time of the last chunk of each run: a chunk takes ``time``; a group that cannot be decoded is asked for
    ``slack`` after its end, and its lost data chunks are repeated every round trip until they are there."""
    rng = np.random.default_rng(seed)
    lost = rng.random((runs, groups, data + parity)) < loss
    if code == "mds":
        failed = lost.sum(axis=2) > parity
        missing = lost[:, :, :data].sum(axis=2)
    else:
        strands = np.arange(data) % parity
        in_strand = np.stack(
            [lost[:, :, :data][:, :, strands == s].sum(axis=2) + lost[:, :, data + s] for s in range(parity)], axis=2
        )
        failed = (in_strand > 1).any(axis=2)
        bad = in_strand > 1
        missing = sum(
            (lost[:, :, :data][:, :, strands == s].sum(axis=2) * bad[:, :, s] for s in range(parity)),
            np.zeros((runs, groups), dtype=np.int64),
        )
    left = np.where(failed, missing, 0)
    free, delivered = np.zeros(runs), np.zeros((runs, groups))
    due = np.full((runs, groups), np.inf)
    rows = np.arange(runs)

    def repair(which: NDArray[np.int64], serve: NDArray[np.bool_]) -> None:
        """Repeat what is missing of one group of each run that ``serve`` names."""
        nonlocal free
        again = left[rows, which]
        free = np.where(serve, np.maximum(free, due[rows, which]) + again * time, free)
        delivered[rows, which] = np.where(serve, free + rtt / 2, delivered[rows, which])
        still = np.where(serve, rng.binomial(again, loss), again)
        left[rows, which] = still
        due[rows, which] = np.where(serve, np.where(still > 0, free + rtt, np.inf), due[rows, which])

    for g in range(groups):
        while (serve := due.min(axis=1) <= free).any():  # repairs go first
            repair(due.argmin(axis=1), serve)
        free = free + (data + parity) * time
        delivered[:, g] = free + rtt / 2
        due[:, g] = np.where(left[:, g] > 0, free + slack + rtt, np.inf)
    while (serve := np.isfinite(due.min(axis=1))).any():
        repair(due.argmin(axis=1), serve)
    return np.asarray(delivered.max(axis=1))


def tcp_average_window(loss: float, rtt: float, congestion: str, rounds: int, connections: int, seed: int) -> float:
    """Packets a round trip of TCP's congestion avoidance, averaged over connections and rounds."""
    rng = np.random.default_rng(seed)
    start = np.sqrt(1.5 / loss) if congestion == "reno" else 1.054 * (rtt / loss) ** 0.75
    window = np.full(connections, start)
    top, since = window.copy(), np.zeros(connections)
    sent = np.zeros(connections)
    for step in range(rounds):
        if step >= rounds // 4:
            sent += window
        hit = rng.random(connections) < -np.expm1(window * np.log1p(-loss))
        if congestion == "reno":
            window = np.where(hit, window / 2, window + 1)
            continue
        top = np.where(hit, window, top)
        since = np.where(hit, 0.0, since + rtt)
        k = np.cbrt(top * 0.3 / 0.4)
        friendly = 0.7 * top + 3 * 0.3 / 1.7 * since / rtt  # as fast as Reno at least
        window = np.where(hit, 0.7 * window, np.maximum(0.4 * (since - k) ** 3 + top, friendly))
    return float(sent.mean() / (rounds - rounds // 4))

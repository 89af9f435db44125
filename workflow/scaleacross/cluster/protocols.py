"""How long a message takes under each loss-recovery scheme: expected times in closed form or by one quadrature.

Notation: a message of n packets crosses a path with ``rate`` (bytes/s on the wire), ``rtt`` and packet loss
probability p; a packet takes t = mtu / rate. Losses are independent. Times run from the first byte sent to the last
byte *delivered* (half a round trip after it left), which is when ASTRA-sim lets a receive end. Every formula here is
compared in ``tests/cluster`` with a run of the protocol itself, packet by packet, over many seeds.

Go-back-N and selective repeat are renewal processes (renewal-reward theorem; S. Lin, D. J. Costello, "Error Control
Coding", on ARQ, for the open window; the closed window is derived here). Erasure coding that falls back to selective
repeat: SDR-RDMA (arXiv 2505.05366). TCP: M. Mathis et al., CCR 27(3), 1997, and RFC 8312, 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .scheme import Scheme

CUBIC_C, CUBIC_BETA = 0.4, 0.7  # RFC 8312
_GRID = 129  # points of the quadrature between two repair times
_POINTS = 8192  # in all: most of a mean is in few of many intervals


@dataclass(frozen=True)
class Path:
    """What a message crosses: ``rate`` bytes/s on the wire, ``rtt`` seconds there and back, ``loss`` of a packet."""

    rate: float
    rtt: float
    loss: float = 0.0


@lru_cache(maxsize=65536)
def completion(scheme: Scheme, path: Path, message: float) -> float:
    """Expected seconds from the first byte of ``message`` (bytes) sent to the last one delivered.

    Sliding windows without loss: packet i leaves when its predecessor has left and packet i - W has been acknowledged,
    so a window below rate * rtt sends W packets a round trip: exact.
    """
    if scheme.kind == "ideal":
        return message / path.rate + path.rtt / 2
    packets = max(1, math.ceil(message / scheme.mtu))
    time = scheme.mtu / path.rate
    if scheme.kind == "go-back-n":
        sent = _go_back_n_time(scheme, path, packets, time)
    elif scheme.kind == "selective-repeat":
        sent = _selective_repeat_time(scheme, path, packets, time)
    elif scheme.kind == "erasure-coding":
        sent = _erasure_time(scheme, path, packets, time)
    else:
        pace = scheme.mtu / goodput(scheme, path)
        sent = packets * pace + repair_tail(packets, pace, *_repeats(path.loss, path.rtt + time))
    return sent + path.rtt / 2


@lru_cache(maxsize=65536)
def goodput(scheme: Scheme, path: Path) -> float:
    """Payload bytes/s of an endless message: the slope of :func:`completion` for large ones."""
    if scheme.kind == "ideal":
        return path.rate
    time = scheme.mtu / path.rate
    if scheme.kind == "go-back-n":
        return scheme.mtu * scheme.queue_pairs / _go_back_n_pace(scheme, path, time)
    if scheme.kind == "selective-repeat":
        return scheme.mtu * scheme.queue_pairs / _selective_pace(scheme, path, time)
    if scheme.kind == "erasure-coding":
        pace = max(time, (path.rtt + time) / (scheme.window * scheme.queue_pairs))
        share = scheme.data_chunks / (scheme.data_chunks + scheme.parity_chunks)
        return scheme.mtu / pace * share / _resent(scheme, path)
    return min(path.rate * (1 - path.loss), scheme.queue_pairs * tcp_rate(scheme, path))


def wire_overhead(scheme: Scheme, path: Path) -> float:
    """Bytes that cross the links for each byte of payload: what a shared uplink has to carry."""
    p = path.loss
    if scheme.kind == "ideal":
        return 1.0
    if scheme.kind == "go-back-n":
        spacing = scheme.mtu / path.rate * scheme.queue_pairs
        flying = min(scheme.window, 1 + (path.rtt + scheme.mtu / path.rate) / spacing)
        return 1 + p / (1 - p) * flying
    if scheme.kind == "erasure-coding":
        return (1 + scheme.parity_chunks / scheme.data_chunks) * _resent(scheme, path)
    return 1 / (1 - p)


def _lossless(packets: int, window: float, time: float, rtt: float) -> float:
    """Seconds until the last of ``packets`` has left, with ``window`` packets outstanding at most: exact."""
    if window * time >= rtt + time:
        return packets * time
    rounds, rest = divmod(packets - 1, int(window))
    return rounds * (rtt + time) + (rest + 1) * time


# Go-back-N: the receiver drops everything behind a gap; its NAK makes the sender start again at the lost packet.


def _go_back_n_loss(scheme: Scheme, path: Path, time: float) -> float:
    """Seconds from a lost packet's start to its next start: the next packet arrives, and the NAK comes back.

    ``time`` is that of a packet on the wire; packets of one queue pair start ``queue_pairs * time`` apart.
    """
    return path.rtt + time + scheme.queue_pairs * time / (1 - path.loss)


def _go_back_n_pace(scheme: Scheme, path: Path, time: float) -> float:
    """Seconds a packet of one queue pair, by the renewal theorem.

    With an open window each packet costs its own spacing and, p / (1 - p) times, a loss. With a closed one a renewal is
    a burst of w packets a round trip, or one cut short by its first loss, after which the window is open again.
    """
    p, spacing, window = path.loss, scheme.queue_pairs * time, scheme.window
    round_trip = path.rtt + time
    if window * spacing >= round_trip:
        return spacing + p / (1 - p) * _go_back_n_loss(scheme, path, time)
    if p == 0:
        return round_trip / window
    whole = math.exp(window * math.log1p(-p))  # probability of a burst without loss
    delivered = (1 - p) * -math.expm1(window * math.log1p(-p)) / p  # E[min(successes before a loss, w)]
    before = max(0.0, delivered - window * whole)
    lasted = whole * round_trip + (1 - whole) * _go_back_n_loss(scheme, path, time) + before * spacing
    return lasted / delivered


def _go_back_n_time(scheme: Scheme, path: Path, packets: int, time: float) -> float:
    """The slowest queue pair decides: its losses are negative binomial, the largest of ``queue_pairs`` draws counts."""
    pairs = min(scheme.queue_pairs, packets)
    each = packets / pairs
    sent = _lossless(packets, scheme.window * pairs, time, path.rtt)
    p = path.loss
    if p == 0:
        return sent
    loss = _go_back_n_loss(scheme, path, time)
    pace, ideal = _go_back_n_pace(scheme, path, time), max(pairs * time, (path.rtt + time) / scheme.window)
    steady = min(loss, (pace - ideal) * (1 - p) / p)  # a loss that shortens a burst gives back part of the round trip
    last = min(each, scheme.window)
    cost = (last * loss + (each - last) * steady) / each
    silent = -math.expm1(pairs * math.log1p(-p)) * max(0.0, _timeout(scheme, path) - loss)  # nothing follows the last
    return sent + largest_losses(each, p, pairs) * cost + silent


def _timeout(scheme: Scheme, path: Path) -> float:
    """Seconds after which a sender that hears nothing repeats: ``timeout_rtts`` round trips, at least ``timeout``."""
    return max(scheme.timeout, scheme.timeout_rtts * path.rtt)


@lru_cache(maxsize=65536)
def largest_losses(packets: float, loss: float, draws: int) -> float:
    """Expected largest of ``draws`` counts of losses before ``packets`` successes (negative binomial)."""
    mean = packets * loss / (1 - loss)
    deviation = math.sqrt(mean / (1 - loss))
    low, high = max(0, int(mean - 12 * deviation - 40)), int(mean + 12 * deviation + 40)
    first = math.lgamma(packets + low) - math.lgamma(packets) - math.lgamma(low + 1)
    first += low * math.log(loss) + packets * math.log1p(-loss)
    k = np.arange(low + 1, high + 1, dtype=np.float64)
    logs = first + np.concatenate([[0.0], np.cumsum(np.log((packets + k - 1) / k) + math.log(loss))])
    below = np.minimum(1.0, np.cumsum(np.exp(logs)))
    return low + float((1 - below**draws).sum())


# Selective repeat: only what was lost is sent again, ``repair_rtts`` round trips after it was sent.


def _repeats(loss: float, interval: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Repair times and the probability that a unit is not there after as many: p^(j + 1)."""
    if loss == 0:
        return (0.0,), (0.0,)
    count = max(2, math.ceil(-40 / math.log(loss))) if loss < 1 else 2
    return tuple(j * interval for j in range(count)), tuple(loss ** (j + 1) for j in range(count))


def _unit(scheme: Scheme) -> int:
    """Packets that are repaired together: those of one bit of the receiver's bitmap."""
    return max(1, round(scheme.chunk / scheme.mtu)) if scheme.chunk else 1


def unit_loss(scheme: Scheme, loss: float) -> float:
    """Probability that some packet of what is repaired together (a chunk, else a packet) is lost."""
    return -math.expm1(_unit(scheme) * math.log1p(-loss))


def _selective_pace(scheme: Scheme, path: Path, time: float) -> float:
    """Seconds a packet of one queue pair.

    Sending again takes 1 / (1 - p) of the line. A window that waits for its oldest packet stalls too: a burst of w with
    a loss lasts a round trip and the repairs of its worst packet, in which the J packets before the first loss have let
    as many more follow. Renewals are the bursts.
    """
    spacing = scheme.queue_pairs * time / (1 - unit_loss(scheme, path.loss))
    round_trip, window = path.rtt + time, scheme.window
    p = unit_loss(scheme, path.loss)
    busy = window * spacing
    if p == 0:
        return max(busy, round_trip) / window
    unit = _unit(scheme)
    units = window / unit
    times, missing = _repeats(p, _repair(scheme, path, time))
    none = math.exp(units * math.log1p(-p))
    before = _before_first_loss(p, units) * unit
    lasted, delivered, reached = none * max(busy, round_trip), none * window, none
    for j in range(1, len(times)):
        done = math.exp(units * math.log1p(-missing[j]))
        chance, reached = done - reached, done
        lasted += chance * max(busy + before * spacing, round_trip + before * spacing + times[j])
        delivered += chance * (window + before)
    return lasted / delivered


def _before_first_loss(loss: float, units: float) -> float:
    """Expected units before the first loss of a burst that has one."""
    none = math.exp(units * math.log1p(-loss))
    if none > 1 - 1e-9:
        return (units - 1) / 2
    return max(0.0, (1 - loss) * (1 - none) / loss - units * none) / (1 - none)


def _repair(scheme: Scheme, path: Path, time: float) -> float:
    """Seconds from a loss to its repair: a NACK for a gap comes back in a round trip, a timeout takes several."""
    return max(scheme.timeout if scheme.repair_rtts > 1 else 0.0, scheme.repair_rtts * path.rtt) + time


def _selective_repeat_time(scheme: Scheme, path: Path, packets: int, time: float) -> float:
    pairs = min(scheme.queue_pairs, packets)
    window = scheme.window * pairs
    sent = _lossless(packets, window, time, path.rtt)
    unit, p = _unit(scheme), unit_loss(scheme, path.loss)
    if p == 0:
        return sent
    repeats = _repeats(p, _repair(scheme, path, time))
    stream = sent + min(packets, window) * time * p / (1 - p)
    tail = repair_tail(max(1, math.ceil(min(packets, window) / unit)), time * unit, *repeats)
    if packets <= window:
        return stream + tail
    # Beyond the last window stalls slow the stream. The pair with the worst stalls or the one with the worst tail ends
    # last: the mean of the maximum of sums is at least the larger of these two.
    each, own = packets / pairs - scheme.window, max(1, math.ceil(scheme.window / unit))
    ideal = max(pairs * time, (path.rtt + time) / scheme.window)
    stall = each * (_selective_pace(scheme, path, time) - ideal)
    losses = -math.expm1(scheme.window / unit * math.log1p(-p)) / scheme.window  # bursts with a loss, a packet
    worst = stall * largest_losses(each, losses, pairs) / (each * losses / (1 - losses))
    return stream + max(stall + tail, worst + repair_tail(own, pairs * time * unit, *repeats))


# Erasure coding: k chunks of data travel with m of parity; what cannot be decoded falls back to selective repeat.


@lru_cache(maxsize=4096)
def undecodable(scheme: Scheme, chunk_loss: float) -> float:
    """Probability that a group of ``data_chunks`` + ``parity_chunks`` cannot be decoded.

    ``mds``: more than m of k + m are lost. ``xor``: parity i covers the data chunks i, i + m, i + 2 m ...; one of the m
    strands has lost more than one of its chunks (SDR-RDMA, arXiv 2505.05366).
    """
    k, m, p = scheme.data_chunks, scheme.parity_chunks, chunk_loss
    if p == 0:
        return 0.0
    if m == 0:
        return -math.expm1(k * math.log1p(-p))
    if scheme.code == "mds":
        return float(_binomial(k + m, p)[m + 1 :].sum())
    sizes = [len(range(strand, k, m)) + 1 for strand in range(m)]
    return -math.expm1(sum(math.log1p(-float(_binomial(size, p)[2:].sum())) for size in sizes))


def _binomial(n: int, p: float) -> NDArray[np.float64]:
    """P(j of n), j = 0 .. n."""
    logs = [
        math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1) + j * math.log(p) + (n - j) * math.log1p(-p)
        for j in range(n + 1)
    ]
    return np.exp(np.array(logs))


@lru_cache(maxsize=4096)
def missing_when_undecodable(scheme: Scheme, chunk_loss: float) -> float:
    """Expected data chunks lost in a group that cannot be decoded: what the fallback sends again.

    ``mds``: of the j > m chunks lost, k / (k + m) are data. ``xor``: in a failed strand, of the j > 1 lost likewise.
    """
    k, m, p = scheme.data_chunks, scheme.parity_chunks, chunk_loss
    if undecodable(scheme, p) < 1e-300:
        return 1.0
    if scheme.code == "mds" or m == 0:
        chances, floor = _binomial(k + m, p), m + 1
        lost = float((np.arange(floor, k + m + 1) * chances[floor:]).sum() / chances[floor:].sum())
        return max(1.0, lost * k / (k + m))
    members = max(2, round(k / m) + 1)
    chances = _binomial(members, p)
    failed = float(chances[2:].sum())
    lost = float((np.arange(2, members + 1) * chances[2:]).sum()) / failed * (members - 1) / members
    return max(1.0, lost * m * failed / undecodable(scheme, chunk_loss))


def _resent(scheme: Scheme, path: Path) -> float:
    """Transmissions for each first one, fallback included."""
    p = unit_loss(scheme, path.loss)
    if p == 0:
        return 1.0
    group = scheme.data_chunks + scheme.parity_chunks
    return 1 + undecodable(scheme, p) * missing_when_undecodable(scheme, p) / (1 - p) / group


def _erasure_time(scheme: Scheme, path: Path, packets: int, time: float) -> float:
    """All chunks of data and parity are sent once. A group that fails is asked for ``slack_rtts`` round trips after its
    end; the answer needs one more, and selective repeat from then on."""
    unit, p = _unit(scheme), unit_loss(scheme, path.loss)
    group = scheme.data_chunks * unit
    groups = max(1, math.ceil(packets / group))
    carried = packets + groups * scheme.parity_chunks * unit
    sent = _lossless(carried, scheme.window * scheme.queue_pairs, time, path.rtt)
    failed = undecodable(scheme, p)
    if failed < 1e-300:
        return sent
    sent *= 1 + (_resent(scheme, path) - 1) * (groups - 1) / groups  # what the last group repeats is in the tail
    first = (1 + scheme.slack_rtts) * path.rtt
    lost = missing_when_undecodable(scheme, p)
    step = _repair(scheme, path, time)
    repairs = max(2, math.ceil(-40 / math.log(p))) if p < 1 else 2
    times = (0.0, *(first + lost * unit * time + j * step for j in range(repairs)))
    missing = (failed, *(failed * -math.expm1(lost * math.log1p(-(p ** (j + 1)))) for j in range(repairs)))
    return sent + repair_tail(groups, sent / groups, times, missing)


@lru_cache(maxsize=65536)
def repair_tail(units: int, pace: float, times: tuple[float, ...], missing: tuple[float, ...]) -> float:
    """Expected seconds from the end of sending to the arrival of the last repair: the mean of a maximum.

    Unit u from the end (0 .. units - 1) was sent u * ``pace`` earlier. It is there after j repairs, the j-th of which
    comes ``times[j]`` after it was sent, except with probability ``missing[j]``. So within y of the end of sending all
    are there with probability prod_u (1 - missing[j(u, y)]), and the mean is the integral of its complement.
    """
    if missing[0] == 0:
        return 0.0
    edges = np.array(times)
    keep = np.log1p(-np.minimum(np.array(missing), 1 - 1e-15))
    points = max(9, min(_GRID, _POINTS // len(edges)))
    y = np.concatenate([np.linspace(a, b, points)[:-1] for a, b in pairwise(edges)])
    # number of units whose time since they were sent, at y, is below an edge
    younger = np.clip(np.ceil((np.append(edges[1:], np.inf)[:, None] - y) / pace), 0, units)
    counts = np.diff(younger, axis=0, prepend=0)
    pending = -np.expm1((counts * keep[:, None]).sum(axis=0))
    return float(np.trapezoid(np.append(pending, 0.0), np.append(y, edges[-1])))


# TCP


def tcp_window(loss: float, rtt: float, congestion: str) -> float:
    """Average congestion window in packets, infinite without loss.

    Reno: sqrt(3 / (2 p)) (Mathis et al. 1997). CUBIC: (C (3 + b) / (4 (1 - b)))^(1/4) (RTT / p)^(3/4) with C = 0.4 and
    b = 0.7, and never below Reno (RFC 8312, 5.1). Both take losses as evenly spaced; with independent ones Reno's mean
    is 7 % larger (constant 1.31 for 1.22, Mathis et al.) and CUBIC's about 20 %.
    """
    if loss == 0:
        return math.inf
    reno = math.sqrt(1.5 / loss)
    if congestion == "reno":
        return reno
    scale = (CUBIC_C * (3 + CUBIC_BETA) / (4 * (1 - CUBIC_BETA))) ** 0.25
    return max(reno, scale * (rtt / loss) ** 0.75)


def tcp_rate(scheme: Scheme, path: Path) -> float:
    """Bytes/s of one connection: its socket buffer or its congestion window, whichever is smaller, a round trip.

    Connections are taken as warm (they live as long as the training), so that slow start does not count.
    """
    window = min(scheme.window, tcp_window(path.loss, path.rtt, scheme.congestion))
    return min(path.rate, window * scheme.mtu / (path.rtt + scheme.mtu / path.rate))

"""What all algorithms share: a stream's phase, the ranks around it, the way of a packet through the endpoint."""

from __future__ import annotations

from .bus import enter_bus
from .layout import (
    C_PHASES,
    C_POSITION,
    G_BUS,
    G_ENDPOINT,
    G_NOW,
    I_BUNDLE,
    P_ALGORITHM,
    P_GROUP,
    P_LOCAL,
    P_NODES,
    P_SIZE,
    P_STRIDE,
    R_TRUE,
    S_CALL,
    S_PHASE,
    S_RANK,
    TREE,
    Memory,
)
from .pools import register

LOCAL_DELAY = 10  # ns at the endpoint for groups smaller than the world


def phase_of(m: Memory, stream: int) -> int:
    """The record of the phase that the stream is in."""
    return m[m[stream + S_CALL] + C_PHASES] + P_SIZE * m[stream + S_PHASE]


def index_in_ring(m: Memory, stream: int, phase: int) -> int:
    """This rank's place among the phase's ranks."""
    if m[phase + P_GROUP] != 0:
        return m[m[stream + S_CALL] + C_POSITION]
    true = m[m[stream + S_RANK] + R_TRUE]
    return (true // m[phase + P_STRIDE]) % m[phase + P_NODES]


def rank_at(m: Memory, stream: int, phase: int, index: int, other: int) -> int:
    """True rank at place ``other`` of the ring in which this stream's rank has place ``index``."""
    group = m[phase + P_GROUP]
    if group != 0:
        return m[group + other]
    true = m[m[stream + S_RANK] + R_TRUE]
    return true + (other - index) * m[phase + P_STRIDE]


def bundle(
    m: Memory, h: Memory, f: Memory, stream: int, phase: int, work: int, size: int, to_memory: int, returns: int
) -> None:
    """A packet of ``size`` bytes passes the endpoint (or the shared bus, ``to_memory`` or back); ``work``: bytes that
    are reduced behind it, 0 for none; ``returns``: it crosses the bus once more after that."""
    rank = m[stream + S_RANK]
    local = m[phase + P_LOCAL] == 1 and m[phase + P_ALGORITHM] != TREE
    if m[G_BUS] == 1 and not local:
        enter_bus(m, h, f, rank, stream, size, work, to_memory, returns)
        return
    register(m, h, rank, m[G_NOW] + (LOCAL_DELAY if local else m[G_ENDPOINT]), I_BUNDLE, stream, work)

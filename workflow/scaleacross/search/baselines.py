"""What the baselines of a study stand for: where each comes from, what is assumed about it, what is left out.

A baseline of a study fixes some dimensions and gets the best point that matches them: what it leaves open is chosen for
it, by our simulator. With ``picked_by: sailor`` a cost model of its own picks the plan among the points that match and
our simulator only judges it (see :mod:`.sailor`). ``best_of`` takes the fastest of others. The texts here go by the
name a study gives to a baseline; a name that is not known needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..study.tables import Row

BEST_OF, PICKED_BY = "best_of", "picked_by"
_TIE = 1e-9  # relative; plans that a cost model cannot tell apart


@dataclass(frozen=True)
class Definition:
    """Attributes: ``says`` what the baseline is; ``source``; ``assumptions``; ``left_out`` of the published system."""

    says: str
    source: str
    assumptions: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


DEFINITIONS: dict[str, Definition] = {
    "production": Definition(
        "inner axes in a node and a zone, data parallelism outermost across buildings, interleaved 1F1B, rings; where "
        "the study fixes degrees, chunks and micro-batch too, one configuration for every environment",
        "Llama 3 (arXiv 2407.21783, section 3.3: order TP, CP, PP, DP; interleaved pipeline; FSDP) and NCCLX "
        "(arXiv 2510.20171: ring collectives across zones and buildings)",
        (
            "this is our reading of a production configuration; ScaleAcross Explorer (arXiv 2605.24326) does not "
            "publish its own",
            "where a study sweeps transports, production's is RoCE with go-back-N: what RoCE NICs do by default; no "
            "source states the one between Meta's buildings",
        ),
    ),
    "production-tuned": Definition(
        "production's arrangement, schedule, collectives and transport with its own best degrees, chunks, micro-batch "
        "and recomputation in every environment",
        "as production",
        ("more generous than a configuration that an operator keeps: its knobs are chosen anew by our simulator",),
    ),
    "crosspipe": Definition(
        "pipeline parallelism across the cut with a schedule made for the cut's delay",
        "CrossPipe (arXiv 2507.00217): schedules from a solver or a greedy that knows delays, separate from the order "
        "of communication, with data-parallel communication overlapped",
        (
            "the order of actions is that of our own greedy scheduler for given durations and delays, since CrossPipe's"
            " code is not public; it is never slower in its own estimate than 1F1B, interleaved or zero-bubble orders "
            "that keep the same memory",
            "generous: chunks, micro-batch, degrees, sharding, recomputation, collectives and transport are chosen for "
            "it, and gradients and parameters overlap with the pipeline as in any other design",
        ),
        ("CrossPipe's joint ordering of gradient reductions and activations on the link",),
    ),
    "atlas": Definition(
        "pipeline parallelism across the cut, replicas of it beside each other, several connections a node pair",
        "ATLAS (arXiv 2411.14458)",
        (
            "several connections a node pair: the link's stated bandwidth is reached (transport ideal, or the best of "
            "those swept, of which tcp-16 is its own)",
            "generous: degrees, micro-batch, sharding, recomputation and collectives are chosen for it; 1F1B with one "
            "chunk a rank, since no source tells of chunks in ATLAS",
        ),
        (
            "temporal sharing of the wide-area link between replicas, unless a study sets wan_sharing: temporal; it is "
            "shared equally at every instant otherwise. A certified search, and so the paper's experiment, has no "
            "bounds for turns: a replica in its turn is faster than its own port, and one that is ahead of the others "
            "meets less traffic inside a building",
            "filling bubbles with inference (BubbleTea)",
        ),
    ),
    "sailor": Definition(
        "the plan that Sailor's cost model finds fastest, judged by our simulator",
        "Sailor (arXiv 2504.17096) and its published code: T = (M - 1) max(compute + p2p) + sum(p2p) + sum(compute) + "
        "largest ring all-reduce of a stage in buckets of 500 MB",
        (
            "it picks among the points of the study that fit by our memory model; knobs its cost model does not see "
            "are chosen for it by our simulator",
            "1F1B with one chunk a rank, the only schedule that its cost model has",
            "compute times are ours instead of its profiles; a link has the bandwidth of one pair of GPUs alone, as "
            "its profiler measures it, so it sees no oversubscription",
        ),
        ("its choice of GPU types and counts a stage; the optimizer's update in its estimate",),
    ),
}


def described(baselines: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every baseline of a study as plain data: what it fixes and, where its name is known, what it stands for."""
    result: dict[str, dict[str, Any]] = {}
    for name, wanted in baselines.items():
        entry: dict[str, Any] = {"definition": dict(wanted)}
        known = DEFINITIONS.get(name)
        if known is not None:
            entry.update(says=known.says, source=known.source)
            entry.update(assumptions=list(known.assumptions), left_out=list(known.left_out))
        result[name] = entry
    return result


def baseline_notes(baselines: Iterable[str], assumed: bool) -> Iterator[dict[str, str]]:
    """The texts of known baselines as the report lists them: assumptions and what is left out, or sources."""
    for name in baselines:
        known = DEFINITIONS.get(name)
        if known is None:
            continue
        subject = f"baseline {name}"
        if assumed:
            yield from ({"subject": subject, "text": text} for text in known.assumptions)
            yield from ({"subject": subject, "text": f"left out: {text}"} for text in known.left_out)
        else:
            yield {"subject": f"{subject} ({known.says})", "text": known.source}


def cost_column(picker: str) -> str:
    """Key under which a row carries the estimate of a cost model, in seconds."""
    return f"{picker}_estimate_s"


def picked(rows: Sequence[Row], picker: str) -> list[Row]:
    """The rows that a cost model likes best: all those whose estimate is the least (it cannot tell them apart)."""
    column = cost_column(picker)
    costs = [row[column] for row in rows if row.get(column) is not None]
    if not costs:
        return []
    least = min(costs)
    return [row for row in rows if row.get(column) is not None and row[column] <= least * (1 + _TIE)]


def pickers(baselines: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Cost models that some baseline asks for."""
    return {str(wanted[PICKED_BY]) for wanted in baselines.values() if PICKED_BY in wanted}

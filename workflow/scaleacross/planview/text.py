"""A plan's facts as text for a terminal of 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..units import GIB
from .words import count, runs, scaled, sequence, table

WIDTH = 100
PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activ.",
    "buffers": "buffers",
}
_QUIET: dict[str, Any] = {  # knobs said elsewhere, or not worth a word at these values
    "tp": None,
    "cp": None,
    "pp": None,
    "dp": None,
    "ep": 1,
    "etp": None,
    "order": None,
    "micro_batch": None,
    "chunks": None,
    "schedule": None,
    "schedule_parameters": None,
    "dp_shard": 0,
    "flat_rings": [],
    "layout": None,
    "scatter_gather": False,
    "fixed_order": False,
    "tp_overlap": False,
}


def plan_text(facts: Mapping[str, Any], gantt: Sequence[str]) -> str:
    """The whole text: header, placement, groups, stages, schedule; lines of at most 100 characters."""
    parts = [_header(facts), _placement(facts), _groups(facts), _stages(facts), _schedule(facts, gantt)]
    return "\n\n".join("\n".join(part) for part in parts)


def _header(facts: Mapping[str, Any]) -> list[str]:
    plan, model, training = facts["parallelism"], facts["model"], facts["training"]
    degrees = " x ".join(f"{axis} {plan[axis]}" for axis in plan["order"])
    experts = f"; experts ep {plan['ep']} x etp {plan['etp']}" if plan["ep"] > 1 else ""
    knobs = [
        f"{name} {_plain(value)}"
        for name, value in plan.items()
        if name not in _QUIET or (_QUIET[name] is not None and value != _QUIET[name])
    ]
    knobs += [f"{name} {value}" for name, value in plan["schedule_parameters"] if not isinstance(value, list)]
    lines = [
        f"{facts['study']}: {facts['chosen']}",
        f"point {facts['point_id']}, plan {facts['plan_id']}",
        f"{model['name']}: {model['parameters'] / 1e9:,.1f} B parameters, {model['layers']} layers; sequence "
        f"{count(training['sequence_length'])}, global batch {count(training['global_batch'])}, "
        f"{training['precision']}, {training['optimizer']}",
        f"{degrees} = {count(facts['gpus'])} GPUs ({facts['cluster']['accelerator']}, {facts['cluster']['name']})"
        f"{experts}; {count(facts['micro_batches'])} micro-batches of {plan['micro_batch']}",
        ", ".join(knobs),
    ]
    if facts["problem"]:
        lines.append(f"NOT FEASIBLE  {facts['problem']}")
    return list(_wrapped(lines))


def _placement(facts: Mapping[str, Any]) -> list[str]:
    tiers = {tier["name"]: tier for tier in facts["cluster"]["tiers"]}
    rows = []
    stride = 1
    for dim in facts["dimensions"]:
        tier = tiers[dim["tier"]]
        speed = scaled(tier["bandwidth"] / tier["oversubscription"], "B/s")
        latency = f"{tier['latency'] * 1e6:.4g} us"
        groups = " ".join(name for name in dim["groups"] if name != dim["axis"])
        rows.append(
            [str(dim["index"]), dim["tier"], dim["axis"], count(dim["size"]), count(stride), speed, latency, groups]
        )
        stride *= dim["size"]
    order = ", ".join(facts["parallelism"]["order"])
    title = f"NETWORK DIMENSIONS, inner to outer (order {order}); ranks are numbered by them, dimension 0 fastest"
    head = ["dim", "tier", "axis", "size", "rank step", "a GPU", "latency", "other groups"]
    return [*_wrapped([title]), *table(head, rows, right=(0, 3, 4, 5, 6))]


def _groups(facts: Mapping[str, Any]) -> list[str]:
    cut = facts["cluster"]["cut"]
    rows, rings = [], []
    for alike in _same_ranks(facts["groups"]):
        names = " ".join(group["group"] for group in alike)
        group = max(alike, key=lambda own: float(own["bytes_sent_per_rank"]))
        rows.append(
            [
                names,
                count(group["size"]),
                count(group["count"]),
                " ".join(group["tiers"]),
                "yes" if group["crosses_cut"] else "no",
                count(group["operations"]) if group["operations"] else "-",
                scaled(group["bytes_sent_per_rank"], "B"),
                scaled(group["bytes_moved_per_group"], "B"),
            ]
        )
        crossings = ", ".join(f"{tier} {number}" for tier, number in group["ring_crossings"].items())
        rings.append([names, sequence(group["ring"]), crossings])
    head = ["group", "size", "count", "tiers it spans", "cut", "ops", "sent a GPU", "moved a group"]
    title = (
        f"PROCESS GROUPS; cut: whether it crosses tier {cut}, the slowest; collectives or messages and bytes an "
        "iteration, of the busiest rank and of the busiest group"
    )
    first = "RING ORDER of the group of rank 0, and how many links of that ring cross which tier"
    return [
        *_wrapped([title]),
        *table(head, rows, right=(1, 2, 5, 6, 7)),
        "",
        first,
        *_cropped(table(["group", "ring", "links"], rings)),
    ]


def _same_ranks(groups: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Groups of the same ranks (rank 0's ring stands for all) together, in the order of the first of them."""
    found: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for group in groups:
        found.setdefault((group["size"], *group["ring"]), []).append(group)
    return list(found.values())


def _stages(facts: Mapping[str, Any]) -> list[str]:
    limit = facts["memory_limit"]
    told = _told_tiers(facts["stages"])
    places = []
    for stage in facts["stages"]:
        units = [f"{tier} {runs(numbers)}" for tier, numbers in stage["units"].items() if tier in told]
        places.append([str(stage["stage"]), count(len(stage["ranks"])), runs(stage["ranks"]), "; ".join(units)])
    memory = []
    for stage in facts["stages"]:
        own = stage["memory"]
        ends = ("E+" if stage["embedding"] else "", "+L" if stage["loss"] else "")
        layers = " ".join(runs(chunk) if chunk else "none" for chunk in stage["layers"])
        total = sum(len(chunk) for chunk in stage["layers"])
        memory.append(
            [
                f"{stage['stage']}",
                f"{ends[0]}{total}{ends[1]}",
                layers,
                count(stage["in_flight"]),
                *(f"{own[part] / GIB:.1f}" for part in PARTS),
                f"{own['total'] / GIB:.1f}",
            ]
        )
    heads = ["stage", "layers", "which", "held", *PARTS.values(), "total"]
    return [
        "RANK MAP (--rank-map FILE writes every rank)",
        *_cropped(table(["stage", "ranks", "which", "where"], _folded(places), right=(0, 1))),
        "",
        f"MEMORY of a rank of each stage, GiB of {limit / GIB:.1f} (E embedding, L loss; held: chunks in flight)",
        *_cropped(table(heads, _short(_folded(memory), 2, 18), right=(0, 1, 3, 4, 5, 6, 7, 8, 9))),
    ]


def _told_tiers(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tiers that say where a stage is: those of more than one unit, the innermost left out where there are more."""
    tiers = [tier for tier in stages[0]["units"] if len({unit for own in stages for unit in own["units"][tier]}) > 1]
    return tiers[1:] if len(tiers) > 1 else tiers


def _schedule(facts: Mapping[str, Any], gantt: Sequence[str]) -> list[str]:
    own = facts["schedule"]
    title = (
        f"SCHEDULE {own['name']}: {own['stages']} stages, {own['chunks']} chunks each, {own['micro_batches']} "
        f"micro-batches; about {own['estimated_seconds']:.3g} s without contention and without data-parallel traffic, "
        f"idle for {100 * own['bubble_over_ideal']:.1f} % of the work's time"
    )
    order = [[str(stage), _beginning(steps)] for stage, steps in enumerate(own["order"])]
    starts = table(["stage", "pass, micro-batch.chunk"], _folded(order), right=(0,))
    return [*_wrapped([title]), "", *gantt, "", "START OF THE ORDER", *_cropped(starts)]


def _beginning(steps: Sequence[str]) -> str:
    """As many steps as fit into a line."""
    text = ""
    for step in steps:
        if len(text) + len(step) > WIDTH - 16:
            return f"{text} ..."
        text += f" {step}" if text else step
    return text


def _folded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of following stages that differ in the stage alone as one row ``3-12``."""
    folded = []
    for key, own in groupby(rows, key=lambda row: tuple(row[1:])):
        numbers = [row[0] for row in own]
        name = numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        folded.append([name, *key])
    return folded


def _short(rows: Sequence[Sequence[str]], column: int, most: int = 24) -> list[list[str]]:
    """Rows with one column cut to a length."""
    return [
        [cell if index != column or len(cell) <= most else f"{cell[: most - 3]}..." for index, cell in enumerate(row)]
        for row in rows
    ]


def _wrapped(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]


def _cropped(lines: Sequence[str]) -> list[str]:
    return [line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)

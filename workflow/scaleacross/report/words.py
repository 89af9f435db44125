"""Numbers and findings in the words of an engineer: units, names of dimensions, the winner and why it wins."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from ..search.objective import Objective
from .columns import tier_of
from .findings import PARTS, TIME, Against, Findings
from .tables import Row, number_of, text_of

AXES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "ep": "expert parallel",
    "pp": "pipeline parallel",
    "dp": "data parallel",
}

_NAMES = {
    **{axis: f"{name} (degree)" for axis, name in AXES.items()},
    "etp": "expert tensor parallel (degree)",
    "order": "placement, inner to outer",
    "schedule": "pipeline schedule",
    "chunks": "chunks a rank (virtual stages)",
    "micro_batch": "micro-batch (sequences)",
    "dp_sharding": "data-parallel sharding",
    "dp_overlap": "data-parallel overlap",
    "recompute": "recomputation",
    "collective": "collective algorithm",
}

#: Short names for a legend.
PART_NAMES = {
    "compute_s": "compute",
    "exposed_tp_s": "exposed TP",
    "exposed_cp_s": "exposed CP",
    "exposed_ep_s": "exposed EP",
    "exposed_pp_s": "exposed PP",
    "exposed_dp_s": "exposed DP",
    "exposed_other_s": "exposed, other",
    "idle_s": "idle (bubble, waiting)",
}

PART_PHRASES = {
    "compute_s": "compute",
    "exposed_tp_s": "exposed tensor-parallel communication",
    "exposed_cp_s": "exposed context-parallel communication",
    "exposed_ep_s": "exposed expert-parallel communication",
    "exposed_pp_s": "exposed pipeline communication",
    "exposed_dp_s": "exposed data-parallel communication",
    "exposed_other_s": "other exposed communication",
    "idle_s": "idle time (pipeline bubble, waiting)",
}


#: What columns are called in figures and sentences, with their unit.
_COLUMNS = {
    "iteration_time_s": ("time of one iteration", "s"),
    "tokens_per_s": ("tokens a second", ""),
    "tflops_per_gpu": ("model FLOP/s a GPU", "TFLOP/s"),
    "mfu": ("model FLOPs utilization", ""),
    "gpus": ("GPUs", ""),
    "usd_per_hour": ("price of an hour", "USD"),
    "usd_per_iteration": ("cost of one iteration", "USD"),
    "tokens_per_usd": ("tokens per dollar", ""),
    "energy_kwh_per_iteration": ("energy of one iteration, at most", "kWh"),
    "memory_gib": ("memory of a GPU, heaviest stage", "GiB"),
}


def column_words(name: str) -> tuple[str, str]:
    """What a column of ``results.csv`` is called, and its unit."""
    for kind, phrase in (("cut", "traffic through the {} cut, busiest unit"), ("sent", "traffic of a GPU over {}")):
        tier = tier_of(name, kind)
        if tier:
            return phrase.format(tier), "GB an iteration"
    if name in PART_PHRASES:
        return PART_PHRASES[name], "s"
    return _COLUMNS.get(name, (name.replace("_", " "), ""))


def column_label(name: str) -> str:
    """A column as the label of an axis: ``time of one iteration (s)``."""
    words, unit = column_words(name)
    return f"{words} ({unit})" if unit else words


def number(value: float | None, digits: int = 3) -> str:
    """Three or so significant digits, plain notation with thousands separators: 0.0123, 4.57, 123, 12,300."""
    if value is None or value != value:
        return "–"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    if abs(rounded) >= 10 ** (digits - 1):
        return f"{rounded:,.0f}"
    if abs(rounded) < 1e-4:
        return f"{rounded:.{digits - 1}e}"
    decimals = 0
    while round(rounded, decimals) != rounded:
        decimals += 1
    significant = len(f"{abs(rounded):.{decimals}f}".replace(".", "").lstrip("0"))
    return f"{rounded:.{decimals + max(0, digits - significant)}f}"


def compact(value: float) -> str:
    """A large number with a letter for its size: 1.83 M, 521 k, 12.3."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return number(value / size) + letter
    return number(value)


def seconds(value: float | None, like: float | None = None) -> str:
    """A duration with the unit that suits it (or suits ``like``): 5.43 s, 87.0 ms, 12.0 us, 3.10 min."""
    if value is None or value != value:
        return "–"
    size = abs(value if like is None or like != like else like)
    if size >= 600:
        return f"{number(value / 60)} min"
    if size >= 0.9995 or size == 0:
        return f"{number(value)} s"
    return f"{number(value * 1e3)} ms" if size >= 0.9995e-3 else f"{number(value * 1e6)} us"


def percent(fraction: float | None) -> str:
    """A fraction as percent, one decimal: 0.0312 is 3.1 %."""
    return "–" if fraction is None or fraction != fraction else f"{fraction * 100:.1f} %"


def signed_percent(fraction: float | None) -> str:
    """The same with its sign, one decimal, two below a tenth of a percent: +28.6 %, +0.02 %."""
    if fraction is None or fraction != fraction:
        return "–"
    decimals = 2 if 0 < abs(fraction) < 0.001 else 1
    return f"{fraction * 100:+.{decimals}f} %".replace("-", "−")


def name_of(dimension: str) -> str:
    """Name of a dimension in the field's terms."""
    return _NAMES.get(dimension, dimension.replace("_", " "))


def wrapped(text: str, width: int, lines: int = 3) -> str:
    """Text for a label, broken at spaces into at most so many lines of so many characters, cut with an ellipsis."""
    broken = textwrap.wrap(
        text, width, break_long_words=True, break_on_hyphens=False, max_lines=lines, placeholder=" …"
    )
    return "\n".join(broken)


def axes_of(order: str) -> list[str]:
    """Axes in a placement order however it is written: ``[tp, cp, pp, dp]``, ``tp-cp-pp-dp``."""
    return re.findall(r"[a-z]+", order.lower())


def value_of(dimension: str, value: object) -> str:
    """A dimension's value as people write it: a placement becomes ``tp → cp → pp → dp``."""
    text = str(value)
    if dimension == "order":
        axes = axes_of(text)
        return " → ".join(axes) if axes else text
    return text.strip("[]").replace("'", "").replace('"', "") if text.startswith("[") else text


def environment_text(environment: Mapping[str, str]) -> str:
    """An environment in one line: ``oversubscription 1:2.8, uplink latency 75 us``; empty for the only one."""
    return ", ".join(
        f"{name_of(name)} {value}".replace(" ", "\N{NO-BREAK SPACE}") for name, value in environment.items()
    )


def _degree(point: Row, axis: str) -> int:
    text = text_of(point, axis)
    return int(text) if text.isdigit() else 0


def crosses(point: Row) -> bool:
    """Whether the point uses more than one unit of the outermost tier (told by its traffic there, else taken as so)."""
    sent = [name for name in point if tier_of(name)]
    return not sent or number_of(point, sent[-1]) != 0


def crossing_axis(point: Row) -> str | None:
    """The axis laid outermost with more than one member: what crosses the slow cut (or one of untold degree)."""
    for axis in reversed(axes_of(text_of(point, "order"))):
        if axis in AXES and (_degree(point, axis) > 1 or axis not in point):
            return axis
    return None


def short_label(point: Row, varied: tuple[str, ...]) -> str:
    """A point in a figure's label: the values of what the study varies, degrees as ``pp16``."""
    words = []
    for name in varied:
        value = value_of(name, point[name])
        if name == "order":
            axis = crossing_axis(point)
            words.append(f"{axis} {'across' if crosses(point) else 'outermost'}" if axis else value)
        elif name == "chunks":
            words.append(f"{value} chunk{'s' * (value != '1')}")
        elif name == "micro_batch":
            words.append(f"micro-batch {value}")
        else:
            words.append(f"{name}{value}" if name in AXES else f"{name_of(name)} {value}" if value.isdigit() else value)
    return ", ".join(words) or text_of(point, "point_id")


def design_words(findings: Findings, point: Row) -> list[str]:
    """What to run, a phrase each: degrees, axis across the slow cut, schedule, sharding, collective, the rest."""
    degrees = [f"{axis.upper()} {point[axis]}" for axis in AXES if _degree(point, axis) > 1]
    words = [" × ".join(degrees)] if degrees else []
    axis = crossing_axis(point)
    if axis and crosses(point):
        tiers = findings.facts.tiers or tuple(findings.tiers)
        words.append(f"{AXES[axis]} crosses {f'the {tiers[-1]} cut' if tiers else 'the slowest cut'}")
    if "schedule" in point:
        chunks = _degree(point, "chunks")
        words.append(f"{point['schedule']} schedule" + (f", {chunks} chunks a rank" if chunks > 1 else ""))
    for name, phrase in (
        ("micro_batch", "micro-batch {}"),
        ("dp_sharding", "{} sharding"),
        ("collective", "{} collectives"),
    ):
        if name in point:
            words.append(phrase.format(point[name]))
    told = {*AXES, "order", "schedule", "chunks", "micro_batch", "dp_sharding", "collective"}
    words += [f"{name_of(name)} {value_of(name, point[name])}" for name in findings.varied if name not in told]
    return words or [text_of(point, "point_id")]


def speedup_sentence(item: Against, objective: Objective) -> str:
    """How much better than a baseline, or that the baseline has no point."""
    if item.point is None or item.speedup is None:
        return f"No feasible point matches the baseline “{item.baseline}” here, so there is nothing to compare with."
    if item.point is item.best:
        return f"The baseline “{item.baseline}” is itself the best design found."
    times = f"{seconds(number_of(item.best, TIME))} an iteration against {seconds(number_of(item.point, TIME))}"
    if objective.is_time:
        return f"{signed_percent(item.speedup)} training speed over {item.baseline}: {times}."
    costs = [f"{number(number_of(row, 'usd_per_iteration'))} USD" for row in (item.best, item.point)]
    return (
        f"{signed_percent(item.gain(objective))} tokens per dollar over {item.baseline}: an iteration costs {costs[0]} "
        f"against {costs[1]} ({signed_percent(item.speedup)} training speed: {times})."
    )


def score_text(objective: Objective, score: float) -> str:
    """A score with its unit: ``5.73 s``, ``3.11 USD per million tokens``."""
    return seconds(score) if objective.is_time else f"{number(score)} {objective.unit}"


def alternative_sentence(item: Mapping[str, Any], objective: Objective, varied: Iterable[str]) -> str:
    """A point to take instead of the winner: what it costs, what it saves, and what it does differently."""
    words, unit = column_words(str(item["column"]))
    costs = float(item["costs_pct"])
    price = "As good" if costs <= 0 else f"{costs:.{2 if costs < 0.1 else 1}f} % {_WORSE[objective.name]}"
    values = f"{number(float(item['value']))} instead of {number(float(item['winner']))} {unit}".strip()
    changes = ", ".join(
        f"{name_of(name)} {value_of(name, change['to'])}" for name, change in item["changed"].items() if name in varied
    )
    return f"{price}: {words} {values}" + (f", with {changes}." if changes else ".")


#: By objective: what a gain is called, and its formula.
GAINS = {
    "iteration_time": ("training speedup", "baseline time / best time − 1"),
    "tokens_per_usd": ("gain in tokens per dollar", "best tokens per dollar / baseline's − 1"),
}
_WORSE = {"iteration_time": "slower", "tokens_per_usd": "more dollars a token"}


def tie_sentence(findings: Findings) -> str:
    """That other designs are as fast as the winner, and in what they differ; empty when there are none."""
    winner, ties = findings.winner(), findings.ties()
    if winner is None or not ties:
        return ""
    names = [name for name in findings.varied if any(row[name] != winner[name] for row in ties)]
    count = "One other point is" if len(ties) == 1 else f"{len(ties)} other points are"
    good = "fast" if findings.objective.is_time else "cheap"
    return f"{count} exactly as {good}, with other values of {', '.join(map(name_of, names))}."


def why_sentences(item: Against) -> list[str]:
    """Which parts of the iteration shrank and which grew, largest first, those above 1 % of the baseline's time."""
    if item.point is None or item.point is item.best:
        return []
    base, best = item.point, item.best
    gpus = [f"{number_of(row, 'gpus'):,.0f}" for row in (best, base)]
    if gpus[0] != gpus[1]:
        shares = [percent(number_of(row, "mfu")) for row in (best, base)]
        return [f"It runs on {gpus[0]} GPUs instead of {gpus[1]}, at {shares[0]} of their peak instead of {shares[1]}."]
    change = {part: number_of(best, part) - number_of(base, part) for part in PARTS}
    floor = 0.01 * number_of(base, TIME)
    shrank = sorted((part for part in PARTS if change[part] < -floor), key=lambda part: change[part])
    grew = sorted((part for part in PARTS if change[part] > floor), key=lambda part: -change[part])

    def told(part: str) -> str:
        before, after = (seconds(number_of(row, part), like=number_of(base, TIME)) for row in (base, best))
        return f"{PART_PHRASES[part]} ({before} → {after})"

    sentences = []
    if shrank:
        sentences.append(f"The gain comes from less {told(shrank[0])}{_then(map(told, shrank[1:]))}.")
    if grew:
        sentences.append(f"It pays with more {told(grew[0])}{_then(map(told, grew[1:]))}.")
    return sentences


def _then(phrases: Iterable[str]) -> str:
    found = list(phrases)
    if not found:
        return ""
    return ", then " + (" and ".join(found) if len(found) < 3 else ", ".join(found[:-1]) + " and " + found[-1])


def differences(findings: Findings, best: Row, base: Row) -> list[str]:
    """Names of the dimensions in which two points differ."""
    return [name for name in findings.dimensions if best[name] != base[name]]

"""The report's section on why the headline design was chosen and what would change that (``optimum.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..schema import read_yaml
from .words import name_of, number, signed_percent, value_of


def change_section(folder: Path) -> dict[str, Any]:
    """What each knob bought, and the thresholds, as text; all empty where the folder has no ``optimum.yaml``."""
    path = folder / "optimum.yaml"
    entry: Mapping[str, Any] = (read_yaml(path)["environments"] if path.is_file() else [{}])[0]
    thresholds = entry.get("thresholds") or {}
    return {
        "knobs": [_knob(name, knob) for name, knob in (entry.get("knobs") or {}).items()],
        "nearest": nearest(thresholds),
        "rows": [_row(item) for item in thresholds.get("network", ())],
        "unchanged": _unchanged(thresholds),
        "memory": memory_sentences(thresholds),
        "basis": basis(thresholds),
    }


def _knob(name: str, knob: Mapping[str, Any]) -> dict[str, str]:
    how = "nothing else changed" if knob["alone"] else "the others chosen anew"
    return {
        "name": name_of(name),
        "value": value_of(name, knob["value"]),
        "instead": value_of(name, knob["instead"]),
        "costs": ("at most " if knob["at_most"] else "") + signed_percent(knob["costs_pct"] / 100),
        "how": how,
    }


def nearest(thresholds: Mapping[str, Any]) -> str:
    """The nearest threshold of the network in a sentence; empty where none was looked for."""
    if "network" not in thresholds:
        return str(thresholds.get("note", ""))
    if not thresholds["network"]:
        return "No change of one network number within the reach makes another design win."
    item = thresholds["network"][0]
    side = "at and above" if item["wins"]["factor"] > 1 else "at and below"
    first, end = item["wins"], item.get("at_end")
    text = f"{_what(item)} {side} {first['value']} (now {item['now']}): {_design(first)} wins"
    if not end:
        return text + "."
    other = end["point_id"] != first["point_id"]  # yet another design may be ahead at the end of the reach
    by = f"by {end['margin_pct']:.1f} % at {end['value']}"
    return text + (f"; {_design(end)} {by}." if other else f", {by}.")


def memory_sentences(thresholds: Mapping[str, Any]) -> list[str]:
    """What more or less memory a GPU would change."""
    told, memory = [], thresholds.get("memory", {})
    less, more = memory.get("less"), memory.get("more", {})
    if less:
        text = (
            f"The design needs {number(less['needs_gib'])} GiB of {number(less['limit_gib'])} GiB, so "
            f"{number(less['headroom_gib'])} GiB are left"
        )
        below = less.get("below_that")
        after = "; no other design that was simulated needs less"
        if below:
            after = f"; with less it does not fit, and {_design(below)} is best ({below['slower_pct']:.1f} % slower)"
        told.append(text + after + ".")
    if "wins" in more:
        wins = more["wins"]
        told.append(
            f"With {number(wins['more_gib'])} GiB more ({number(wins['needs_gib'])} GiB), {_design(wins)} would fit "
            f"and win by {wins['margin_pct']:.1f} %."
        )
    elif more.get("looked_at"):
        told.append(f"No design that needs up to {number(more['until_gib'])} GiB would win with more memory.")
    return told


def basis(thresholds: Mapping[str, Any]) -> str:
    """What was looked at, and what counts as winning."""
    if "looked_at" not in thresholds:
        return ""
    noise = thresholds["model_noise_pct"]
    return (
        f"Looked at: {thresholds['looked_at']}. Designs within {thresholds['tie_pct']:g} % count as equal; within "
        f"{noise:g} % they tie within the model. {thresholds['simulations']:,} simulations."
    )


def _row(item: Mapping[str, Any]) -> dict[str, str]:
    clear, end = item.get("wins_clearly"), item.get("at_end")
    return {
        "what": _what(item),
        "now": item["now"],
        "from": item["wins"]["value"],
        "clearly": clear["value"] if clear else "–",
        "end": f"{end['margin_pct']:.1f} % at {end['value']}" if end else "–",
        "design": _design(end or item["wins"]),
        "proof": {True: "yes", False: "of the simulated designs"}.get(item.get("certified", True), ""),
    }


def _unchanged(thresholds: Mapping[str, Any]) -> str:
    return "; ".join(f"{_what(item)} ({item['now']} to {item['until']})" for item in thresholds.get("unchanged", ()))


def _what(item: Mapping[str, Any]) -> str:
    return f"{item['quantity']} of the {item['tier']} tier"


def _design(item: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in item["design"].items()) or str(item["point_id"])

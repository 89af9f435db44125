"""The report's section on what joint optimization is worth (``interplay.csv``) and on the search's certificate."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..schema import read_yaml
from ..search.interplay import sentence
from .words import number


def joint_section(folder: Path, headline: Mapping[str, str]) -> dict[str, Any]:
    """Rows of the headline environment as text, a sentence on each environment, and lines on the search.

    All empty where the study's folder holds no such files.
    """
    rows = _rows(folder / "interplay.csv")
    environments = {tuple(row[name] for name in headline) for row in rows}
    sentences = []
    for values in sorted(environments, key=lambda values: values != tuple(headline.values())):
        place = dict(zip(headline, values, strict=True))
        told = sentence(rows, place)
        if told:
            sentences.append((", ".join(f"{name} {value}" for name, value in place.items()), told))
    own = [row for row in rows if all(row[name] == value for name, value in headline.items())]
    table = [
        {
            "method": row["method"] + (f": {row['order']}" if row["order"] else ""),
            "time": _seconds(row["iteration_time_s"]),
            "loss": f"{float(row['loss_pct']):.2f} %" if row["loss_pct"] else "–",
            "pair": row["pair"],
            "dimensions": row["dimensions"],
        }
        for row in own
    ]
    return {"rows": table, "sentences": sentences, "search": _search(folder / "certificate.yaml")}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def _seconds(text: str) -> str:
    return f"{number(float(text), 4)} s" if text else "–"


def _search(path: Path) -> list[str]:
    """A sentence an environment on what a certified search has shown."""
    if not path.is_file():
        return []
    lines = []
    for entry in read_yaml(path)["environments"]:
        place = ", ".join(f"{name} {value}" for name, value in entry["environment"].items())
        lines.append(
            (f"{place}: " if place else "")
            + f"{entry['simulated']:,} of {entry['points']:,} points were simulated, {entry['pruned']:,} have a lower "
            f"bound that rules them out, {entry['infeasible']:,} are infeasible."
        )
    return lines

"""Result rows of published studies beside the measured values their files state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from ..model import load_model, training_flops
from ..study.published import Published
from ..study.tables import Row, cell, read_csv


@dataclass(frozen=True)
class Comparison:
    """One published row.

    Attributes:
        table, row: Where it is published, and its name there.
        study, point_id: What was simulated.
        gpus: GPUs of the run.
        published_s, predicted_s: Seconds an iteration.
        flops_per_gpu: Model FLOPs a GPU an iteration, in the row's convention.
        parts: Seconds of the predicted time by what a GPU does (columns of ``results.csv``), which add up to it.
        held_out: Whether nothing was chosen with this row in view.
        note: How the published value was derived.
    """

    table: str
    row: str
    study: str
    point_id: str
    gpus: int
    published_s: float
    predicted_s: float
    flops_per_gpu: float
    parts: Mapping[str, float]
    held_out: bool = False
    note: str = ""

    @property
    def error_pct(self) -> float:
        """Predicted over published time, minus one, in percent: below zero is predicted too fast."""
        return 100.0 * (self.predicted_s / self.published_s - 1.0)


@dataclass(frozen=True)
class Order:
    """Pairs of rows of one table whose published values differ by more than ``TIE``, and how many of them are predicted
    the other way round."""

    pairs: int
    inversions: int


@dataclass(frozen=True)
class Summary:
    """Errors of a set of rows, percent: mean and largest absolute value, mean with its sign (``bias_pct``); and the
    order of rows within each table, by time and by rate (FLOP/s a GPU)."""

    rows: int
    mean_pct: float
    worst_pct: float
    bias_pct: float
    by_time: Order
    by_rate: Order


# Published rates are whole numbers near 140, so that times closer than this are not known to differ.
TIE = 0.005


def compare(tables: Iterable[Path]) -> list[Comparison]:
    """Comparisons of published studies from their ``results.csv``, by table and published time; the design lies in
    the folder beside the table.

    Raises:
        InvalidInput: E-FILE for a missing file, E-PUBLISHED for a row without exactly one ok point.
    """
    found: list[Comparison] = []
    for table in tables:
        content = _read_design(table.parent / "design/study.json")
        rows = read_csv(table)
        for entry in content["study"]["published"]:
            found.append(_comparison(Published.model_validate(entry), content, rows))
    return sorted(found, key=lambda item: (item.table, item.published_s, item.gpus))


def summarise(rows: Sequence[Comparison]) -> Summary:
    """Errors over some rows; order is judged within each published table."""
    errors = [row.error_pct for row in rows]
    count = max(1, len(errors))
    return Summary(
        rows=len(errors),
        mean_pct=sum(map(abs, errors)) / count,
        worst_pct=max(map(abs, errors), default=0.0),
        bias_pct=sum(errors) / count,
        by_time=_order(rows, [(row.published_s, row.predicted_s) for row in rows]),
        by_rate=_order(
            rows, [(row.flops_per_gpu / row.published_s, row.flops_per_gpu / row.predicted_s) for row in rows]
        ),
    )


def _order(rows: Sequence[Comparison], values: Sequence[tuple[float, float]]) -> Order:
    pairs = wrong = 0
    for (one, first), (other, second) in combinations(zip(rows, values, strict=True), 2):
        if one.table == other.table and abs(first[0] / second[0] - 1) > TIE:
            pairs += 1
            wrong += (first[0] < second[0]) != (first[1] < second[1])
    return Order(pairs, wrong)


def _comparison(entry: Published, content: Mapping[str, Any], rows: Sequence[Row]) -> Comparison:
    name = content["study"]["name"]
    same = [row for row in rows if all(row[key] == cell(value) for key, value in entry.when.items())]
    fitting = [row for row in same if row["status"] == "ok"]
    if len(fitting) != 1:
        reasons = "; ".join(row["reason"] for row in same if row["reason"]) or "no point has these values"
        clash = f"{name}: {len(fitting)} ok points for {entry.table}, {entry.row} ({reasons})"
        raise InvalidInput("E-PUBLISHED", clash, "mend the study, or the key 'when' of its published row")
    row = fitting[0]
    model = load_model(Path("config/models") / f"{content['study']['model']}.yaml")
    training, gpus = content["study"]["training"], int(row["gpus"])
    sequence, document = training["sequence_length"], training.get("document_length", 0.0)
    tokens = sequence * int(row.get("global_batch", training["global_batch"]))  # a dimension of that name replaces it
    peak = float(row["tflops_per_gpu"]) * 1e12 / float(row["mfu"])
    parts = {key: float(text) for key, text in row.items() if _is_part(key) and text}
    return Comparison(
        table=entry.table,
        row=entry.row,
        study=name,
        point_id=row["point_id"],
        gpus=gpus,
        published_s=entry.seconds(model, sequence, {"gpus": gpus, "tokens": tokens, "peak_flops": peak}, document),
        predicted_s=float(row["iteration_time_s"]),
        flops_per_gpu=training_flops(model, tokens, sequence, entry.flops, document) / gpus,
        parts=parts,
        held_out=entry.held_out,
        note=entry.note,
    )


def _is_part(name: str) -> bool:
    return name in ("compute_s", "idle_s") or (name.startswith("exposed_") and name.endswith("_s"))


def _read_design(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput("E-FILE", f"cannot read {path} ({error})", "run snakemake published") from None
    return dict(content)

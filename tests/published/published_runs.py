"""Published studies through the steps of the flow, in this process and without Snakemake."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from scaleacross.astra.render import write_config
from scaleacross.files import package_digest
from scaleacross.model import load_model
from scaleacross.search.evaluate import Evaluator, Pair
from scaleacross.study.design import design
from scaleacross.study.flow import published_studies
from scaleacross.study.published import Published
from scaleacross.study.schema import load_study
from scaleacross.study.traces import write_traces

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "config/studies"
NAMES = published_studies(STUDIES)
# Studies whose traces have many thousands of nodes a stage.
LARGE = {"korthikanti-1t", "korthikanti-530b", "korthikanti-530b-dp8", "narayanan-1008b", "narayanan-529-6b"}
LARGE |= {"narayanan-310-1b", "korthikanti-175b", "narayanan-145-6b", "llama3-8k", "megatron-175b-1024"}
LARGE |= {"megascale-175b-batch-768", "megascale-175b-batch-6144", "nvidia-llama3-70b", "nvidia-llama3-405b"}


@dataclass(frozen=True)
class Run:
    """A published row and the time predicted for it, seconds."""

    entry: Published
    published_s: float
    predicted_s: float

    @property
    def error_pct(self) -> float:
        return 100 * (self.predicted_s / self.published_s - 1)


def run(name: str, folder: Path) -> list[Run]:
    """Design, trace, render and simulate a published study."""
    import json

    study = load_study(f"published/{name}", studies=STUDIES)
    designed = design(study, ROOT)
    settings = {"simulator": study.simulator, "network_model": study.network_model, "time_limit_s": 60.0}
    evaluate = Evaluator(settings, None, folder)
    runs = []
    for entry in study.published:
        (row,) = [row for row in designed.rows if row["status"] == "feasible" and entry.fits(row)]
        plan = designed.plans[row["plan_id"]]
        write_traces(folder / row["plan_id"], plan.content)
        write_config(folder / row["config_id"], designed.configs[row["config_id"]])
        pair = Pair(
            row["plan_id"],
            row["config_id"],
            str(folder / row["plan_id"] / "workload"),
            str(folder / row["config_id"]),
            json.dumps(plan.work),
            package_digest("engine"),
        )
        result = evaluate(pair)
        assert result["status"] == "ok", result["reason"]
        seconds = entry.seconds(
            load_model(ROOT / "config/models" / f"{study.model}.yaml"),
            study.training.sequence_length,
            plan.work,
            study.training.document_length,
        )
        runs.append(Run(entry, seconds, result["iteration_time_s"]))
    return runs


def stated() -> dict[tuple[str, str], float]:
    """(table, row) -> error in percent as ``docs/validation.csv`` states it."""
    with (ROOT / "docs/validation.csv").open(newline="") as stream:
        return {(row["table"], row["row"]): float(row["error_pct"]) for row in csv.DictReader(stream)}

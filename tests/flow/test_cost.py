"""A study of tokens per dollar over the number of buildings, through the commands of the flow, report included."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from scaleacross.cli.main import main
from scaleacross.errors import InvalidInput
from scaleacross.study.flow import Flow, prepare_all
from scaleacross.study.tables import Row, read_csv

Edit = Callable[[str, str, str], None]
NUMBERS = (
    "gpus", "iteration_time_s", "tokens_per_s", "usd_per_hour", "usd_per_iteration", "tokens_per_usd",
    "energy_kwh_per_iteration", "memory_gib", "sent_campus_gb", "cut_campus_gb",
)  # fmt: skip
STUDY = """
name: cost
model: tiny
cluster: tiny-2dc
training: {sequence_length: 1024, global_batch: 64}
fixed: {tp: 4}
dimensions:
  buildings: [1, 2]
  order: [[tp, cp, pp, dp], [tp, cp, dp, pp]]
  pp: [1, 2]
environment:
  oversubscription: ["1:8"]
baselines:
  production: {buildings: 2, order: [tp, cp, pp, dp]}
objective: tokens_per_usd
require: ["memory_gib <= 80", "cut_campus_gb <= LIMIT"]
"""


@pytest.fixture
def priced(project: Path, edit: Edit) -> Path:
    """The project with a priced cluster of one or two buildings and a study of its cost."""
    edit("config/clusters/tiny-2dc.yaml.j2", "accelerator: h100-sxm", "accelerator: h100-sxm\nprice: 2 usd/hour")
    edit("config/clusters/tiny-2dc.yaml.j2", "size: 2\n", "size: {{ buildings }}\n    egress: 0.02 usd/GB\n")
    return project


def design(limit: str) -> Flow:
    """Design the study with a limit of the traffic across the campus."""
    Path("config/studies/cost.yaml").write_text(STUDY.replace("LIMIT", limit))
    return prepare_all({"study": "cost", "batches": 1})["cost"]


def simulate(flow: Flow) -> None:
    """From the design to the rows."""
    folder = flow.folder
    traces = f"{folder}/traces/batch_000.json"
    for command in (
        ["render", f"{folder}/design/configs.json", f"--folder={flow.configs}", f"--output={folder}/configs.json"],
        ["trace", f"{folder}/design/plans_000.json", f"--output={traces}"],
        ["simulate", f"{folder}/design/runs_000.json", f"--traces={traces}", f"--configs={flow.configs}",
         f"--output={flow.row_files[0]}"],
    ):  # fmt: skip
        assert main(command) == 0, command


def decide(flow: Flow, *more: str) -> Path:
    """From the rows to the report; the folder of the results. ``more``: options of ``select``."""
    folder = Path(flow.folder)
    table, study = f"{folder}/results.csv", ["--study", f"{folder}/design/study.json"]
    decided = [f"--{name}={folder}/{name}.csv" for name in ("speedups", "interplay", "pareto")]
    for command in (
        ["aggregate", *flow.row_files, "--points", flow.points_file, *study, "--output", table,
         f"--provenance={folder}/provenance.yaml"],
        ["select", table, *study, f"--optimum={folder}/optimum.yaml", *decided, *more],
        ["report", f"{folder}/design/study.json", f"--output={folder}/report.html", "--no-timelines"],
        ["verdict", table, *study, f"--output={folder}/verdict.txt"],
    ):  # fmt: skip
        assert main(command) == 0, command
    return folder


@pytest.mark.usefixtures("priced")
def test_dollars_decide_over_buildings_and_requirements_reject(capsys: pytest.CaptureFixture[str]) -> None:
    flow = design("1e9")
    simulate(flow)
    folder = decide(flow)
    rows = read_csv(folder / "results.csv", NUMBERS)
    ok = [row for row in rows if row["status"] == "ok"]
    assert {(row["buildings"], row["gpus"], row["usd_per_hour"]) for row in ok} == {
        ("1", 16.0, 32.0), ("2", 32.0, 64.0)
    }  # fmt: skip
    for row in ok:
        assert int(row["dp"]) * 4 * int(row["pp"]) == row["gpus"]  # dp follows from the buildings
        egress = row["gpus"] * row["sent_campus_gb"] * 0.02
        assert row["usd_per_iteration"] == pytest.approx(row["usd_per_hour"] * row["iteration_time_s"] / 3600 + egress)
        assert row["tokens_per_usd"] == pytest.approx(64 * 1024 / row["usd_per_iteration"])
        assert row["energy_kwh_per_iteration"] == pytest.approx(row["gpus"] * 0.7 * row["iteration_time_s"] / 3600)
        assert (row["sent_campus_gb"] > 0) == (row["cut_campus_gb"] > 0) == (row["buildings"] != "1")
    optimum = yaml.safe_load((folder / "optimum.yaml").read_text())
    (entry,) = optimum["environments"]
    assert optimum["objective"] == "tokens_per_usd" and optimum["pareto"]["exact"] is True
    assert entry["tokens_per_usd"] == max(row["tokens_per_usd"] for row in ok)
    assert entry["design"]["buildings"] == "1" and entry["gpus"] == 16
    assert min(row["iteration_time_s"] for row in ok) < entry["iteration_time_s"]  # the fastest is another one
    (gain,) = read_csv(folder / "speedups.csv", ("gain_pct", "speedup_pct", "best_tokens_per_usd", "baseline_time_s"))
    production = [row for row in ok if row["buildings"] == "2" and row["order"] == "tp-cp-pp-dp"]
    wanted = 100 * (entry["tokens_per_usd"] / max(row["tokens_per_usd"] for row in production) - 1)
    assert gain["gain_pct"] == pytest.approx(wanted) and gain["speedup_pct"] < 0
    fronts = list(csv.DictReader((folder / "pareto.csv").open()))
    assert {row["front"] for row in fronts} == {
        "tokens_per_usd iteration_time_s", "tokens_per_usd memory_gib", "tokens_per_usd cut_campus_gb"
    }  # fmt: skip
    assert {row["buildings"] for row in fronts if row["front"] == "tokens_per_usd iteration_time_s"} == {"1", "2"}
    capsys.readouterr()
    assert main(["show", "cost"]) == 0
    out = capsys.readouterr().out
    assert "tokens per dollar: " in out and "on 16 GPUs at 32 USD an hour" in out and "% tokens per dollar over" in out
    page = (folder / "report.html").read_text()
    assert "on 16 to 32 GPUs" in page and "How much cheaper, and than what" in page
    assert "figure-pareto-tokens_per_usd-iteration_time_s" in page
    requirements_reject(ok)


def requirements_reject(before: list[Row]) -> None:
    """The same study with a limit that some points break: nothing is simulated again, and they cannot win."""
    limit = max(row["cut_campus_gb"] for row in before) / 2
    folder = decide(design(repr(limit)))
    broken = {row["point_id"]: row["iteration_time_s"] for row in before if row["cut_campus_gb"] > limit}
    rows = read_csv(folder / "results.csv", NUMBERS)
    rejected = {row["point_id"]: row["iteration_time_s"] for row in rows if row["status"] == "rejected"}
    assert rejected == broken and 0 < len(broken) < len(before)
    assert all(row["reason"].startswith("E-REQUIRE: cut_campus_gb <= ") for row in rows if row["status"] == "rejected")
    assert not {row["point_id"] for row in read_csv(folder / "pareto.csv")} & set(broken)
    assert f"{len(broken)} rejected" in (folder / "verdict.txt").read_text()


def test_a_cluster_without_a_price_is_one_error_before_anything_runs(project: Path, edit: Edit) -> None:
    edit("config/studies/tiny.yaml", "name: tiny\n", "name: tiny\nobjective: tokens_per_usd\n")
    with pytest.raises(
        InvalidInput, match=r"E-PRICE: config/studies/tiny.yaml: objective.*tiny-2dc.yaml.j2 has no price"
    ):
        prepare_all({"study": "tiny", "batches": 1})
    assert not (project / "results/tiny").exists()


def test_a_price_is_a_dimension_of_the_environment(priced: Path, edit: Edit) -> None:
    edit("config/clusters/tiny-2dc.yaml.j2", "2 usd/hour", "{{ price }}")
    text = STUDY.replace("LIMIT", "1e9").replace("environment:", 'environment:\n  price: ["1 usd/hour", "4 usd/hour"]')
    (priced / "config/studies/cost.yaml").write_text(text)
    prepare_all({"study": "cost", "batches": 1})
    rows = read_csv(priced / "results/cost/points.csv", ("usd_per_hour",))
    assert {row["usd_per_hour"] for row in rows} == {16.0, 64.0, 32.0, 128.0}


@pytest.mark.slow
@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize(("limit", "gpus"), [("1e9", 16), ("1e9 and iteration_time_s <= 0.04", 32)])
def test_a_certified_search_by_cost_agrees(limit: str, gpus: int) -> None:
    flow = design(limit)
    simulate(flow)
    wanted = yaml.safe_load((decide(flow) / "optimum.yaml").read_text())["environments"][0]
    assert wanted["gpus"] == gpus  # one building is the cheapest, and too slow for the second requirement
    gains = read_csv(Path(flow.folder) / "speedups.csv")
    file = Path("config/studies/cost.yaml")
    file.write_text(file.read_text().replace("name: cost\n", "name: cost\nsearch: certified\n"))
    flow = prepare_all({"study": "cost", "batches": 1})["cost"]
    certificate = flow.certificate_files[0]
    outputs = [f"--points={flow.points_file}", f"--rows={flow.row_files[0]}", f"--certificate={certificate}"]
    outputs.append(f"--plans={flow.folder}/search/plans.csv.gz")
    assert main(["search", f"{flow.folder}/design/study.json", "--cores=2", *outputs]) == 0
    folder = decide(flow, f"--certificate={certificate}")
    optimum = yaml.safe_load((folder / "optimum.yaml").read_text())
    found = optimum["environments"][0]
    assert (found["point_id"], found["tokens_per_usd"]) == (wanted["point_id"], wanted["tokens_per_usd"])
    assert read_csv(folder / "speedups.csv") == gains
    assert optimum["pareto"]["exact"] is False and "may belong on a front" in optimum["pareto"]["note"]
    assert {row["exact"] for row in read_csv(folder / "pareto.csv")} == {"false"}
    assert "The search simulated only points that could still be the best" in (folder / "report.html").read_text()

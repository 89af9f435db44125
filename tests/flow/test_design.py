"""The design step through the command line: what it writes, what an edit changes, and every kind of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scaleacross.cli.main import main
from scaleacross.errors import InvalidInput
from scaleacross.study.flow import batch_count, batch_of, prepare_all, settings_from_file
from scaleacross.study.tables import read_csv

Edit = Callable[[str, str, str], None]
STUDY, CLUSTER = "config/studies/tiny.yaml", "config/clusters/tiny-2dc.yaml.j2"


def flow() -> list[str]:
    """Prepare as Snakemake does; the files of the design."""
    prepare_all({"study": "tiny", "batches": 2})
    return sorted(str(file) for file in Path("results").rglob("*") if file.is_file())


def times(names: list[str]) -> dict[str, int]:
    return {name: Path(name).stat().st_mtime_ns for name in names}


def test_a_row_for_every_point(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "--why"]) == 0
    out = capsys.readouterr().out
    rows = read_csv(project / "results/tiny/points.csv")
    assert len(rows) == 2 * 2 * 2 * 2 * 2 * 2
    feasible = [row for row in rows if row["status"] == "feasible"]
    assert f"64 points, {len(feasible)} feasible" in out and "E-CONSTRAINT" in out
    assert all(row["reason"] and not row["plan_id"] for row in rows if row["status"] == "infeasible")
    assert all(row["plan_id"] and row["config_id"] and row["dp"] in {"2", "4"} for row in feasible)
    assert all(len(row[name]) <= 40 for row in rows for name in ("point_id", "plan_id", "config_id"))


def test_plans_are_shared_by_networks_and_configurations_by_plans(project: Path) -> None:
    flow()
    rows = [row for row in read_csv(project / "results/tiny/points.csv") if row["status"] == "feasible"]
    by_plan = {tuple(row[name] for name in ("order", "pp", "schedule")): row["plan_id"] for row in rows}
    assert len(by_plan) == len(set(by_plan.values())) == len({row["plan_id"] for row in rows})
    assert len({row["config_id"] for row in rows}) < len(rows)


def test_batches_hold_every_pair_once(project: Path) -> None:
    flow()
    rows = [row for row in read_csv(project / "results/tiny/points.csv") if row["status"] == "feasible"]
    pairs = []
    for file in (project / "results/tiny/design").glob("runs_*.json"):
        for plan, run in json.loads(file.read_text())["plans"].items():
            assert file.stem == f"runs_{batch_of(plan, 2)}"
            pairs += [(plan, config) for config in run["configs"]]
    assert sorted(pairs) == sorted({(row["plan_id"], row["config_id"]) for row in rows})


def test_nothing_is_rewritten_when_nothing_changes(project: Path) -> None:
    before = times(flow())
    assert times(flow()) == before
    (project / STUDY).write_text("# a comment\n" + (project / STUDY).read_text())
    names = [name for name in flow() if not name.endswith("study.json")]  # it holds the key of the files
    assert times(names) == {name: before[name] for name in names}


def test_a_network_edit_leaves_the_plans_alone(edit: Edit) -> None:
    before = times(flow())
    edit(STUDY, '"1:8"', '"1:4"')
    after = times(flow())
    changed = {Path(name).name.split("_")[0] for name in after if after[name] != before.get(name)}
    assert changed == {"runs", "configs.json", "points.csv", "study.json"}


def test_one_more_value_leaves_other_points_as_they_are(project: Path, edit: Edit) -> None:
    flow()
    before = {row["point_id"]: row for row in read_csv(project / "results/tiny/points.csv")}
    edit(STUDY, "micro_batch: [1]", "micro_batch: [1, 2]")
    flow()
    after = {row["point_id"]: row for row in read_csv(project / "results/tiny/points.csv")}
    assert len(after) == 2 * len(before)
    assert {point: after[point] for point in before} == before


def test_a_dimension_that_only_a_template_knows(project: Path, edit: Edit) -> None:
    edit(STUDY, "environment:", 'environment:\n  uplink_latency: ["75 us", "5 ms"]')
    flow()
    rows = [row for row in read_csv(project / "results/tiny/points.csv") if row["status"] == "feasible"]
    by_latency = {value: {r["config_id"] for r in rows if r["uplink_latency"] == value} for value in ("75 us", "5 ms")}
    assert by_latency["75 us"] and not by_latency["75 us"] & by_latency["5 ms"]


def test_a_new_key_in_the_systems_template(project: Path, edit: Edit) -> None:
    edit(
        "templates/system.json.j2",
        '"roofline-enabled": 1',
        '"local-reduction-delay": {{ reduction }},\n  "roofline-enabled": 1',
    )
    edit(STUDY, "fixed: {tp: 4}", "fixed: {tp: 4, reduction: 3}")
    flow()
    configs = json.loads((project / "results/tiny/design/configs.json").read_text())
    assert all(json.loads(files["system.json"])["local-reduction-delay"] == 3 for files in configs.values())


def test_stale_batches_are_removed(project: Path) -> None:
    prepare_all({"study": "tiny", "batches": 9})
    many = len(list((project / "results/tiny/design").glob("plans_*.json")))
    prepare_all({"study": "tiny", "batches": 1})
    assert many > 1
    assert [file.name for file in (project / "results/tiny/design").glob("plans_*.json")] == ["plans_000.json"]


def test_a_design_with_missing_files_is_made_again(project: Path) -> None:
    names = flow()
    (project / "results/tiny/design/runs_000.json").unlink()
    assert flow() == names


COUNTS = [(2, 5, 8), (64, 5, 8), (64, 75, 64), (2, 200, 16), (512, 9999, 256)]


@pytest.mark.parametrize(("cores", "plans", "count"), COUNTS)
def test_batches_feed_every_core(monkeypatch: pytest.MonkeyPatch, cores: int, plans: int, count: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert batch_count(plans, None) == count
    assert batch_count(plans, 3) == 3


def test_overrides(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "--set", "dimensions.pp=[2]", "--results", str(project / "elsewhere")]) == 0
    assert "32 points" in capsys.readouterr().out
    assert not (project / "results").exists()


NO_END = "{{ uplink_latency |"
LATENCY = '{{ uplink_latency | default("150 us") }}'
SAME_DELAY = "micro_batch: [1]\n  endpoint_delay: [10 ns, 0.01 us]"

TURNS = "network_model: unaware\nfixed: {tp: 4, wan_sharing: temporal}"
DEEP = "fixed: {tp: 4, uplink_loss: 1e-5}"

BAD = {  # what is wrong: file, text, its replacement, error id, a part of the message
    "unknown key": (STUDY, "baselines:", "baseline:", "E-STUDY", "did you mean 'baselines'"),
    "misspelt dimension": (STUDY, "micro_batch:", "micro_batches_:", "E-DIMENSION", "did you mean 'micro_batch'"),
    "misspelt value": (STUDY, "1f1b, interleaved]", "1f1b, interleavd]", "E-S", "interleav"),
    "no such model": (STUDY, "model: tiny", "model: tinny", "E-MODEL", "did you mean 'tiny'"),
    "no such cluster": (STUDY, "cluster: tiny-2dc", "cluster: tiny-2d", "E-FILE", "did you mean 'tiny-2dc.yaml.j2'"),
    "no unit": (STUDY, "fixed: {tp: 4}", "fixed: {tp: 4, uplink_latency: 5}", "E-VALUE", "5"),
    "undefined variable": (CLUSTER, LATENCY, "{{ uplink }}", "E-UNDEFINED", "'uplink' is undefined"),
    "broken template": (CLUSTER, LATENCY, NO_END, "E-TEMPLATE-SYNTAX", "line"),
    "unknown key of a tier": (CLUSTER, "    latency: {{", "    latencyy: {{", "E-KEY", "latency"),
    "unknown name": (STUDY, "(chunks > 1)", "(chunk > 1)", "E-STUDY", "did you mean 'chunks'"),
    "value not swept": (STUDY, "schedule: interleaved, coll", "schedule: gpipe, coll", "E-STUDY", "is not swept"),
    "key of a transport that nothing uses": (
        STUDY,
        "fixed: {tp: 4}",
        DEEP,
        "E-DIMENSION",
        "no tier uses what reads it",
    ),
    "stream count true": (STUDY, "fixed: {tp: 4}", "fixed: {tp: 4, comm_streams: true}", "E-VALUE", "per-axis or 1"),
    "turns that the model has not": (STUDY, "fixed: {tp: 4}", TURNS, "E-WAN-SHARING", "network_model unaware"),
    "dimension without effect": (STUDY, "micro_batch: [1]", SAME_DELAY, "E-DIMENSION", "endpoint_delay"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_error(project: Path, edit: Edit, capsys: pytest.CaptureFixture[str], case: str) -> None:
    file, old, new, error_id, hint = BAD[case]
    edit(file, old, new)
    code = main(["design"])
    err = capsys.readouterr().err
    assert code == 2, err
    assert err.startswith(error_id) and hint in err and "Traceback" not in err
    assert not (project / "results").exists()


def test_missing_template(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "templates/system.json.j2").unlink()
    assert main(["design"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("E-FILE") and "system.json.j2" in err
    assert not (project / "results").exists()


def test_impossible_degrees_show_the_equation(project: Path, edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit(STUDY, "fixed: {tp: 4}", "fixed: {tp: 4, dp: 5}")
    assert main(["design"]) == 2
    err = capsys.readouterr().err
    assert "E-INFEASIBLE" in err and "none of 64 points is feasible" in err
    assert "32 x E-WORLD" in err and "tp 4 x cp 1 (default) x pp 2 x dp 5 = 40, not 32 GPUs" in err
    assert "closest miss" in err
    assert not (project / "results").exists()


def test_histogram_names_the_closest_miss(edit: Edit, capsys: pytest.CaptureFixture[str]) -> None:
    edit("config/accelerators/h100-sxm.yaml", "\nmemory: ", "\nmemory: 4.1 GiB #")
    edit(STUDY, "fixed: {tp: 4}", "fixed: {tp: 4, dp_sharding: ddp}")
    assert main(["design"]) == 2
    err = capsys.readouterr().err
    assert "E-MEMORY" in err and "E-CONSTRAINT" in err
    assert "closest miss" in err and "E-CONSTRAINT" not in err.split("closest miss")[1]


def test_unwritable_results_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "results").write_text("a file where the folder should be")
    assert main(["design"]) == 2
    assert capsys.readouterr().err.startswith("E-WRITE")


@pytest.mark.parametrize("config", [{"studdy": "x"}, {"batches": 0}, {"batches": "many"}, {"study": []}, {"study": 3}])
def test_bad_settings(config: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="E-CONFIG"):
        prepare_all(config)


def test_the_binary_must_be_there(edit: Edit) -> None:
    edit(STUDY, "baselines:", "simulator: astra-sim\nbaselines:")
    with pytest.raises(InvalidInput, match=r"E-ASTRA-SIM.*no/such/binary"):
        prepare_all({"study": "tiny", "astra_sim": "no/such/binary"})


def test_unknown_command_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulat"]) == 2
    assert "did you mean 'simulate'" in capsys.readouterr().err
    assert main([]) == 2
    assert "design" in capsys.readouterr().err


def test_settings_of_the_repository_are_the_defaults() -> None:
    from scaleacross.study.flow import SETTINGS, read_settings

    root = Path(__file__).resolve().parents[2]
    assert settings_from_file(root / "config/config.yaml") == read_settings(SETTINGS)

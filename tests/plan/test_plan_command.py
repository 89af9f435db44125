"""``scaleacross plan``: which plan is meant, what is said of it, and that it is said legibly and completely."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from scaleacross.cli.main import main
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.plan.frameworks import canonical
from scaleacross.plan.placement import place
from scaleacross.planview.choose import Chosen, choose
from scaleacross.planview.facts import bars, facts_of
from scaleacross.planview.gantt import gantt_lines
from scaleacross.planview.traffic import traffic_of
from scaleacross.planview.words import runs, scaled, sequence
from scaleacross.study.design import Designer
from scaleacross.study.plans import build_schedule
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import load_study
from scaleacross.trace.generate import generate


def chosen(*words: str, results: Path | None = None) -> Chosen:
    study = load_study("tiny")
    return choose(study, Designer(study), words, results)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["plan", *arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _in_project(project: Path) -> None:
    """Every test here works in the small project."""


def test_without_a_point_the_production_baseline_is_meant() -> None:
    case = chosen()
    values = case.point.values
    assert values["schedule"] == "interleaved" and values["dp_sharding"] == "zero1" and values["chunks"] == 2
    assert values["oversubscription"] == "1:2", "the headline environment"
    assert case.how == "the production baseline (the first feasible of 4 points)"
    assert case.point.point_id in {point.point_id for point in enumerate_points(load_study("tiny"))}


def test_once_there_are_results_the_optimum_is_meant() -> None:
    last = chosen("across", results=None).point.point_id
    Path("optimum.yaml").write_text(f"study: tiny\nenvironments:\n  - point_id: {last}\n")
    assert chosen(results=Path()).point.point_id == last
    assert chosen("optimum", results=Path()).point.point_id == last
    assert chosen("production", results=Path()).how.startswith("the production baseline")


def test_a_point_is_named_by_id_baseline_or_values() -> None:
    wanted = chosen("pp=4", "schedule=1f1b", "order=[tp,cp,dp,pp]")
    assert wanted.point.values["pp"] == 4 and wanted.point.values["order"][-1] == "pp"
    assert chosen(wanted.point.point_id).parallelism == wanted.parallelism
    assert chosen("across").point.values["order"] == ["tp", "cp", "dp", "pp"]


def test_a_value_the_study_does_not_sweep_goes_into_the_baseline() -> None:
    case = chosen("micro_batch=2", "pp=2", "recompute=full")
    assert case.parallelism.micro_batch == 2 and case.parallelism.recompute == "full"
    assert case.parallelism.schedule == "interleaved" and "which the study does not sweep" in case.how


@pytest.mark.parametrize(
    ("words", "error_id", "text"),
    [
        (["productoin"], "E-POINT", "did you mean 'production'"),
        (["optimum"], "E-RESULTS", "run the study first"),
        (["best"], "E-POINT", "name one of them"),
        (["a", "b"], "E-POINT", "more than one point"),
        (["ppp=4"], "E-DIMENSION", "did you mean 'pp'"),
        (["pp=16"], "E-POINT", "E-WORLD"),
        (["schedule=1f1b", "chunks=2"], "E-POINT", "E-CONSTRAINT"),
    ],
)
def test_points_that_are_none_say_so(words: list[str], error_id: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        chosen(*words)
    assert caught.value.error_id == error_id and text in str(caught.value)


def test_an_infeasible_point_gives_its_reason() -> None:
    study = load_study("tiny", overrides=["dimensions.pp=[2,3]"])
    bad = next(point for point in enumerate_points(study) if point.values["pp"] == 3)
    with pytest.raises(Infeasible, match="E-WORLD"):
        choose(study, Designer(study), [bad.point_id])


def groups_of(case: Chosen) -> dict[str, dict[str, Any]]:
    return {group["group"]: group for group in facts_of(case)["groups"]}


def test_groups_say_what_they_span_and_which_cross_the_cut() -> None:
    inside, across = (
        groups_of(chosen("production")),
        groups_of(
            chosen(
                "across",
            )
        ),
    )
    assert inside["pp"]["tiers"] == ["building"] and not inside["pp"]["crosses_cut"]
    assert inside["dp"]["crosses_cut"] and inside["dp"]["ring_crossings"] == {"building": 2, "campus": 2}
    assert across["pp"]["crosses_cut"] and not across["dp"]["crosses_cut"]
    for group in (*inside.values(), *across.values()):
        assert group["size"] * group["count"] == 32 and len(set(group["ring"])) == group["size"]
        assert group["ring_crossings"] and sum(group["ring_crossings"].values()) == group["size"]


def test_bytes_agree_with_the_volumes_of_the_field() -> None:
    """Sums worked by hand: h 1024, s 1024, 8 layers on pp 2 with 2 chunks, tp 4, dp 4, ep 2, 8 micro-batches, bf16."""
    case = chosen("production", results=None)
    plan, model, count = case.parallelism, case.setting.model, case.schedule.micro_batches
    assert (plan.pp, plan.chunks, plan.dp, count) == (2, 2, 4, 8)
    traffic = traffic_of(case)
    tokens = 1024
    boundary = tokens // plan.tp * model.hidden * 2
    # Each rank of an interleaved pipeline of two sends every chunk's output on but the loss', and back but the input's.
    assert traffic["pp"].group_bytes == 2 * (plan.pp * plan.chunks - 1) * count * boundary
    # Attention has an all-gather and a reduce-scatter each way a layer; experts' etp 4 one of each on routed tokens.
    routed = tokens // plan.tp * 2 * model.hidden * 2
    assert traffic["ep"].rank_bytes == 4 * count * 4 * routed * (plan.ep - 1) / plan.ep
    dense = sum(unit.dense for units in units_of(case, 0) for unit in units)
    # Gradients in FP32 reduce-scattered, parameters in bf16 gathered: (n - 1) / n of each.
    assert traffic["dp"].rank_bytes == pytest.approx(dense * (4 + 2) * 3 / 4, rel=1e-3)


def units_of(case: Chosen, stage: int) -> list[Any]:
    from scaleacross.trace.units import stage_units

    positions = case.schedule.positions[stage]
    made = stage_units(case.setting.model, case.parallelism)
    return [made[position] for position in positions]


def test_stages_hold_every_layer_and_every_rank_once() -> None:
    facts = facts_of(chosen("pp=2", "schedule=interleaved", "dp_sharding=hsdp"))
    layers = [layer for stage in facts["stages"] for chunk in stage["layers"] for layer in chunk]
    assert sorted(layers) == list(range(8))
    assert sorted(rank for stage in facts["stages"] for rank in stage["ranks"]) == list(range(32))
    assert [stage["embedding"] for stage in facts["stages"]] == [True, False]
    assert all(
        stage["memory"]["total"] == pytest.approx(sum(list(stage["memory"].values())[:-1])) for stage in facts["stages"]
    )
    assert facts["parallelism"]["dp_shard"] == 2, "the dp ranks of a building, chosen by the placement"


def test_the_text_fits_a_terminal_and_has_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        [],
        ["across"],
        ["pp=2", "schedule=interleaved", "dp_sharding=hsdp"],
        ["pp=1", "chunks=1", "schedule=1f1b"],
    ):
        text = shown(capsys, "show", "tiny", *words)
        assert max(map(len, text.splitlines())) <= 100
        for part in ("NETWORK DIMENSIONS", "PROCESS GROUPS", "RING ORDER", "RANK MAP", "MEMORY", "SCHEDULE", "GANTT"):
            assert part in text


def test_json_is_for_machines_and_files_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "show", "tiny", "--json", "--rank-map", "ranks.csv", "--gantt", "gantt.svg")
    facts = json.loads(text)
    assert facts["gpus"] == 32 and facts["cluster"]["cut"] == "campus"
    rows = list(csv.DictReader(Path("ranks.csv").read_text().splitlines()))
    assert len(rows) == 32
    for stage in facts["stages"]:
        assert [int(row["rank"]) for row in rows if int(row["pp"]) == stage["stage"]] == stage["ranks"]
    assert Path("gantt.svg").read_text().lstrip().startswith("<?xml")


def test_flags_are_printed_and_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "flags", "tiny", "pp=2", "ep=4", "etp=1", "--framework", "megatron-lm")
    assert "--nnodes 8 --nproc-per-node 4" in text and "--expert-model-parallel-size 4" in text
    Path("line.sh").write_text(text)
    placed = json.loads(shown(capsys, "from-flags", "line.sh", "--study", "tiny", "--json"))
    original = facts_of(chosen("pp=2", "ep=4", "etp=1"))
    for key in ("parallelism", "dimensions", "groups", "stages", "training", "plan_id"):
        assert placed[key] == original[key], key
    plain = json.loads(shown(capsys, "from-flags", "line.sh", "--json"))
    assert plain["parallelism"] == original["parallelism"] and plain["gpus"] == 32
    assert "read_as: Megatron-LM core_v0.19.0" in shown(capsys, "from-flags", "line.sh")


def test_what_a_framework_lacks_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "flags", "tiny", "dp_sharding=hsdp", "etp=2", "--framework", "megatron-lm"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("E-FRAMEWORK: Megatron-LM cannot express dp_sharding hsdp")
    assert main(["plan", "from-flags", "nowhere.sh"]) == 2
    assert capsys.readouterr().err.startswith("E-FILE")


def test_a_gantt_of_few_passes_numbers_them_and_one_of_many_shows_what_prevails() -> None:
    few = gantt_lines([(0, 0, 10, "F", 0, 0), (0, 10, 30, "B", 0, 0), (1, 10, 20, "F", 0, 0)], width=64)
    assert few[1].startswith("  0 F0---") and "B0---" in few[1] and few[2].index("F0") > few[1].index("F0") + 15
    many = [(0, 2 * n, 2 * n + 1.5, "F", n, 0) for n in range(500)]
    line = gantt_lines(many, width=84)[1]
    assert set(line[4:]) == {"F"} and len(line) <= 84
    case = bars(chosen())
    assert len(case) == 2 * 2 * 2 * 8, "stages x chunks x passes x micro-batches"


def test_words() -> None:
    assert runs([0, 1, 2, 5, 7, 8, 20]) == "0-2, 5, ... 20" and runs([]) == ""
    assert sequence(range(3)) == "0 1 2" and sequence(range(0, 80, 8)) == "0 8 16 24 ... 72"
    assert [scaled(value, "B") for value in (0, 7, 1500, 19_000_000_000)] == ["-", "7.00 B", "1.50 kB", "19.0 GB"]


@pytest.mark.parametrize(
    "words",
    [
        ["dp_sharding=ddp", "cp_method=ring", "scatter_gather=true"],
        ["dp_sharding=hsdp", "dp_shard=4"],
        ["pp=1", "schedule=1f1b", "chunks=1", "p2p_overlap=false", "layout=[8]"],
        ["tp=1", "ep=1", "pp=4", "order=[dp,cp,tp,pp]", "contiguous=4"],
    ],
)
def test_what_is_canonical_writes_the_same_traces(words: list[str]) -> None:
    """The settings that ``canonical`` resets have no effect: every node of every trace stays."""
    case = chosen(*words)
    launch = canonical(case.launch)
    assert launch.parallelism != case.parallelism
    setting = case.setting
    placement = place(launch.parallelism, setting.cluster.tiers)
    before = generate(
        setting.model, setting.training, case.parallelism, case.plan.placement, case.schedule, setting.accelerator
    )
    schedule = build_schedule(launch.training, launch.parallelism)
    after = generate(launch.model, launch.training, launch.parallelism, placement, schedule, setting.accelerator)
    assert list(before.traces) == list(after.traces) and before.ranks["classes"] == after.ranks["classes"]
    assert all(before.traces[name].nodes_equal(after.traces[name]) for name in before.traces)

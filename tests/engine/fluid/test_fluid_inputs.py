"""Network descriptions that contradict themselves, deadlocks, limits, and the door from the engine."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from fluid_cases import AG, AR, MIB, RS, TierSpec, one_collective, plain, run, sends, tiered, workload
from fluid_plans import plan
from scaleacross.engine import simulate
from scaleacross.engine.fluid import simulate_fluid
from scaleacross.engine.fluid.fabric import build_fabric
from scaleacross.engine.settings import Config
from scaleacross.errors import InvalidInput
from scaleacross.trace.columns import TraceBuilder

TIERS = (TierSpec("node", (2,), 400, 1000), TierSpec("zone", (2, 2), 50, 10_000, 2.0))


def changed(**network: Any) -> Config:
    config = tiered(TIERS)
    return dataclasses.replace(config, network=dataclasses.replace(config.network, **network))


def extension(change: Any) -> Config:
    config = tiered(TIERS)
    content = copy.deepcopy(dict(config.network.extension))
    change(content)
    return changed(extension=content)


@pytest.mark.parametrize("model", ["unaware", "aware"])
def test_traffic_classes_are_refused_by_the_exact_models(model: str) -> None:
    config = plain([4])
    classes = dataclasses.replace(config, system=dataclasses.replace(config.system, extension={"qos": "by-axis"}))
    outcome = simulate(one_collective(4, AR, MIB), classes, model=model)
    assert outcome.status == "invalid"
    assert "E-QOS: system.json: qos is 'by-axis'" in outcome.message


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            changed(latency=(500.0, 5000.0, 6000.0)),
            "dimension 2: latency makes 12000 ns one way, its tier zone says 10000",
        ),
        (changed(bandwidth=(400.0, 25.0, 51.0)), "dimension 2: bandwidth 51 GiB/s is above the port of its tier zone"),
        (changed(topology=("Switch", "Ring", "Switch")), "dimension 1 is a Ring, its tier zone a Switch"),
        (changed(npus_count=(2, 2, 4)), "npus_count of tier zone multiplies to 8, its size is 4"),
        (extension(lambda c: c.pop("tiers")), "has no list 'tiers'"),
        (extension(lambda c: c["dims"].pop()), "2 dims for 3 dimensions"),
        (extension(lambda c: c.update(tier=1)), "unknown key 'tier'; did you mean 'tiers'"),
        (
            extension(lambda c: c["dims"][1].update(tier="zome")),
            "dims.1. is on tier 'zome', which is not there; did you",
        ),
        (extension(lambda c: c["tiers"][1].update(oversubscription=0.5)), "impossible numbers"),
        (extension(lambda c: c["tiers"][1].update(bandwidth="fast")), "bandwidth is 'fast'"),
        (extension(lambda c: c["tiers"][1].pop("one-way")), "has no 'one-way'"),
        (extension(lambda c: c["tiers"].reverse()), "not in the order of the tiers"),
    ],
)
def test_a_network_file_that_tells_two_stories_is_refused(config: Config, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"E-NETWORK-EXT: .*{message}"):
        build_fabric(config.network)


def test_levels_of_tiers_and_of_plain_dimensions() -> None:
    tiers = build_fabric(tiered(TIERS).network)
    assert [(level.name, level.dims, level.size, level.unit) for level in tiers.levels] == [
        ("node", (0,), 2, 1),
        ("zone", (1, 2), 4, 2),
    ]
    assert tiers.levels[1].uplink == pytest.approx(2 * tiers.levels[1].port / 2)
    assert tiers.top(0, np.arange(8)).tolist() == [-1, 0, 1, 1, 1, 1, 1, 1]
    dims = build_fabric(plain([2, 4], topology=["FullyConnected", "Ring"]).network)
    assert [(level.name, level.latency, level.topology) for level in dims.levels] == [
        ("dim0", 500, "FullyConnected"),
        ("dim1", 500, "Ring"),
    ]
    assert dims.top(0, [1, 2, 3]).tolist() == [0, 1, 1]


def test_ranks_that_miss_a_collective_are_named() -> None:
    def build(rank: int, trace: TraceBuilder) -> None:
        if rank == 3:
            trace.compute("idle", 0, 0, duration_micros=1)
        else:
            trace.collective("dp.sum", AR, MIB)

    out = simulate_fluid(workload(build, 4), plain([4]))
    assert out.status == "deadlock"
    assert "E-DEADLOCK: 3 of 4 ranks never finish" in out.message
    assert "rank 0: node 0 (dp.sum) waits for rank 3 to join the same collective" in out.message
    assert out.finish_cycles.tolist() == [-1, -1, -1, 1000]


@pytest.mark.parametrize("what", ["tag", "size", "type", "order", "cycle"])
def test_mismatches_are_deadlocks_never_short_answers(what: str) -> None:
    def build(rank: int, trace: TraceBuilder) -> None:
        odd = rank == 1
        if what in ("tag", "size"):
            trace.compute("c", 0, 0, duration_micros=1)
            if rank == 0:
                trace.send("pp.s", 1, MIB, 1)
            else:
                trace.recv("pp.r", 0, MIB + (what == "size"), 1 + (what == "tag"))
        elif what == "type":
            trace.collective("dp.x", RS if odd else AG, MIB)
        elif what == "order":
            kinds = [RS, AG] if odd else [AG, RS]
            for kind in kinds:
                trace.collective("dp.x", kind, MIB)
        else:
            first = trace.compute("a", 0, 0, duration_micros=1)
            trace.depend(first, [trace.compute("b", 0, 0, [first], duration_micros=1)])

    out = simulate_fluid(workload(build, 2), plain([2]))
    assert out.status == "deadlock"
    expected = {
        "tag": "waits for a message of rank 0 with tag 2",
        "size": "waits for a message of rank 0 with tag 1",
        "type": "to join the same collective",
        "order": "to join the same collective",
        "cycle": r"waits for 1 nodes that never end \(a cycle\)",
    }[what]
    assert re.search(expected, out.message)


def test_a_time_limit_ends_the_simulation() -> None:
    rounds = workload(lambda _, t: [t.collective("dp.x", AR, MIB) for _ in range(60_000)] and None, 4)
    out = simulate_fluid(rounds, plain([4]), time_limit=0.0)
    assert out.status == "timeout" and "E-TIME-LIMIT" in out.message
    assert simulate_fluid(rounds, plain([4]), time_limit=60.0).status == "ok"


def test_the_engine_opens_this_model_by_name() -> None:
    made = plan("fsdp")
    direct = run(made.folded, made.config(), timeline=True)
    outcome = simulate(made.folded, made.config(), model="scaleacross", timeline=True)
    assert (outcome.status, outcome.iteration_ns, outcome.breakdown) == ("ok", direct.iteration_ns, direct.breakdown)
    assert outcome.timeline(1) == direct.timeline(1) and outcome.model == "scaleacross"
    bad = simulate(one_collective(6, AR, MIB), plain([6], algorithm="halvingDoubling"), model="scaleacross")
    assert bad.status == "invalid" and bad.message.startswith("E-HALVING")


def test_messages_arrive_in_order_and_early_or_late_receives_are_matched() -> None:
    """The n-th message of a pair, tag and size meets the n-th receive, posted before or after it."""

    def build(rank: int, trace: TraceBuilder) -> None:
        if rank == 0:
            for _ in range(3):
                trace.send("pp.s", 1, MIB, 7)
        else:
            late = trace.compute("busy", 0, 0, duration_micros=10_000)
            trace.recv("pp.r", 0, MIB, 7)
            trace.recv("pp.r", 0, MIB, 7)
            trace.recv("pp.r", 0, MIB, 7, [late])

    out = run(workload(build, 2), plain([2], 1, 1000), timeline=True)
    ends = [row[1] for row in out.timeline(1) if row[2] == "pp.r"]
    message = 2000 + MIB / (2**30 / 1e9)
    assert ends == pytest.approx([message, 2 * message, 10_000_000], abs=2)


def test_a_message_to_oneself_is_refused() -> None:
    with pytest.raises(InvalidInput, match="E-MESSAGE: rank 1 sends to itself"):
        run(sends(2, [(1, 1, MIB)]), plain([2]))

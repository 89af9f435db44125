"""Numbers that no network has: an outcome that says so, whatever the model, never a wrapped or a traceback."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from cases import golden
from scaleacross.engine import simulate
from scaleacross.engine.limits import MOST_NS, whole_ns
from scaleacross.engine.settings import Config
from scaleacross.errors import InvalidInput

NAME = "1d_fc4_direct_ar"


def slowed(config: Config, network: dict[str, Any], system: dict[str, Any]) -> Config:
    return dataclasses.replace(
        config,
        network=dataclasses.replace(config.network, **network),
        system=dataclasses.replace(config.system, **system),
    )


@pytest.mark.parametrize("model", ["unaware", "aware", "scaleacross"])
@pytest.mark.parametrize(
    ("network", "system"),
    [
        ({"latency": (1e30,)}, {}),
        ({"bandwidth": (1e-300,)}, {}),
        ({}, {"local_mem_bandwidth": 1e-300}),
        ({}, {"local_mem_bandwidth": 1e-14}),
    ],
)
def test_a_time_beyond_64_bits_is_an_outcome(model: str, network: dict[str, Any], system: dict[str, Any]) -> None:
    workload, config = golden(NAME)
    outcome = simulate(workload, slowed(config, network, system), model)
    assert outcome.status == "invalid" and outcome.message.startswith("E-TIME-RANGE: ")


def test_times_are_cut_to_whole_ones_within_the_limit_only() -> None:
    assert whole_ns(np.array([0.0, 1.9, float(MOST_NS)]), "it").tolist() == [0, 1, MOST_NS]
    for wrong in (1e19, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="E-TIME-RANGE: it takes more than"):
            whole_ns(np.array([1.0, wrong]), "it")

"""Configuration files: what is read, the reference's defaults, and what is refused with which id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scaleacross.astra.collectives import Implementation, parse_implementation
from scaleacross.astra.config_files import MemoryFile, load_groups, load_memory, load_network, load_system
from scaleacross.errors import InvalidInput

LEAST = {
    "scheduling-policy": "FIFO",
    "collective-optimization": "baseline",
    "preferred-dataset-splits": 4,
    "local-mem-bw": 1600,
}


def write(folder: Path, content: Any) -> Path:
    path = folder / "file"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_defaults_of_the_reference(tmp_path: Path) -> None:
    system = load_system(write(tmp_path, LEAST))
    assert (system.scheduling_policy, system.collective_optimization) == ("FIFO", "baseline")
    assert (system.preferred_dataset_splits, system.local_mem_bandwidth) == (4, 1600.0)
    assert (system.endpoint_delay, system.active_chunks_per_dimension, system.reduction_delay) == (10, 1, 1)
    assert system.implementations == {} and not system.roofline_enabled and not system.model_shared_bus


def test_system(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yml"
    nodes.write_text("3: algorithms/pat\n'4': algorithms/tree\n")
    content = LEAST | {
        "all-reduce-implementation": ["ring", "direct4", "oneDirect", "oneHalvingDoubling"],
        "all-gather-implementation-custom": ["algorithms/pat"],
        "per-node-custom-implementation": str(nodes),
        "boost-mode": 0,
        "inter-dimension-scheduling": "themis",
        "roofline-enabled": 1,
        "peak-perf": 312.5,
        "model-shared-bus": 1,
        "G": 0.01,
        "x-scaleacross": {"streams": 3},
    }
    system = load_system(write(tmp_path, content))
    assert system.implementations[0] == (
        Implementation("ring"),
        Implementation("direct", window=4),
        Implementation("direct", one=True),
        Implementation("halvingDoubling", one=True),
    )
    assert system.custom == {2: "algorithms/pat"}
    assert system.per_node_custom == {3: "algorithms/pat", 4: "algorithms/tree"}
    assert system.ignored == ("boost-mode", "inter-dimension-scheduling")
    assert (system.peak_perf, system.bus_gap, system.extension) == (312.5, 0.01, {"streams": 3})


@pytest.mark.parametrize("name", ["Ring", "direct0", "direct-1", "direct1.5", "one", "oneRing2", "", 3, None, ["ring"]])
def test_no_such_algorithm(name: Any) -> None:
    assert parse_implementation(name) is None


def test_network(tmp_path: Path) -> None:
    text = "topology: [Ring, FullyConnected]\nnpus_count: [4, 2]\nbandwidth: [1e2, 50]\nlatency: [0, 0.5]\n"
    network = load_network(write(tmp_path, text + "x-scaleacross: {tiers: [a]}\n"))
    assert (network.npus, network.dimensions) == (8, 2)
    assert (network.bandwidth, network.latency) == ((100.0, 50.0), (0.0, 0.5))
    assert network.extension == {"tiers": ["a"]}
    with pytest.raises(InvalidInput, match=r"E-CONFIG-KEY: .*'npu_count'; did you mean 'npus_count'\?"):
        load_network(write(tmp_path, text + "npu_count: [4, 2]\n"))
    with pytest.raises(InvalidInput, match="is given twice"):
        load_network(write(tmp_path, text + "latency: [1, 1]\n"))


@pytest.mark.parametrize(
    ("key", "value", "limits"),
    [
        ("latency", "1e17", "from 0 to 1e+12 (ns; 1,000 s)"),
        ("latency", "1.0e30", "from 0 to 1e+12 (ns; 1,000 s)"),
        ("latency", "-1", "from 0 to 1e+12 (ns; 1,000 s)"),
        ("bandwidth", "1.0e-300", "from 1e-06 to 1e+09 (GiB/s)"),
        ("bandwidth", "0", "from 1e-06 to 1e+09 (GiB/s)"),
        ("bandwidth", "1.1e9", "from 1e-06 to 1e+09 (GiB/s)"),
    ],
)
def test_numbers_of_no_network_are_refused_with_the_limit(tmp_path: Path, key: str, value: str, limits: str) -> None:
    content = {"topology": "Ring", "npus_count": "4", "bandwidth": "50", "latency": "500"}
    at_limits = content | {"latency": "1e12", "bandwidth": "1e-6"}
    assert load_network(write(tmp_path, "".join(f"{name}: [{at_limits[name]}]\n" for name in at_limits))).npus == 4
    with pytest.raises(InvalidInput) as caught:
        load_network(write(tmp_path, "".join(f"{name}: [{(content | {key: value})[name]}]\n" for name in content)))
    assert caught.value.error_id == "E-CONFIG-VALUE" and f"'{key}'[0]" in caught.value.clash
    assert limits in caught.value.fix


def test_memory(tmp_path: Path) -> None:
    assert load_memory(write(tmp_path, {"memory-type": "NO_MEMORY_EXPANSION"})) == MemoryFile()
    pool = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 50}
    assert load_memory(write(tmp_path, pool)) == MemoryFile("MEMORY_POOL", 100, 50)
    node = pool | {"memory-type": "PER_NODE_MEMORY_EXPANSION"}
    with pytest.raises(InvalidInput, match=r"E-CONFIG-MISSING.*num-nodes"):
        load_memory(write(tmp_path, node))
    memory = load_memory(write(tmp_path, node | {"num-nodes": 2, "num-npus-per-node": 4}))
    assert (memory.nodes, memory.npus_per_node) == (2, 4)


def test_groups(tmp_path: Path) -> None:
    assert load_groups(write(tmp_path, {"2": [3, 1], "10": [0]})) == {2: (3, 1), 10: (0,)}
    for content, error in (
        ({"01": [1, 2]}, "E-GROUP-ID"),
        ({"1": [1, 1]}, "E-GROUP-TWICE"),
        ({"1": [1.5]}, "E-GROUP-TYPE"),
        ([1], "E-CONFIG-SYNTAX"),
    ):
        with pytest.raises(InvalidInput, match=error):
            load_groups(write(tmp_path, content))

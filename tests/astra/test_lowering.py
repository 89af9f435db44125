"""A study's ``collective`` as ASTRA-sim's lists, or the reason why it cannot be run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scaleacross.astra.algorithms.lowering import ALGORITHMS, Implementations, implementations
from scaleacross.astra.render import render_config
from scaleacross.cluster import Accelerator, load_cluster
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.units import GIB

ROOT = Path(__file__).parents[2]
TIERS = ("node", "zone", "building", "campus")


@dataclass(frozen=True)
class Dim:
    size: int
    tier: str
    axis: str
    share: float = 1.0


PLACED = (Dim(8, "node", "tp"), Dim(16, "zone", "pp", 0.5), Dim(16, "zone", "dp"), Dim(4, "building", "dp"))
ACROSS = (*PLACED, Dim(2, "campus", "dp"))


def lowered(collective: Any, dims: tuple[Dim, ...] = ACROSS, **more: Any) -> Implementations:
    arguments: dict[str, Any] = {"all_to_all": "direct1", "optimization": "localBWAware", "tiers": TIERS, **more}
    return implementations(collective, dims=dims, **arguments)


R, H, D, T = "ring", "halvingDoubling", "direct", "doubleBinaryTree"


@pytest.mark.parametrize(
    ("collective", "names"),
    [
        ("ring", [R, R, R, R, R]),
        ("direct", [D, R, D, D, D]),
        ("halving-doubling", [H, R, H, H, H]),
        ("halving-doubling-farthest", [H, R, H, H, H]),
        ("pat", [R, R, H, H, H]),
        ("hierarchical", [R, R, R, R, H]),
        ("campus:pat building:direct", [R, R, R, D, H]),
        ({"*": "pat", "zone": "ring"}, [R, R, R, H, H]),
    ],
)
def test_a_choice_for_every_dimension(collective: Any, names: list[str]) -> None:
    found = lowered(collective)
    assert found.all_reduce == found.all_gather == found.reduce_scatter == tuple(names)
    assert found.all_to_all == ("direct1",) * 5


def test_a_tree_reduces_in_the_outermost_dimension_of_a_group_and_scatters_in_none() -> None:
    found = lowered("double-binary-tree")
    assert found.all_reduce == (T, R, R, R, T)
    assert found.all_gather == found.reduce_scatter == (R,) * 5
    dims = (Dim(8, "node", "cp"), Dim(16, "zone", "dp"))
    assert lowered("double-binary-tree", dims).all_reduce == (R, T)  # one group reduces over cp and dp


@pytest.mark.parametrize(
    ("collective", "dims", "more", "error_id", "says"),
    [
        (
            "pat",
            (Dim(8, "node", "tp"), Dim(6, "zone", "dp")),
            {},
            "E-COLLECTIVE",
            ["dimension 1 (zone, dp) of 6", "leave 8 there"],
        ),
        ("halving-doubling-nearest", ACROSS, {}, "E-COLLECTIVE", ["zone 16, building 4, campus 2", "outermost"]),
        ("halving-doubling-farthest", (Dim(6, "zone", "dp"),), {}, "E-HALVING", ["of 6 NPUs", "ring or direct"]),
        ("double-binary-tree", (Dim(6, "zone", "dp"),), {}, "E-COLLECTIVE", ["of 6 NPUs", "power of two"]),
        ("hierarchical", ACROSS, {"communicators": True}, "E-COLLECTIVE", ["communicators", "flat_rings"]),
        ("hierarchical", ACROSS, {"optimization": "baseline"}, "E-COLLECTIVE", ["baseline", "localBWAware"]),
        ("flat-ring", ACROSS, {}, "E-COLLECTIVE", ["communicators", "flat_rings"]),
    ],
)
def test_what_cannot_be_run_is_infeasible_with_the_reason(
    collective: str, dims: tuple[Dim, ...], more: dict[str, Any], error_id: str, says: list[str]
) -> None:
    with pytest.raises(Infeasible) as caught:
        lowered(collective, dims, **more)
    assert caught.value.error_id == error_id
    for words in says:
        assert words in str(caught.value)


def test_one_dimension_takes_nearest_first_and_communicators_take_a_flat_ring() -> None:
    dims = (Dim(8, "node", "tp"), Dim(16, "zone", "dp"), Dim(2, "campus", "pp", 0.5))
    assert lowered("halving-doubling-nearest", dims).all_gather == (H, H, R)
    assert lowered("flat-ring", communicators=True).all_reduce == (R,) * 5


@pytest.mark.parametrize(
    ("collective", "says"),
    [
        ("hierarchcal", "did you mean 'hierarchical'?"),
        ("patt", "did you mean 'pat'?"),
        ("campos:pat", "did you mean 'campus'?"),
        ("campus:hierarchical", "as a whole"),
    ],
)
def test_a_name_that_does_not_exist_is_an_error(collective: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=r"E-COLLECTIVE.*" + re.escape(says)):
        lowered(collective)


@pytest.mark.parametrize("collective", [name for name in ALGORITHMS if name not in ("flat-ring",)])
def test_every_name_is_rendered_or_refused_with_a_reason(collective: str) -> None:
    gpu = Accelerator("gpu", {"bf16": 989e12}, 80 * GIB, 3350e9)
    values = {"collective": collective}
    cluster = load_cluster(ROOT / "config/clusters/meta-2dc-16k.yaml.j2", values)
    dims = (Dim(8, "node", "tp"), Dim(256, "zone", "dp"), Dim(4, "building", "dp"), Dim(2, "campus", "dp"))
    try:
        files = render_config(dims, cluster, gpu, values)
    except Infeasible as error:
        assert error.error_id == "E-COLLECTIVE" and collective == "halving-doubling-nearest"
        return
    system = json.loads(files["system.json"])
    assert len(system["all-reduce-implementation"]) == 4

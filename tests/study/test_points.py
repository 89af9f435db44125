"""Points and ids: complete, lazy, stable, and safe as folder names."""

import re
from itertools import islice
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.study.points import MAX_ID, count_points, enumerate_points, make_id
from scaleacross.study.schema import Study

SAFE = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def study(**changes: Any) -> Study:
    content = {
        "name": "s",
        "model": "m",
        "cluster": "c",
        "training": {"sequence_length": 1, "global_batch": 1},
        "fixed": {"tp": 8},
        "dimensions": {"pp": [1, 16], "order": [["tp", "dp"], ["dp", "tp"]], "collective": ["ring"]},
        "environment": {"latency": ["75 us", "5 ms"]},
    }
    return Study.model_validate({**content, **changes})


def test_every_combination_once_environment_slowest() -> None:
    points = list(enumerate_points(study()))
    assert len(points) == count_points(study()) == 8
    assert len({point.point_id for point in points}) == 8
    assert [point.values["latency"] for point in points] == ["75 us"] * 4 + ["5 ms"] * 4
    assert all(point.values["tp"] == 8 and point.values["collective"] == "ring" for point in points)


def test_enumeration_is_lazy() -> None:
    huge = study(dimensions={f"d{i}": list(range(100)) for i in range(10)})
    assert count_points(huge) == 2 * 100**10
    assert len(list(islice(enumerate_points(huge), 5))) == 5


def test_a_point_keeps_its_id_when_others_come_or_a_key_moves() -> None:
    before = {point.point_id for point in enumerate_points(study())}
    more = study(dimensions={"pp": [1, 4, 16], "order": [["tp", "dp"], ["dp", "tp"]], "collective": ["ring"]})
    moved = study(
        fixed={"tp": 8, "collective": "ring"}, dimensions={"order": [["tp", "dp"], ["dp", "tp"]], "pp": [1, 16]}
    )
    assert before < {point.point_id for point in enumerate_points(more)}
    assert before == {point.point_id for point in enumerate_points(moved)}


values = st.dictionaries(
    st.sampled_from(["tp", "cp", "ep", "pp", "dp", "schedule", "x"]),
    st.one_of(
        st.integers(0, 10**9), st.booleans(), st.text(), st.floats(allow_nan=False), st.lists(st.text(), max_size=3)
    ),
)


@settings(deadline=None)
@given(values)
def test_ids_are_safe_names(content: dict[str, Any]) -> None:
    identifier = make_id(content, content)
    assert SAFE.fullmatch(identifier) and len(identifier) <= MAX_ID
    assert identifier == make_id(dict(reversed(content.items())), dict(reversed(content.items())))


@settings(deadline=None)
@given(values, values)
def test_different_values_have_different_ids(a: dict[str, Any], b: dict[str, Any]) -> None:
    if a != b or [type(v) for v in a.values()] != [type(v) for v in b.values()]:
        same = make_id(a, a) == make_id(b, b)
        assert not same or repr(sorted(a.items(), key=str)) == repr(sorted(b.items(), key=str))

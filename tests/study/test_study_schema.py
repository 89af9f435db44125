"""A study file: every problem at once, each with its key, and a suggestion for what is misspelt."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from scaleacross.errors import InvalidInput
from scaleacross.study.schema import apply_overrides, load_study

GOOD: dict[str, Any] = {
    "name": "tiny",
    "model": "m",
    "cluster": "c",
    "training": {"sequence_length": 8192, "global_batch": 64},
    "fixed": {"tp": 8},
    "dimensions": {"pp": [2, 4], "schedule": ["1f1b", "interleaved"]},
    "environment": {"oversubscription": ["1:1", "1:7"]},
    "constraints": ["pp * tp <= gpus"],
    "baselines": {"production": {"pp": 4}, "published": {"best_of": ["production"]}},
}


def write(folder: Path, content: Any) -> str:
    path = folder / "tiny.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def problems(folder: Path, **changes: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_study(write(folder, {**GOOD, **changes}))
    return str(caught.value)


@pytest.mark.parametrize("model", ["unaware", "aware"])
def test_traffic_classes_need_the_model_that_has_them(model: str, tmp_path: Path) -> None:
    changes = {"network_model": model, "dimensions": {**GOOD["dimensions"], "qos": ["fair", "by-axis"]}}
    assert f"network model '{model}' has no traffic classes" in problems(tmp_path, **changes)
    load_study(write(tmp_path, {**GOOD, "fixed": {"tp": 8, "qos": "by-axis"}, "network_model": "scaleacross"}))


def test_a_good_study(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, GOOD))
    assert list(study.swept) == ["oversubscription", "tp", "pp", "schedule"]
    assert study.swept["tp"] == [8]
    assert study.swept["oversubscription"] == ["1:1", "1:7"]


def test_every_problem_is_listed_with_file_and_key(tmp_path: Path) -> None:
    text = problems(
        tmp_path,
        enviroment={},
        training={"sequence_length": "8192", "global_batch": 64, "optimiser": "adam"},
        dimensions={"pp": 8},
        objective="cost",
    )
    assert "E-STUDY" in text and "tiny.yaml has 5 problems" in text
    assert "enviroment: unknown key; did you mean 'environment'?" in text
    assert "training.optimiser: unknown key; did you mean 'optimizer'?" in text
    assert "training.sequence_length" in text
    assert "dimensions.pp" in text and "[...]" in text
    assert "objective" in text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "a b"}, "cannot name a folder"),
        ({"name": "../x"}, "cannot name a folder"),
        ({"time_limit": "60"}, "E-UNIT"),
        ({"time_limit": "3 GiB"}, "E-UNIT"),
        ({"time_limit": "0 s"}, "not above zero"),
        ({"dimensions": {"pp": []}}, "no value"),
        ({"dimensions": {"pp": [2, 2]}}, "twice"),
        ({"dimensions": {"pp": [2], "tp": [8]}}, "dimensions.tp: is also in fixed"),
        ({"dimensions": {"PP": [2]}}, "cannot name a dimension"),
        ({"dimensions": {"gpus": [2]}}, "cannot name a dimension"),
        ({"constraints": ["ppp > 1"]}, "constraints.0: E-EXPRESSION"),
        (
            {"baselines": {"production": {"shedule": "1f1b"}}},
            "production.shedule: is no dimension; did you mean 'schedule'?",
        ),
        ({"baselines": {"production": {"pp": 16}}}, "16 is not swept"),
        ({"baselines": {"production": {"oversubscription": "1:1"}}}, "not a baseline's to choose"),
        ({"baselines": {"best": {"best_of": ["production"]}}}, "no baseline 'production'"),
        (
            {"baselines": {"a": {"pp": 4}, "b": {"best_of": ["a"]}, "c": {"best_of": ["b"]}}},
            "baselines.c.best_of: 'b' is a best_of itself; list its members",
        ),
        ({"search_limit": "10 s"}, "search_limit: nothing reads it where search is exhaustive"),
        ({"failure_threshold": 2.0}, "failure_threshold"),
        ({"simulator": "astrasim"}, "simulator"),
        ({"training": {"sequence_length": 8192}}, "training.global_batch: is missing"),
    ],
)
def test_bad_values(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in problems(tmp_path, **changes)


def test_broken_yaml_and_repeated_keys(tmp_path: Path) -> None:
    for text in ("name: [", "name: a\nname: b\n"):
        with pytest.raises(InvalidInput, match="E-YAML"):
            load_study(write(tmp_path, text))


def test_a_study_that_is_no_mapping(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="E-STUDY"):
        load_study(write(tmp_path, "- a\n"))


def test_missing_study_suggests_a_name(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(InvalidInput, match=r"E-STUDY.*did you mean 'tiny'"):
        load_study("tinny", studies=tmp_path)


def test_yaml_surprises_stay_text(tmp_path: Path) -> None:
    text = yaml.safe_dump(GOOD)
    study = load_study(
        write(tmp_path, text.replace("'1:1'", "1:2").replace("- 1:1", "- 1:2").replace("- 1f1b", "- no"))
    )
    assert study.dimensions["schedule"][0] == "no"
    assert study.environment["oversubscription"] == ["1:2", "1:7"]


def test_overrides(tmp_path: Path) -> None:
    study = load_study(
        write(tmp_path, GOOD),
        ["dimensions.pp=[8]", "training.global_batch=32", "environment=", "baselines=", "fixed.cp=2"],
    )
    assert study.dimensions["pp"] == [8] and study.training.global_batch == 32
    assert study.environment == {} and study.fixed == {"tp": 8, "cp": 2}
    assert GOOD["dimensions"]["pp"] == [2, 4]


@pytest.mark.parametrize("override", ["pp", "=3", "name.x=3", "dimensions.pp=["])
def test_bad_overrides(override: str) -> None:
    with pytest.raises(InvalidInput, match=r"E-OVERRIDE|E-YAML"):
        apply_overrides(GOOD, [override])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("fixed.tp=null", "1 problem:\n  fixed.tp: has no value; give one, or remove the key"),
        ("time_limit=60", "write the unit: 60 s"),
        ("simulator=astra-sim", "'scaleacross' is not one of ASTRA-sim's"),
    ],
)
def test_what_a_mistake_says(change: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_study("llama3-405b-2dc", [change])
    assert caught.value.error_id == "E-STUDY" and says in str(caught.value)


@pytest.mark.parametrize(
    "swept", [["tp-cp-pp-dp", "tp-cp-dp-pp"], [["tp", "cp", "pp", "dp"], ["tp", "cp", "dp", "pp"]]]
)
@pytest.mark.parametrize("wanted", ["tp-cp-dp-pp", ["tp", "cp", "dp", "pp"]])
def test_a_baseline_may_write_an_order_as_text_or_list(tmp_path: Path, swept: list[Any], wanted: Any) -> None:
    """It is the swept value that it names then: tables and points know no other."""
    changes = {"dimensions": {**GOOD["dimensions"], "order": swept}, "baselines": {"production": {"order": wanted}}}
    published = [{"table": "t", "row": "r", "mfu": 0.4, "when": {"order": "tp-cp-dp-pp"}}]
    study = load_study(write(tmp_path, {**GOOD, **changes, "published": published}))
    assert study.baselines["production"]["order"] == swept[1]
    assert [study.published[0].fits({"order": order}) for order in swept] == [False, True]
    assert "twice" in problems(tmp_path, dimensions={"order": [swept[0], "tp-cp-pp-dp"]}, baselines={})

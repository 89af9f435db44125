"""Degrees, the rules of a plan and the layers of its virtual stages."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.model import Mla, Model, Moe
from scaleacross.plan.degrees import Parallelism, Training, parallelism_from, training_from
from scaleacross.plan.layers import layer_ranges, spread_layers
from scaleacross.plan.rules import micro_batches, problems, validate

DENSE = Model(name="dense", layers=24, hidden=1024, heads=16, kv_heads=8, ffn=4096, vocab=32000)
EXPERTS = DENSE.model_copy(update={"moe": Moe(experts=8, top_k=2, ffn=1024)})
SHARED = DENSE.model_copy(update={"moe": Moe(experts=8, top_k=2, ffn=1024, shared_experts=1, shared_ffn=1026)})
LATENT = DENSE.model_copy(update={"mla": Mla(query_rank=8, kv_rank=8, nope_size=8, rope_size=8, value_size=8)})
TRAINING = Training(2048, 64)


def first_problem(model: Model, gpus: int, **values: Any) -> Infeasible:
    return next(problems(model, TRAINING, parallelism_from(values, gpus), gpus))


def test_dp_follows_from_the_gpus_and_is_marked_a_default() -> None:
    plan = parallelism_from({"tp": 8, "pp": 4}, gpus=128)
    assert plan.dp == 4 and "dp" in plan.defaulted and plan.sequence_parallel
    assert plan.etp == 8 and plan.with_values(tp=4).etp == 4
    assert parallelism_from({"tp": 1}, gpus=2).sequence_parallel is False


def test_a_plan_survives_its_plain_form() -> None:
    plan = parallelism_from(
        {
            "tp": 2,
            "order": ["tp", "dp", "cp", "pp"],
            "schedule": "interleaved",
            "pp": 2,
            "chunks": 2,
            "schedule_parameters": {"contiguous": 4},
            "layout": [3, 3, 3, 3],
            "flat_rings": ["dp"],
        }
    )
    again = parallelism_from(plan.as_dict())
    assert again == plan and hash(again) == hash(plan) and not again.defaulted


@pytest.mark.parametrize(
    ("values", "error_id"),
    [
        ({"tp": 0}, "E-DEGREE"),
        ({"tp": True}, "E-DEGREE"),
        ({"tp": "8"}, "E-DEGREE"),
        ({"pp": 2.0}, "E-DEGREE"),
        ({"dp_sharding": "zero3"}, "E-CHOICE"),
        ({"recompute": "some"}, "E-CHOICE"),
        ({"order": ["tp", "pp", "dp"]}, "E-ORDER"),
        ({"flat_rings": ["pp"]}, "E-CHOICE"),
        ({"etp": -1}, "E-DEGREE"),
    ],
)
def test_values_no_plan_can_have_are_refused(values: dict[str, Any], error_id: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parallelism_from(values)
    assert caught.value.error_id == error_id


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *[("layout", value, "E-LAYOUT: layout is") for value in (5, True, 1.5, "no", [1.5, 2], ["a"], [True], [[1]])],
        *[("order", value, "E-ORDER: order is") for value in (5, "tp", [1, 2, 3, 4], None)],
        ("order", "tp-cp-pp-pp", "E-ORDER: order ['tp', 'cp', 'pp', 'pp'] is not a permutation"),
        ("flat_rings", 5, "E-DEGREE: flat_rings is 5; give a list of words"),
        ("flat_rings", "tp", "E-DEGREE: flat_rings is 'tp'; give a list of words"),
        ("schedule", [1], "E-DEGREE: schedule is [1]; give a word"),
        ("schedule_parameters", 5, "E-DEGREE: schedule_parameters is 5; give a list of pairs"),
        ("attention", ["flash"], "E-CHOICE: attention is ['flash']; did you mean"),
        ("gradient_bytes", 2.0, "E-DEGREE: gradient_bytes is 2.0; give a whole number"),
        ("dp_shard", "2", "E-DEGREE: dp_shard is '2'; give a whole number"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_to_write(name: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parallelism_from({name: value})
    assert str(caught.value).startswith(message) and caught.value.fix


SWITCHES = [item.name for item in fields(Parallelism) if item.type == "bool"]


@pytest.mark.parametrize("value", [[1, 2], 1, "true", None])
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_takes_true_or_false_only(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        parallelism_from({"tp": 2, name: value})
    assert str(caught.value) == f"E-DEGREE: {name} is {value!r}; give true or false"


@given(
    st.sampled_from([item.name for item in fields(Parallelism) if item.name != "defaulted"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3),
        lambda part: st.lists(part, max_size=3),
        max_leaves=4,
    ),
)
def test_any_value_of_any_knob_is_taken_or_refused_by_name(name: str, value: Any) -> None:
    """Whatever YAML holds: never another exception."""
    try:
        plan = parallelism_from({name: value})
    except InvalidInput as error:
        assert name in str(error)
    else:
        assert name in plan.as_dict()


@pytest.mark.parametrize(
    ("name", "value", "error_id"),
    [
        ("precision", [1, 2], "E-CHOICE"),
        ("optimizer", 5, "E-CHOICE"),
        ("global_batch", [8], "E-DEGREE"),
        ("expert_imbalance", True, "E-IMBALANCE"),
        ("expert_imbalance", [1], "E-IMBALANCE"),
    ],
)
def test_training_values_of_another_kind_are_named(name: str, value: Any, error_id: str) -> None:
    with pytest.raises(InvalidInput, match=f"{error_id}: .*{name} is "):
        training_from({"sequence_length": 2048, "global_batch": 64, name: value})


def test_the_order_that_tables_print_reads_back() -> None:
    order = "tp-cp-dp-pp"
    assert parallelism_from({"order": order}) == parallelism_from({"order": order.split("-")})


@pytest.mark.parametrize(
    ("gpus", "values", "fix"),
    [
        (32, {"tp": 32}, "choose tp among the divisors of heads 16: 1, 2, 4, 8, 16"),
        (6, {"cp": 3, "dp": 2}, "choose cp so that 2 x cp divides sequence_length 2048"),
        (24, {"dp": 24}, "choose dp or micro_batch so that dp x micro_batch divides global_batch 64"),
        (
            5,
            {"pp": 5, "dp": 1},
            "or list the layers of every virtual stage, embedding to loss: layout: [5, 5, 5, 5, 4]",
        ),
    ],
)
def test_the_fix_says_what_would_divide(gpus: int, values: dict[str, Any], fix: str) -> None:
    assert first_problem(DENSE, gpus, **values).fix.endswith(fix)


@pytest.mark.parametrize("factor", [0.5, "2", float("inf"), float("nan")])
def test_an_imbalance_below_one_is_refused(factor: Any) -> None:
    for name in ("expert_imbalance", "attention_imbalance"):
        with pytest.raises(InvalidInput, match=f"E-IMBALANCE.*{name}"):
            Training(2048, 64, **{name: factor})


@pytest.mark.parametrize("length", [-1, 0.5, 2049, float("inf"), float("nan")])
def test_documents_fit_into_a_sequence(length: float) -> None:
    assert Training(2048, 64, document_length=2048).document_length == 2048
    with pytest.raises(InvalidInput, match="E-DOCUMENT"):
        Training(2048, 64, document_length=length)


def test_unknown_keys_get_a_suggestion() -> None:
    with pytest.raises(InvalidInput, match=r"E-KEY.*'dp_shardin'.*did you mean 'dp_sharding'"):
        parallelism_from({"dp_shardin": "zero1"})
    with pytest.raises(InvalidInput, match=r"E-KEY.*did you mean 'global_batch'"):
        training_from({"sequence_length": 1, "globl_batch": 1})
    with pytest.raises(InvalidInput, match=r"E-KEY.*lacks global_batch"):
        training_from({"sequence_length": 1})


@pytest.mark.parametrize(
    ("gpus", "values", "error_id", "equation"),
    [
        (48, {"tp": 4, "pp": 2, "dp": 4}, "E-WORLD", "tp 4 x cp 1 (default) x pp 2 x dp 4 = 32, not 48 GPUs"),
        (48, {"tp": 4, "pp": 5}, "E-WORLD", "GPUs 48 % (tp 4 x cp 1 (default) x pp 5) = 8"),
        (8, {"tp": 1, "sequence_parallel": True}, "E-SP", "sequence_parallel is true with tp 1"),
        (32, {"tp": 32}, "E-HEADS", "heads 16 % (tp 32) = 16"),
        (8, {"ep": 2}, "E-EXPERTS", "ep 2 with dense, which has no experts"),
        (8, {"dp_shard": 2}, "E-HSDP", "dp_shard 2 with dp_sharding zero1 (default), which has no shard groups"),
        (6, {"cp": 3, "dp": 2}, "E-SEQUENCE", "sequence_length 2048 % (2 x cp 3) = 2"),
        (24, {}, "E-BATCH", "global_batch 64 % (dp 24 (from the GPUs) x micro_batch 1 (default)) = 16"),
        (24, {"dp": 24}, "E-BATCH", "global_batch 64 % (dp 24 x micro_batch 1 (default)) = 16"),
        (8, {"schedule": "interleaved", "chunks": 2, "dp": 8}, "E-INTERLEAVED", "interleaved with pp 1 (default)"),
        (8, {"schedule": "interleaved", "pp": 2, "dp": 4}, "E-INTERLEAVED", "interleaved with chunks 1 (default)"),
        (
            24,
            {"schedule": "interleaved", "chunks": 2, "pp": 3, "dp": 8},
            "E-INTERLEAVED",
            "= 8, not a multiple of pp 3",
        ),
        (5, {"pp": 5, "dp": 1}, "E-LAYERS", "layers 24 % (pp 5 x chunks 1 (default)) = 4"),
        (2, {"pp": 2, "dp": 1, "layout": [20, 5]}, "E-LAYOUT", "20+5 = 25, not 24"),
        (2, {"pp": 2, "dp": 1, "layout": [25, -1]}, "E-LAYOUT", "layout 25, -1 gives a virtual stage -1 layers"),
        (2, {"pp": 2, "dp": 1, "layout": [24]}, "E-LAYOUT", "1 entries for pp 2 x chunks 1 (default) = 2"),
    ],
)
def test_each_broken_rule_shows_its_equation(gpus: int, values: dict[str, Any], error_id: str, equation: str) -> None:
    problem = first_problem(DENSE, gpus, **values)
    assert problem.error_id == error_id and equation in problem.clash
    assert 0 < problem.shortfall <= 1


@pytest.mark.parametrize(
    ("gpus", "values", "error_id", "equation"),
    [
        (32, {"ep": 3, "dp": 32}, "E-EXPERTS", "experts 8 % (ep 3) = 2"),
        (4, {"ep": 8, "dp": 4}, "E-EP", "GPUs 4 % (etp 1 (default) x ep 8 x pp 1 (default)) = 4"),
        (16, {"tp": 4, "etp": 8}, "E-ETP", "tp 4 % (etp 8) = 4"),
        (16, {"tp": 2, "sequence_parallel": False, "ep": 2}, "E-MOE-SP", "tp 2 and sequence_parallel false"),
    ],
)
def test_rules_of_experts(gpus: int, values: dict[str, Any], error_id: str, equation: str) -> None:
    problem = first_problem(EXPERTS, gpus, **values)
    assert problem.error_id == error_id and equation in problem.clash


ONE_RULE_EACH: list[tuple[Model, int, dict[str, Any], str]] = [
    (DENSE, 48, {"tp": 4, "pp": 5}, "E-WORLD"),
    (DENSE, 8, {"sequence_parallel": True}, "E-SP"),
    (DENSE, 16, {"schedule": "interleaved", "chunks": 2}, "E-INTERLEAVED"),
    (DENSE, 16, {"schedule": "interleaved", "pp": 2}, "E-INTERLEAVED"),
    (DENSE, 24, {"schedule": "interleaved", "pp": 3, "chunks": 2, "dp": 8}, "E-INTERLEAVED"),
    (DENSE.model_copy(update={"heads": 48, "kv_heads": 12}), 8, {"tp": 8}, "E-KV-HEADS"),
    (DENSE.model_copy(update={"heads": 48, "kv_heads": 12}), 16, {"tp": 16}, "E-KV-HEADS"),
    (LATENT, 32, {"tp": 32}, "E-HEADS"),
    (DENSE.model_copy(update={"ffn": 4098}), 16, {"tp": 4}, "E-FFN"),
    (SHARED, 16, {"tp": 4}, "E-FFN"),
    (EXPERTS, 32, {"ep": 16}, "E-EXPERTS"),
    (EXPERTS, 4, {"ep": 8}, "E-EP"),
    (EXPERTS, 32, {"tp": 4, "etp": 8}, "E-ETP"),
    (DENSE, 9, {"cp": 3, "dp": 3}, "E-SEQUENCE"),
    (DENSE.model_copy(update={"positions": "learned", "max_positions": 1024}), 8, {}, "E-SEQUENCE"),
    (DENSE, 128, {}, "E-BATCH"),
    (DENSE, 5, {"pp": 5}, "E-LAYERS"),
    (DENSE, 2, {"pp": 2, "layout": [20, 5]}, "E-LAYOUT"),
]


@pytest.mark.parametrize(("model", "gpus", "values", "error_id"), ONE_RULE_EACH)
def test_one_fault_is_one_message(model: Model, gpus: int, values: dict[str, Any], error_id: str) -> None:
    """The rule is among what is said, said once, with the numbers of its equation."""
    said = list(problems(model, TRAINING, parallelism_from(values, gpus), gpus))
    messages = [problem for problem in said if problem.error_id == error_id]
    assert len(messages) == 1 and any(character.isdigit() for character in messages[0].clash)
    assert messages[0].fix and "\n" not in str(messages[0])


def test_a_sequence_is_no_longer_than_the_table_of_positions() -> None:
    """Megatron-LM: seq_length <= max_position_embeddings. Rotary positions have no table."""
    for positions, rows, said in (
        ("learned", 2047, ["sequence_length 2048 > max_positions 2047 of dense"]),
        ("learned", 2048, []),
        ("rope", 0, []),
    ):
        model = DENSE.model_copy(update={"positions": positions, "max_positions": rows, "name": "dense"})
        assert [problem.clash for problem in problems(model, TRAINING, parallelism_from({}, 8), 8)] == said


def test_tp_may_be_a_multiple_of_the_kv_heads() -> None:
    """As in Megatron Core: 8 KV heads on 16 ranks, but not 12."""
    assert list(problems(DENSE, TRAINING, parallelism_from({"tp": 16}, 16), 16)) == []
    odd = DENSE.model_copy(update={"heads": 48, "kv_heads": 12, "head_size": 64})
    [problem] = problems(odd, TRAINING, parallelism_from({"tp": 16}, 16), 16)
    assert problem.clash == "tp 16 % (kv_heads 12) = 4"


def test_a_lawful_plan_has_no_problem() -> None:
    plan = parallelism_from({"tp": 2, "cp": 2, "pp": 2, "ep": 4}, gpus=64)
    assert list(problems(EXPERTS, TRAINING, plan, 64)) == []
    validate(EXPERTS, TRAINING, plan, 64)
    assert micro_batches(TRAINING, plan) == 8


def test_llama_3_spreads_126_layers_as_128() -> None:
    plan = parallelism_from({"pp": 16})
    assert spread_layers(126, plan) == (7, *(8,) * 14, 7)
    assert spread_layers(126, plan.with_values(chunks=8)) == (0, *(1,) * 126, 0)
    assert spread_layers(128, plan) == (8,) * 16


def test_layers_are_counted_once_each() -> None:
    counts = (3, 0, 5, 1)
    assert [list(part) for part in layer_ranges(counts)] == [[0, 1, 2], [], [3, 4, 5, 6, 7], [8]]


def test_an_imbalance_of_experts_needs_experts() -> None:
    training = Training(2048, 64, expert_imbalance=1.5)
    found = list(problems(DENSE, training, parallelism_from({"dp": 8}), 8))
    assert [(p.error_id, "1.5 with dense, which has no experts" in p.clash) for p in found] == [("E-IMBALANCE", True)]

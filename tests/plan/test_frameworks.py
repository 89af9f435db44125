"""Plans as Megatron-LM flags and torchtitan TOML: the round trip, and what neither may change in silence."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from framework_cases import MEGATRON, feasible, launches, models, torchtitan_launches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scaleacross.errors import Infeasible, InvalidInput
from scaleacross.model import Model, load_model
from scaleacross.plan.degrees import Parallelism, Training, parallelism_from
from scaleacross.plan.frameworks import FRAMEWORKS, Launch, canonical, guess, read, write
from scaleacross.plan.frameworks.megatron_text import layout_text, pattern_text, read_layout, read_pattern
from scaleacross.plan.frameworks.torchtitan_models import FLAVORS, shape
from scaleacross.plan.placement import place

MODELS = Path(__file__).parents[2] / "config" / "models"
LLAMA = load_model(MODELS / "llama3-405b.yaml")
MIXTRAL = load_model(MODELS / "mixtral-8x7b.yaml")
BATCH = Training(8192, 2048)
MEGATRON_PLAN: dict[str, Any] = {
    "tp": 8,
    "pp": 16,
    "dp": 128,
    "schedule": "interleaved",
    "chunks": 4,
    "dp_overlap": "prefetch",
}
TITAN_PLAN: dict[str, Any] = {**MEGATRON_PLAN, "chunks": 2, "dp_sharding": "fsdp", "order": ["tp", "cp", "dp", "pp"]}
slack = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


def launch_of(values: dict[str, Any], model: Model = LLAMA, training: Training = BATCH) -> Launch:
    launch = Launch(model, training, parallelism_from(values))
    assert feasible(launch)
    return launch


def check_round_trip(framework: str, launch: Launch) -> None:
    """The text reads back as the same launch and that writes the same text; or the error says what is in the way."""
    try:
        text = write(framework, launch)
    except Infeasible as error:
        assert error.error_id == "E-FRAMEWORK" and error.fix
        return
    reading = read(framework, text)
    assert reading.launch == canonical(launch)
    assert reading.notes == () and guess(text) == framework
    assert write(framework, reading.launch) == text


@given(launches(models(), MEGATRON))
@slack
def test_megatron_flags_read_back_as_the_identical_plan(launch: Launch) -> None:
    check_round_trip("megatron-lm", launch)


def test_megatron_splits_kv_heads_over_more_tensor_ranks_and_torchtitan_does_not() -> None:
    launch = launch_of({**MEGATRON_PLAN, "tp": 16, "dp": 64, "sequence_parallel": True})
    check_round_trip("megatron-lm", launch)
    assert "--num-query-groups 8" in write("megatron-lm", launch)
    titan = launch_of({**TITAN_PLAN, "tp": 16, "dp": 64, "sequence_parallel": True})
    with pytest.raises(Infeasible, match=r"E-FRAMEWORK.*tp 16 with 8 KV heads"):
        write("torchtitan", titan)


@given(torchtitan_launches())
@slack
def test_torchtitan_toml_reads_back_as_the_identical_plan(launch: Launch) -> None:
    check_round_trip("torchtitan", launch)


@given(launches(models(), {"order": st.permutations(("tp", "cp", "pp", "dp")).map(tuple)}))
@slack
def test_canonical_settles_and_keeps_the_placement(launch: Launch) -> None:
    once = canonical(launch)
    assert canonical(once) == once and feasible(once)

    class Whole:
        name, size = "cluster", launch.parallelism.world

    # A shard group of the whole or of one rank has another name after it; where every axis lies does not change.
    before, after = (place(case.parallelism, [Whole]).dims for case in (launch, once))
    assert [(dim.axis, dim.tier) for dim in before if dim.axis != "dp"] == [
        (dim.axis, dim.tier) for dim in after if dim.axis != "dp"
    ]


def test_every_knob_of_a_plan_is_drawn() -> None:
    """A knob added to Parallelism must be drawn by the round trip, so that it cannot be lost in silence."""
    source = (Path(__file__).parent / "framework_cases.py").read_text()
    derived = {"defaulted", "tp", "cp", "pp", "dp"}
    assert [
        item.name for item in fields(Parallelism) if f'"{item.name}"' not in source and item.name not in derived
    ] == ["chunks"]


def test_the_flags_of_a_plan() -> None:
    text = write("megatron-lm", launch_of(MEGATRON_PLAN))
    assert text.startswith("# Megatron-LM core_v0.19.0 (19 August 2026)\n# model: llama3-405b\n")
    for flag in (
        "torchrun --nnodes 2048 --nproc-per-node 8 pretrain_gpt.py",
        "--use-tp-pp-dp-mapping",
        "--num-virtual-stages-per-pipeline-rank 4",
        "--account-for-embedding-in-pipeline-split",
        "--account-for-loss-in-pipeline-split",
        "--overlap-param-gather",
        "--num-query-groups 8",
        "--untie-embeddings-and-output-weights",
    ):
        assert f"{flag} \\\n" in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_toml_of_a_plan() -> None:
    text = write("torchtitan", launch_of(TITAN_PLAN))
    for line in (
        'flavor = "405B"',
        "data_parallel_shard_degree = 128",
        'fsdp_reshard_after_forward = "never"',
        'pipeline_parallel_schedule = "Interleaved1F1B"',
        "pipeline_parallel_layers_per_stage = 4",
        "local_batch_size = 16",
    ):
        assert f"\n{line}\n" in text


@pytest.mark.parametrize(
    ("framework", "changes", "named"),
    [
        ("megatron-lm", {"schedule": "v-half", "chunks": 2}, "schedule v-half"),
        ("megatron-lm", {"dp_sharding": "hsdp", "dp_shard": 64}, "dp_sharding hsdp"),
        ("megatron-lm", {"dp_sharding": "fsdp"}, "dp_sharding fsdp"),
        ("megatron-lm", {"order": ["tp", "pp", "cp", "dp"], "cp": 2, "dp": 64}, "order tp, pp, cp, dp"),
        ("megatron-lm", {"schedule": "1f1b", "chunks": 1}, "p2p_overlap true (default) with schedule 1f1b"),
        ("torchtitan", {"order": ["tp", "cp", "pp", "dp"]}, "order tp, cp, pp, dp"),
        ("torchtitan", {"dp_sharding": "zero1"}, "dp_sharding zero1"),
        ("torchtitan", {"recompute": "selective"}, "recompute selective"),
        ("torchtitan", {"chunks": 4}, "4 chunks"),
        ("torchtitan", {"gradient_bytes": 2}, "gradient_bytes 2"),
        ("torchtitan", {"schedule": "zb-h1", "chunks": 1}, "schedule zb-h1"),
    ],
)
def test_what_a_framework_lacks_is_named(framework: str, changes: dict[str, Any], named: str) -> None:
    base = MEGATRON_PLAN if framework == "megatron-lm" else TITAN_PLAN
    with pytest.raises(Infeasible) as caught:
        write(framework, launch_of({**base, **changes}))
    assert caught.value.error_id == "E-FRAMEWORK" and named in caught.value.clash


def test_models_a_framework_lacks_are_named() -> None:
    chunked = load_model(MODELS / "llama4-maverick.yaml")
    with pytest.raises(Infeasible, match="chunks of 8192 tokens"):
        write("megatron-lm", launch_of({"tp": 8, "dp": 8}, chunked))
    wider = LLAMA.model_copy(update={"ffn": 53504})
    with pytest.raises(Infeasible, match="nearest is llama3 405B with ffn 53248, not 53504"):
        write("torchtitan", launch_of(TITAN_PLAN, wider))


def test_experts_and_dp_last_need_equal_groups_in_megatron() -> None:
    plan = {"tp": 4, "pp": 2, "dp": 8, "ep": 4, "etp": 1, "p2p_overlap": False}
    assert "--use-tp-pp-dp-mapping" in write("megatron-lm", launch_of(plan, MIXTRAL))
    with pytest.raises(Infeasible, match=r"etp 1 x ep 8 = 8 and tp 4 x cp 1 = 4 unequal"):
        write("megatron-lm", launch_of({**plan, "ep": 8}, MIXTRAL))


def test_shipped_models_have_the_shape_of_our_files() -> None:
    for file, key in (
        ("llama3-8b", ("llama3", "8B")),
        ("llama3-70b", ("llama3", "70B")),
        ("llama3-405b", ("llama3", "405B")),
        ("llama4-maverick", ("llama4", "17bx128e_irope")),
        ("qwen3-235b-a22b", ("qwen3", "235B-A22B")),
    ):
        assert shape(load_model(MODELS / f"{file}.yaml")) == shape(FLAVORS[key].model)
    deepseek = load_model(MODELS / "deepseek-v3.yaml").model_copy(update={"mtp_modules": 0})
    assert shape(deepseek) == shape(FLAVORS["deepseek_v3", "671B"].model)


SCRIPT = """
#!/bin/bash
# A launch script with arrays, as people write them.
GPUS_PER_NODE=8
NNODES=64
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES"
GPT_MODEL_ARGS=(
    --num-layers 96   # GPT-3
    --hidden-size 12288 --num-attention-heads 96
    --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50257
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size=1536
    --lr 6.0e-5 --fp16
)
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 8
    --num-layers-per-virtual-pipeline-stage 3 --sequence-parallel --use-distributed-optimizer
    --recompute-activations
)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes ${NNODES} pretrain_gpt.py ${GPT_MODEL_ARGS[@]} ${TRAINING_ARGS[@]}
"""


def test_a_launch_script_is_read() -> None:
    reading = read("megatron-lm", SCRIPT)
    launch, plan = reading.launch, reading.launch.parallelism
    assert (plan.tp, plan.pp, plan.dp, plan.chunks, plan.schedule) == (8, 8, 8, 4, "interleaved")
    assert (plan.recompute, plan.gradient_bytes, plan.dp_overlap) == ("selective", 2, "none")
    assert launch.model.vocab == 51200 and launch.model.dropout and launch.model.tied_embeddings
    assert launch.training == Training(2048, 1536, "fp16")
    assert reading.notes == ("no part of the plan, passed over: --lr",)


def test_defaults_of_variables_are_their_values() -> None:
    """``${NNODES:-64}``, as launch scripts let a scheduler's variables override what they say."""
    for default in ("${NNODES:-64}", '${NNODES:-"64"}', "${NNODES-${FEW:-64}}", "${1:-64}", "${FEW:-$MANY}"):
        script = SCRIPT.replace("NNODES=64", f"MANY=64\nNNODES={default}")
        assert read("megatron-lm", script) == read("megatron-lm", SCRIPT), default
    endless = SCRIPT.replace("NNODES=64", "P=/mine:$P\nQ=${P:-$Q}\nNNODES=64\n$P $Q")
    assert read("megatron-lm", endless) == read("megatron-lm", SCRIPT)
    with pytest.raises(InvalidInput, match=r"E-FLAG: --nnodes is '\$\{UNKNOWN\}'"):
        read("megatron-lm", SCRIPT.replace("NNODES=64", "NNODES=${UNKNOWN}"))


LINE = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 64 --num-attention-heads 8 "
    "--seq-length 64 --max-position-embeddings 64 --vocab-size 128 --micro-batch-size 1 "
)


@pytest.mark.parametrize(
    ("flags", "error_id", "words"),
    [
        ("--tensor-model-parallel-sise 8", "E-FLAG", "did you mean '--tensor-model-parallel-size'"),
        ("--tensor-model-parallel-size", "E-FLAG", "has no value"),
        ("--tensor-model-parallel-size eight", "E-FLAG", "'eight'"),
        ("--tensor-model-parallel-size 3", "E-WORLD", "8 GPUs % (tp 3 x cp 1 x pp 1) = 2"),
        ("--use-torch-fsdp2", "E-FRAMEWORK", "no plan of ours"),
        ("--use-megatron-fsdp --global-batch-size 64", "E-FRAMEWORK", "after each of 8 micro-batches"),
        ("--num-distributed-optimizer-instances 2", "E-FRAMEWORK", "instances 2"),
        ("--overlap-param-gather", "E-FLAG", "without --overlap-grad-reduce"),
        ("--hidden-dropout 0", "E-FRAMEWORK", "both or neither"),
        ("--cp-comm-type a2a", "E-FRAMEWORK", "--cp-comm-type a2a"),
        ("--recompute-granularity full --recompute-method block", "E-FRAMEWORK", "method block"),
        ("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3", "E-LAYERS", "(pp 4 x 3"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Ett|ttL", "E-LAYOUT", "4 layers and 0"),
        ("--num-experts 8 --moe-ffn-hidden-size 64 --moe-layer-freq 2", "E-FRAMEWORK", "MoE layers 10101010"),
        ("--group-query-attention --num-query-groups 3", "E-MODEL", "heads 8 is not a multiple of kv_heads 3"),
        ("--lr 'unclosed", "E-FLAG", "cannot be read"),
    ],
)
def test_lines_that_no_plan_describes_are_refused(flags: str, error_id: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read("megatron-lm", LINE + flags)
    assert caught.value.error_id == error_id and words in str(caught.value)


def test_the_number_of_gpus_must_be_known() -> None:
    bare = LINE.partition("pretrain_gpt.py")[2]
    with pytest.raises(InvalidInput, match="E-FRAMEWORK: the number of GPUs is not said"):
        read("megatron-lm", bare)
    assert read("megatron-lm", bare, gpus=16).launch.parallelism.dp == 16


def test_uneven_stages_are_read_as_a_layout() -> None:
    line = LINE + "--pipeline-model-parallel-size 4 "
    ends = read("megatron-lm", line + "--decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 3")
    assert ends.launch.parallelism.layout == (1, 2, 2, 3)
    one = read("megatron-lm", line.replace("--num-layers 8", "--num-layers 7") + "--account-for-loss-in-pipeline-split")
    assert one.launch.parallelism.layout == (2, 2, 2, 1)


def test_a_default_bucket_is_rounded_to_layers_and_said() -> None:
    reading = read("megatron-lm", LINE + "--overlap-grad-reduce")
    assert reading.launch.parallelism.bucket_layers == 8
    assert "--ddp-bucket-size 40000000 (default)" in reading.notes[0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 2))
def test_layouts_read_back(counts: list[int], modules: int) -> None:
    assert read_layout(layout_text(counts, modules)) == (tuple(counts), modules)


@given(st.lists(st.booleans(), min_size=1, max_size=24))
def test_patterns_read_back(pattern: list[bool]) -> None:
    assert read_pattern(pattern_text(pattern), len(pattern)) == pattern


def test_megatron_s_own_example_layout() -> None:
    assert read_layout("Ettt|(tt|)*29,m|L".replace(",m|L", "mL")) == ((3, *(2,) * 29, 0), 1)
    with pytest.raises(InvalidInput, match="E-FRAMEWORK"):
        read_layout("Et|tm|L")


@pytest.mark.parametrize(
    ("change", "error_id", "words"),
    [
        (("pipeline_parallel_degree", "pipeline_paralel_degree"), "E-FLAG", "did you mean 'pipeline_parallel_degree'"),
        (('"405B"', '"406B"'), "E-FLAG", "llama3 406B"),
        (("data_parallel_shard_degree = 128", "data_parallel_shard_degree = -1"), "E-FRAMEWORK", "GPUs is not said"),
        (('"none"', '"selective"'), "E-FRAMEWORK", "mode 'selective'"),
        (("global_batch_size = 2048", "global_batch_size = 4096"), "E-FRAMEWORK", "more than once"),
        (("tensor_parallel_degree = 8", "tensor_parallel_degree = true"), "E-FLAG", "type int"),
        (('"Interleaved1F1B"', '"LoopedBFS"'), "E-FRAMEWORK", "LoopedBFS"),
        (("[parallelism]", "[parallelism"), "E-FLAG", "no TOML"),
    ],
)
def test_toml_that_no_plan_describes_is_refused(change: tuple[str, str], error_id: str, words: str) -> None:
    text = write("torchtitan", launch_of(TITAN_PLAN))
    assert change[0] in text
    with pytest.raises(InvalidInput) as caught:
        read("torchtitan", text.replace(*change))
    assert caught.value.error_id == error_id and words in str(caught.value)


def test_toml_shards_over_the_gpus_that_are_left() -> None:
    text = write("torchtitan", launch_of(TITAN_PLAN))
    left = text.replace("data_parallel_shard_degree = 128", "data_parallel_shard_degree = -1")
    assert read("torchtitan", left, gpus=16384).launch == read("torchtitan", text).launch


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'megatron-lm'"):
        write("megatron", launch_of(MEGATRON_PLAN))
    assert FRAMEWORKS == ("megatron-lm", "torchtitan")


def test_a_tampered_bucket_is_noticed() -> None:
    """Flags win over comments: the comment only carries what has no flag."""
    text = write("megatron-lm", launch_of(MEGATRON_PLAN))
    other = text.replace("# model: llama3-405b", "# model: llama3-405b\n# scaleacross: tp=4 granularity=block")
    launch = read("megatron-lm", other).launch
    assert launch.parallelism == replace(read("megatron-lm", text).launch.parallelism, granularity="block")

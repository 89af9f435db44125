"""Memory of a stage: published totals, laws of sharding, and what a plan that doesn't fit is told."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.cluster.spec import Cluster
from scaleacross.errors import Infeasible
from scaleacross.model import Model, embedding_parameters, head_parameters, layer_parameters, load_model
from scaleacross.model.activations import layer_activation, loss_activation
from scaleacross.plan.degrees import Parallelism, Training
from scaleacross.plan.memory import Chunk, MemoryBreakdown, check_memory, shard_of, stage_memory
from scaleacross.schedule import build, names
from scaleacross.schedule.actions import Action, Schedule
from scaleacross.study.plans import Setting, build_schedule, stage_memories
from scaleacross.units import GIB

CONFIG = Path(__file__).parents[2] / "config"
H100 = load_accelerator(CONFIG / "accelerators" / "h100-sxm.yaml")
LLAMA = load_model(CONFIG / "models" / "llama3-405b.yaml")
DEEPSEEK = load_model(CONFIG / "models" / "deepseek-v3.yaml")
TRAINING = Training(8192, 2048)
SHARDINGS = ("ddp", "zero1", "zero2", "fsdp", "fsdp-reshard")
SHARDING_MORE = [("ddp", "zero1", "zero2"), ("ddp", "zero1", "fsdp", "fsdp-reshard"), ("ddp", "hsdp", "fsdp")]

# Korthikanti et al. (arXiv 2205.05198), figure 1, GiB of activations on the first stage, with tensor parallelism alone
# and with sequence parallelism and selective recomputation: pp, micro-batch, chunks, micro-batches, the two values
FIGURE_1 = {
    "megatron-22b": (1, 4, 1, 1, 59.25, 9.5625),
    "gpt3-175b": (8, 1, 3, 64, 66.84375, 12.3515625),
    "megatron-529.6b": (35, 1, 3, 280, 114.0234375, 23.076171875),
    "megatron-1008b": (64, 1, 1, 512, 131.25, 26.5625),
}


def model_named(name: str) -> Model:
    return load_model(CONFIG / "models" / f"{name}.yaml")


def plan(**values: object) -> Parallelism:
    standard = {"tp": 8, "pp": 16, "dp": 128, "sequence_parallel": True, "dp_sharding": "zero1"}
    return Parallelism(**{**standard, **values})


def held_by(
    model: Model,
    training: Training,
    parallelism: Parallelism,
    layers: Sequence[int],
    in_flight: int,
    stage: int,
    ends: bool = True,
) -> MemoryBreakdown:
    """A stage of one chunk that holds it ``in_flight`` times during a whole backward; the first and last stage hold the
    ends of the model."""
    head = ends and stage == parallelism.pp - 1
    chunk = Chunk(layers, ends and stage == 0, head)
    return stage_memory(model, training, parallelism, [chunk], np.array([[in_flight, 0, int(head), 1]]), stage)


def held_by_stages(model: Model, training: Training, parallelism: Parallelism) -> list[MemoryBreakdown]:
    """Every stage under the plan's own schedule."""
    setting = Setting(model, training, Cluster("none", "h100-sxm", ()), H100)
    return stage_memories(setting, parallelism, build_schedule(training, parallelism))


@pytest.mark.parametrize("name", FIGURE_1)
def test_korthikanti_figure_1_within_one_percent(name: str) -> None:
    """In flight on stage 0: pp x chunks + pp - 1 chunks when interleaved, pp without (their section 4.2.3)."""
    pp, micro_batch, chunks, batches, alone, both = FIGURE_1[name]
    model = model_named(name)
    each = model.layers // pp // chunks
    parts = [Chunk(range(each * chunk, each * (chunk + 1))) for chunk in range(chunks)]
    schedule = build("interleaved" if chunks > 1 else "1f1b", pp, batches, chunks)
    for expected, sequence_parallel, recompute in ((alone, False, "none"), (both, True, "selective")):
        parallelism = plan(
            pp=pp,
            dp=1,
            chunks=chunks,
            micro_batch=micro_batch,
            attention="unfused",
            sequence_parallel=sequence_parallel,
            recompute=recompute,
        )
        memory = stage_memory(model, Training(2048, batches), parallelism, parts, schedule.most_held[0], 0)
        working = _one_layers_scores(model, micro_batch) if recompute == "selective" else 0.0
        assert (memory.activations - working) / GIB == pytest.approx(expected, rel=0.01)


def _one_layers_scores(model: Model, micro_batch: int) -> float:
    """What selective recomputation holds of one layer while it runs: 5 a s^2 b / t bytes, not in the figure."""
    return 5 * model.heads * 2048**2 * micro_batch / 8


def test_states_take_eighteen_bytes_a_parameter() -> None:
    """BF16 weight 2, FP32 gradient 4, FP32 master and moments 12 (arXiv 1910.02054, section 3.1, FP32 gradients)."""
    memory = held_by(LLAMA, TRAINING, plan(dp_sharding="ddp"), range(8, 16), 16, 1)
    held = sum(layer_parameters(LLAMA, layer, tp=8).total for layer in range(8, 16))
    assert memory.weights + memory.gradients + memory.optimizer == 18 * held


def test_gradients_in_sixteen_bits_take_half_and_move_half() -> None:
    full, half = (held_by(LLAMA, TRAINING, plan(gradient_bytes=size), range(8), 8, 3) for size in (4, 2))
    assert half.gradients == full.gradients / 2 and half.weights == full.weights
    assert shard_of(TRAINING, plan(gradient_bytes=2, fused_accumulation=False)).gradient_bytes == 2


def test_first_and_last_stage_hold_embedding_and_head() -> None:
    first, middle, last = (held_by(LLAMA, TRAINING, plan(), range(7), 8, stage) for stage in (0, 5, 15))
    assert first.weights - middle.weights == 2 * embedding_parameters(LLAMA, 8).total
    assert last.weights - middle.weights == 2 * head_parameters(LLAMA, 8).total
    assert last.activations > middle.activations == first.activations


def test_a_tied_matrix_is_held_once_by_a_stage_that_has_both_ends() -> None:
    model = model_named("megatron-22b")
    one = held_by(model, Training(2048, 4), plan(pp=1, dp=1), range(48), 1, 0)
    ends = embedding_parameters(model, 8).total + 2 * model.hidden  # the final norm
    layers = sum(layer_parameters(model, layer, 8).total for layer in range(48))
    assert one.weights == 2 * (layers + ends)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("model", [LLAMA, DEEPSEEK], ids=["dense", "experts"])
@pytest.mark.parametrize("shardings", SHARDING_MORE, ids=lambda names: names[-1])
def test_sharding_more_never_holds_more(shardings: tuple[str, ...], model: Model, recompute: str) -> None:
    totals = [
        held_by(
            model,
            TRAINING,
            plan(
                ep=8 if model.moe else 1,
                etp=1,
                dp_sharding=sharding,
                recompute=recompute,
                dp_shard=16 if sharding == "hsdp" else 0,
            ),
            range(4, 8),
            8,
            3,
        ).total
        for sharding in shardings
    ]
    assert totals == sorted(totals, reverse=True) and totals[0] > totals[-1]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SHARDINGS),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 64),
    st.integers(0, 15),
)
def test_more_in_flight_and_fewer_tensor_ranks_hold_more(
    sharding: str, recompute: str, tp: int, in_flight: int, stage: int
) -> None:
    parallelism = plan(tp=tp, sequence_parallel=tp > 1, dp_sharding=sharding, recompute=recompute)
    memory = held_by(LLAMA, TRAINING, parallelism, range(8), in_flight, stage)
    deeper = held_by(LLAMA, TRAINING, parallelism, range(8), in_flight + 1, stage)
    assert deeper.activations > memory.activations > 0
    assert deeper.weights == memory.weights
    wider = held_by(
        LLAMA, TRAINING, parallelism.with_values(tp=2 * tp, sequence_parallel=True), range(8), in_flight, stage
    )
    assert wider.total < memory.total


def test_optimizer_states_are_divided_over_data_and_context_ranks() -> None:
    whole = held_by(LLAMA, TRAINING, plan(dp_sharding="ddp"), range(8), 8, 2).optimizer
    assert held_by(LLAMA, TRAINING, plan(dp=64), range(8), 8, 2).optimizer == pytest.approx(whole / 64)
    assert held_by(LLAMA, TRAINING, plan(dp=64, cp=2), range(8), 8, 2).optimizer == pytest.approx(whole / 128)


def test_hsdp_divides_over_its_group_only() -> None:
    whole = held_by(LLAMA, TRAINING, plan(dp_sharding="ddp"), range(8), 8, 2)
    group = held_by(LLAMA, TRAINING, plan(dp_sharding="hsdp", dp_shard=16), range(8), 8, 2)
    assert group.optimizer == pytest.approx(whole.optimizer / 16)
    assert (group.weights, group.gradients) == (whole.weights, whole.gradients)


def test_gradients_are_divided_only_where_every_micro_batch_reduces_them() -> None:
    """Reduced once a step, they accumulate whole until the last backward; a step of one micro-batch has no other."""
    whole = held_by(LLAMA, TRAINING, plan(dp_sharding="ddp"), range(8), 8, 2).gradients
    assert held_by(LLAMA, TRAINING, plan(dp_sharding="fsdp"), range(8), 8, 2).gradients == whole
    assert held_by(LLAMA, TRAINING, plan(dp_sharding="zero2"), range(8), 8, 2).gradients < whole / 4
    single = Training(8192, 128)
    assert held_by(LLAMA, single, plan(dp_sharding="fsdp"), range(8), 8, 2).gradients < whole / 4


def test_experts_are_divided_over_the_ranks_that_hold_the_same_ones() -> None:
    """tp 4, cp 1, dp 32, ep 16, etp 1: an expert is on 4 x 32 / 16 = 8 ranks, a dense parameter on 32."""
    parallelism = plan(tp=4, dp=32, ep=16, etp=1)
    memory = held_by(DEEPSEEK, Training(4096, 2048), parallelism, [10], 8, 3)
    held = layer_parameters(DEEPSEEK, 10, tp=4, ep=16)
    assert memory.optimizer == pytest.approx(12 * (held.dense / 32 + held.expert / 8))


def test_hsdp_divides_experts_inside_its_group() -> None:
    """dp_shard 16 of 64, ep 4: an expert is on 16 of 64 ranks, on 16 / 4 = 4 of a group's."""
    parallelism = plan(tp=1, sequence_parallel=False, dp=64, ep=4, dp_sharding="hsdp", dp_shard=16)
    memory = held_by(DEEPSEEK, Training(4096, 2048), parallelism, [10], 8, 3)
    held = layer_parameters(DEEPSEEK, 10, ep=4)
    assert memory.optimizer == pytest.approx(12 * (held.dense / 16 + held.expert / 4))


def test_dualpipe_holds_twice_the_parameters_and_a_micro_batch_more_than_1f1b() -> None:
    """Parameters twice, activations PP + 1 where 1F1B has PP (deepseek-ai/DualPipe, README)."""
    model = LLAMA.model_copy(update={"layers": 128})
    usual, dual = (
        held_by_stages(model, TRAINING, plan(pp=16, dp=32, schedule=schedule)) for schedule in ("1f1b", "dualpipe")
    )
    once = usual[1].activations / 15
    assert [stage.activations / once for stage in dual[1:-1]] == pytest.approx([17] * 14)
    assert [stage.weights for stage in dual[1:-1]] == [2 * usual[1].weights] * 14


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_activations_are_what_the_schedule_holds_of_each_chunk(data: st.DataObject) -> None:
    """Whatever the layout, the schedule and recomputation: the worst moment of a replay that adds and frees layers."""
    recompute = data.draw(st.sampled_from(["none", "selective", "full"]))
    pp, name = data.draw(st.sampled_from([2, 4])), data.draw(st.sampled_from(sorted(set(names()) - {"latency-aware"})))
    chunks = 2 if name in ("interleaved", "zbv", "v-half", "v-min", "dualpipe-v") else 1
    counts = data.draw(st.lists(st.integers(0, 6), min_size=pp * chunks, max_size=pp * chunks))
    model = LLAMA.model_copy(update={"layers": max(1, sum(counts))})
    layout = tuple(counts) if sum(counts) else (1, *counts[1:])
    parallelism = plan(pp=pp, dp=1, chunks=chunks, schedule=name, layout=layout, recompute=recompute)
    training = Training(8192, pp * data.draw(st.sampled_from([2, 3])))
    schedule = build_schedule(training, parallelism)
    activation = layer_activation(model, 0, shard_of(training, parallelism))
    layer, left = activation.stored(recompute), activation.left(recompute)
    ends = loss_activation(model, shard_of(training, parallelism))
    for rank, memory in enumerate(held_by_stages(model, training, parallelism)):
        held, most, beside, waiting = 0.0, 0.0, 0.0, 0
        again = activation.stored("none") - layer if any(layout[place] for place in schedule.positions[rank]) else 0.0
        for step in schedule.actions[rank]:
            position = schedule.positions[rank][step.chunk]
            layers, last, whole = layout[position], position == schedule.depth - 1, step.kind == "B" and step.whole
            held += layers * layer + last * ends.forward if step.kind == "F" else 0.0
            held += layers * (left - layer) if step.kind == "B" and not whole else 0.0
            waiting += step.kind == "B" and not whole
            passing = activation.stored("none") - left if waiting and again else 0.0
            most = max(most, held + max(again if whole else beside, passing))
            waiting -= step.kind == "W"
            if step.kind == "B":
                held -= last * (ends.forward - ends.weight)
            held -= layers * (layer if whole else left) + last * ends.weight if step.kind == "W" or whole else 0.0
            beside = again if whole and step.overlaps_next else 0.0
        working = ends.working if schedule.depth - 1 in schedule.positions[rank] else 0.0
        assert memory.activations == pytest.approx(most + working)


@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("layers", [1, 4])
def test_recomputed_activations_wait_for_their_weight_gradient(layers: int, recompute: str) -> None:
    """Hand-made orders of one rank: what is in flight and what waits add up, so that more waiting never holds less. A
    weight gradient right after its input gradient needs the chunk's layers all at once, a whole backward one of them:
    the same for a chunk of one layer."""
    parallelism = plan(pp=2, dp=1, recompute=recompute)
    activation = layer_activation(LLAMA, 0, shard_of(TRAINING, parallelism))
    stored, left = layers * activation.stored(recompute), layers * activation.left(recompute)
    passing = activation.stored("none") - activation.left(recompute)

    def peak(*steps: Action) -> float:
        held = Schedule("", 2, 4, 1, (steps, steps), ((0,), (1,))).most_held[0]
        return stage_memory(LLAMA, TRAINING, parallelism, [Chunk(range(layers))], held, 0).activations

    forwards = [Action("F", number) for number in range(4)]
    inputs, weights = ([Action(kind, number, whole=False) for number in range(4)] for kind in ("B", "W"))
    waiting = [peak(*forwards, *_in_turns(inputs, weights, count)) for count in (1, 2, 3, 4)]
    assert waiting == pytest.approx([(4 - count) * stored + count * left + passing for count in (1, 2, 3, 4)])
    whole = peak(*forwards, *(Action("B", number) for number in range(4)))
    assert whole == pytest.approx(4 * stored + activation.stored("none") - activation.stored(recompute))
    assert waiting == sorted(waiting)
    assert layers > 1 or waiting[0] == pytest.approx(whole)


def _in_turns(inputs: list[Action], weights: list[Action], waiting: int) -> list[Action]:
    """``waiting`` input gradients, then their weight gradients, and so on."""
    starts = range(0, len(inputs), waiting)
    return [step for start in starts for row in (inputs, weights) for step in row[start : start + waiting]]


def test_all_forwards_first_hold_the_logits_of_every_micro_batch() -> None:
    """GPipe, no layers on the last stage: FP32 logits and the norm's input and output, once for each micro-batch."""
    logits, norm = 8192 * LLAMA.vocab / 8, 2 * 8192 / 8 * LLAMA.hidden
    parallelism = plan(pp=2, dp=1, schedule="gpipe", layout=(126, 0))
    for batches in (1, 7):
        last = held_by_stages(LLAMA, Training(8192, batches), parallelism)[1]
        assert last.activations == pytest.approx(2 * logits + batches * (4 * logits + 2 * norm))


def test_prediction_modules_are_held_with_the_loss() -> None:
    """Parameters of the module and a copy of the token table; a second set of logits; its layer's activations."""
    alone = DEEPSEEK.model_copy(update={"mtp_modules": 0})
    parallelism = plan(tp=1, sequence_parallel=False, pp=4, dp=64, ep=16, layout=(16, 15, 15, 15), dp_sharding="ddp")
    training = Training(4096, 2048)
    without, with_module = (held_by_stages(model, training, parallelism) for model in (alone, DEEPSEEK))
    assert without[:-1] == with_module[:-1]
    module = layer_parameters(DEEPSEEK, 61, ep=16).total + embedding_parameters(DEEPSEEK).total
    assert with_module[-1].weights - without[-1].weights == 2 * module
    assert with_module[-1].optimizer - without[-1].optimizer == 12 * module
    logits = 4 * 4096 * DEEPSEEK.vocab
    assert with_module[-1].activations - without[-1].activations > logits


@pytest.mark.parametrize("tied", [False, True])
def test_a_rank_with_both_ends_holds_one_token_table(tied: bool) -> None:
    """Untied with a prediction module: table and output matrix; on a last stage of its own the module brings a copy."""
    model = DEEPSEEK.model_copy(update={"tied_embeddings": tied})
    values = {"tp": 1, "sequence_parallel": False, "ep": 16, "dp_sharding": "ddp"}
    training = Training(4096, 2048)
    table = embedding_parameters(model).total
    folded = held_by_stages(model, training, plan(**values, pp=1, dp=256))
    apart = held_by_stages(model, training, plan(**values, pp=2, dp=128, layout=(31, 30)))
    total = model.parameters() + model.mtp_parameters()
    experts = sum(layer_parameters(model, layer).expert for layer in range(3, 62))
    assert folded[0].weights == 2 * (total - experts + experts // 16)
    assert sum(stage.weights for stage in apart) == folded[0].weights + 2 * table


def test_llama3_405b_nearly_fills_the_device_as_it_was_trained_without_recomputation() -> None:
    """tp 8, pp 16, fully sharded, sequence 8,192, no activation checkpointing (arXiv 2407.21783, 3.3.2): 16 sequences a
    replica bound what is in flight; first and last stage hold a layer less. It ran in 80 GiB, FP32 gradients included;
    what we reserve for context and communication is an assumption, so only the device's whole memory is compared."""
    stages = [
        held_by(LLAMA, TRAINING, plan(dp_sharding="fsdp"), range(7 if stage in (0, 15) else 8), 16 - stage, stage)
        for stage in range(16)
    ]
    heaviest = max(stages, key=lambda stage: stage.total)
    assert heaviest.stage in (0, 1)
    assert 0.85 * 80 * GIB < heaviest.total < 80 * GIB


def test_what_does_not_fit_says_by_how_much_where_and_why() -> None:
    stages = [
        held_by(LLAMA, TRAINING, plan(pp=8, dp=256, dp_sharding="ddp"), range(16), 8 - stage, stage)
        for stage in range(3)
    ]
    with pytest.raises(Infeasible) as caught:
        check_memory(stages, H100)
    error, heaviest = caught.value, stages[0]
    limit = 76 * GIB
    assert error.error_id == "E-MEMORY" and "ep too where there are experts" in error.fix
    assert error.shortfall == pytest.approx(heaviest.total / limit - 1)
    assert f"stage 0 needs {heaviest.total / GIB:.1f} GiB" in str(error)
    assert f"{(heaviest.total - limit) / GIB:.1f} more than the 76.0 GiB of h100-sxm" in str(error)
    first, second = list(heaviest.parts())[:2]
    assert f"biggest: {first} " in str(error) and f", {second} " in str(error)


def test_parts_sum_to_the_total_and_come_biggest_first() -> None:
    memory = MemoryBreakdown(0, 1.0, 2.0, 3.0, 5.0, 4.0)
    assert memory.total == 15.0
    assert list(memory.parts()) == ["activations", "buffers", "optimizer", "gradients", "weights"]

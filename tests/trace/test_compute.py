"""Compute times: physical laws of the model, and the public measurements it is calibrated with."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scaleacross.cluster.accelerator import Accelerator, load_accelerator
from scaleacross.errors import InvalidInput
from scaleacross.model import Operator, Shard, backward_input, backward_weight, layer_operators, load_model
from scaleacross.model.operators import gemm, memory
from scaleacross.trace.compute import block_cost, calibration, operator_seconds

CONFIG = Path(__file__).parents[2] / "config"
NAMES = sorted(file.stem for file in (CONFIG / "accelerators").glob("*.yaml"))
ACCELERATORS = {name: load_accelerator(CONFIG / "accelerators" / f"{name}.yaml") for name in NAMES}
SIZES = st.integers(1, 20_000)
ANY = st.sampled_from(NAMES)


def product(m: int, n: int, k: int, count: int = 1) -> Operator:
    return gemm("product", (m, n, k), Shard(1, 1), count)


def test_the_six_accelerators_are_there() -> None:
    assert set(NAMES) >= {"a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200", "mi300x", "tpu-v5p"}


@pytest.mark.parametrize("name", NAMES)
def test_the_measured_product_is_reproduced(name: str) -> None:
    """``fraction`` is what the cited measurement says and nothing else."""
    measured = calibration(ACCELERATORS[name]).gemm.measured
    operator = product(*measured.shape)
    achieved = operator.flops / operator_seconds(operator, ACCELERATORS[name]) / 1e12
    assert achieved == pytest.approx(measured.tflops, rel=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_every_rate_names_its_source(name: str) -> None:
    calibrated = calibration(ACCELERATORS[name])
    assert set(calibrated.sources) == {"gemm", "attention", "memory", "kernel_overhead"}
    assert all(calibrated.sources.values()) and calibrated.gemm.measured.source and ACCELERATORS[name].source


def test_best_shape_measured_on_a100_within_ten_percent() -> None:
    """Another measurement than the calibration's: 271.2 TFLOP/s at 1024 x 10240 x 5120 (ML Engineering, its best shape;
    the calibration's 258 was measured with normally distributed numbers, which draw more power)."""
    operator = product(1024, 10240, 5120)
    achieved = operator.flops / operator_seconds(operator, ACCELERATORS["a100-80gb-sxm"]) / 1e12
    assert achieved == pytest.approx(271.2, rel=0.10)


@pytest.mark.parametrize(("keys", "tflops"), [(512, 430), (1024, 517), (2048, 566), (4096, 590), (16384, 621)])
def test_flash_attention_on_h100_follows_its_measured_curve(keys: int, tflops: float) -> None:
    """FlashAttention-3, head size 128, no mask (pytorch/benchmark, pull request 2391). Without a mask a query sees all
    keys, as a causal one does in a sequence twice as long."""
    flops = 10**15
    operator = Operator("attention", "attention", flops, 0, 2 * keys, 2 * keys, 128, 16, kernel="flash")
    assert flops / operator_seconds(operator, ACCELERATORS["h100-sxm"]) / 1e12 == pytest.approx(tflops, rel=0.03)


@settings(max_examples=200, deadline=None)
@given(ANY, SIZES, SIZES, SIZES, st.integers(1, 64))
def test_no_product_beats_the_roofline(name: str, m: int, n: int, k: int, count: int) -> None:
    accelerator, operator = ACCELERATORS[name], product(m, n, k, count)
    for each in (operator, *backward_input(operator), *backward_weight(operator)):
        seconds = operator_seconds(each, accelerator)
        assert seconds >= each.flops / accelerator.peak("bf16")
        assert seconds >= each.bytes / accelerator.memory_bandwidth


@settings(max_examples=100, deadline=None)
@given(ANY, SIZES, SIZES, SIZES, st.integers(0, 2), st.integers(1, 5000))
def test_a_larger_product_never_takes_less(name: str, m: int, n: int, k: int, axis: int, more: int) -> None:
    shape = [m, n, k]
    shape[axis] += more
    accelerator = ACCELERATORS[name]
    assert operator_seconds(product(*shape), accelerator) >= operator_seconds(product(m, n, k), accelerator)


def test_one_tile_more_than_the_units_costs_a_wave() -> None:
    """With a single kind of tile: 12 x 9 tiles run in one wave on 108 units, 12 x 10 in two."""
    accelerator = ACCELERATORS["a100-80gb-sxm"]
    only = {**accelerator.calibration, "gemm": {**accelerator.calibration["gemm"], "tiles": [[128, 128]]}}
    accelerator = replace(accelerator, name="one-tile", calibration=only)
    full, over = (operator_seconds(product(128 * 12, 128 * columns, 16384), accelerator) for columns in (9, 10))
    assert over / full == pytest.approx(2, rel=0.05)


def test_shallow_products_are_less_efficient() -> None:
    accelerator = ACCELERATORS["h100-sxm"]
    rates = [8192 * 8192 * k / operator_seconds(product(8192, 8192, k), accelerator) for k in (256, 1024, 8192)]
    assert rates == sorted(rates) and rates[0] < 0.7 * rates[-1]


@settings(max_examples=60, deadline=None)
@given(ANY, st.sampled_from(["llama3-405b", "deepseek-v3", "gpt3-175b"]), st.sampled_from([1, 4, 8]), st.booleans())
def test_astra_sims_roofline_gives_the_calibrated_seconds(name: str, model_name: str, tp: int, backward: bool) -> None:
    """floor(1e9 num_ops / min(bandwidth num_ops / tensor_size, peak)) ns, as ASTRA-sim computes it."""
    accelerator = ACCELERATORS[name]
    model = load_model(CONFIG / "models" / f"{model_name}.yaml")
    operators = list(layer_operators(model, 5, Shard(1, 4096, tp, ep=8)))
    if backward:
        operators = [gradient for each in operators for gradient in (*backward_input(each), *backward_weight(each))]
    cost = block_cost(operators, accelerator)
    rate = min(accelerator.memory_bandwidth * cost.num_ops / cost.tensor_size, accelerator.peak("bf16"))
    assert cost.num_ops / rate == pytest.approx(cost.seconds, rel=1e-9, abs=1e-12)
    assert cost.seconds == pytest.approx(sum(operator_seconds(each, accelerator) for each in operators))
    assert cost.num_ops == sum(operator.flops for operator in operators)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 10**11))
def test_a_block_without_flops_still_has_a_finite_roofline(traffic: int) -> None:
    accelerator = ACCELERATORS["h100-sxm"]
    cost = block_cost([memory("copy", traffic, 0)], accelerator)
    assert cost.num_ops == 1 and cost.tensor_size / accelerator.memory_bandwidth == pytest.approx(cost.seconds)


def test_no_work_takes_no_time() -> None:
    assert block_cost([], ACCELERATORS["h100-sxm"]) == (0, 0, 0.0)
    assert operator_seconds(memory("nothing", 0, 0), ACCELERATORS["h100-sxm"]) == 0.0


def test_a_changed_calibration_is_not_answered_from_the_cache() -> None:
    accelerator, operator = ACCELERATORS["h100-sxm"], product(4096, 4096, 4096)
    before = operator_seconds(operator, accelerator)
    slower = {**accelerator.calibration, "gemm": {**accelerator.calibration["gemm"], "fraction": 0.4}}
    assert operator_seconds(operator, replace(accelerator, calibration=slower)) > 1.5 * before
    assert operator_seconds(operator, accelerator) == before


@given(ANY, ANY)
def test_a_faster_memory_and_peak_are_never_slower(left: str, right: str) -> None:
    one, other = ACCELERATORS[left], ACCELERATORS[right]
    assume(left != right)
    faster = replace(
        one,
        name="both",
        memory_bandwidth=max(one.memory_bandwidth, other.memory_bandwidth),
        peak_flops={"bf16": max(one.peak("bf16"), other.peak("bf16"))},
    )
    operator = product(3000, 5000, 2000)
    assert operator_seconds(operator, faster) <= operator_seconds(operator, one)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("gemm", "fraction"), 1.2, "calibration.gemm.fraction"),
        (("gemm", "unitz"), 3, "did you mean 'units'"),
        (("memory",), None, "calibration.memory"),
        (("kernel_overhead",), "3", "E-UNIT"),
    ],
)
def test_bad_calibrations_are_refused(path: tuple[str, ...], value: object, said: str) -> None:
    accelerator = ACCELERATORS["h100-sxm"]
    raw = {key: dict(entry) if isinstance(entry, dict) else entry for key, entry in accelerator.calibration.items()}
    target = raw if len(path) == 1 else raw[path[0]]
    target[path[-1]] = value
    with pytest.raises(InvalidInput) as error:
        operator_seconds(product(8, 8, 8), replace(accelerator, calibration=raw))
    assert said in str(error.value)


def test_an_attention_kernel_without_rates_is_refused() -> None:
    operator = Operator("attention", "attention", 10**12, 0, 64, 64, 128, 16, kernel="flash7")
    with pytest.raises(InvalidInput, match=r"E-CALIBRATION.*no rates.*'flash7'.*did you mean"):
        operator_seconds(operator, ACCELERATORS["h100-sxm"])


def test_an_older_attention_kernel_is_slower_on_a_newer_accelerator() -> None:
    model = load_model(CONFIG / "models" / "llama3-405b.yaml")
    new, old = (layer_operators(model, 0, Shard(1, 8192, 8, attention=kernel)) for kernel in ("flash", "flash2"))
    for name, slower in (("h100-sxm", True), ("a100-80gb-sxm", False)):
        seconds = [block_cost(each, ACCELERATORS[name]).seconds for each in (new, old)]
        assert (seconds[1] > 1.02 * seconds[0]) == slower


def test_fp8_reaches_what_was_measured_and_leaves_attention_alone() -> None:
    """1280 TFLOP/s on H100 (SemiAnalysis, 2024)."""
    accelerator, operator = ACCELERATORS["h100-sxm"], product(8192, 8192, 8192)
    assert operator.flops / operator_seconds(operator, accelerator, "fp8") / 1e12 == pytest.approx(1280, rel=0.005)
    scores = replace(operator, name="scores.dgrad")
    assert operator_seconds(scores, accelerator, "fp8") == operator_seconds(scores, accelerator, "bf16")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"E-PRECISION.*tpu-v5p"):
        operator_seconds(product(8, 8, 8), ACCELERATORS["tpu-v5p"], "fp8")


def test_accelerators_are_plain_values() -> None:
    assert isinstance(ACCELERATORS["b200"], Accelerator)
    assert hash(ACCELERATORS["b200"]) == hash(replace(ACCELERATORS["b200"]))

"""Seconds an operator takes: roofline with the efficiencies of one calibration file an accelerator type.

A GEMM is cut into output tiles that run in waves over the compute units (NVIDIA, "Matrix Multiplication Background
User's Guide": tile and wave quantisation). A tile of tm x tn takes ``2 tm tn k`` FLOPs at its unit's share of the
achievable rate, plus a fixed time to fill and drain its pipeline, so that shallow products are slower; small tiles
reuse less of what they load and run below the best rate. The library takes the best of the accelerator's tiles. The
result is then written (for a weight gradient: added to memory), which the products don't hide. Memory traffic runs at
the measured share of the data-sheet bandwidth; every kernel pays a fixed overhead.

The achievable rate is fixed by one public measurement of one large product an accelerator (``gemm.measured``), never
by a training run. No number depends on the model, the plan or the run that is being predicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..cluster.accelerator import Accelerator
from ..errors import InvalidInput, did_you_mean
from ..model.operators import Operator
from ..units import parse

# What FP8 training leaves in BF16: attention, router, output matrix (DeepSeek-V3, arXiv 2412.19437, section 3.3.1).
_NEVER_FP8 = {"attention", "scores", "context", "router", "logits"}
_ON_SCORES = {"scores", "softmax", "context"}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measurement(_Section):
    """A public measurement of one product: m, n, k and TFLOP/s (1e12), with its source."""

    shape: tuple[int, int, int]
    tflops: float = Field(gt=0)
    source: str


class GemmCalibration(_Section):
    """How dense products run.

    Attributes:
        fraction: Share of the peak inside a tile of the best kind; follows from ``measured``.
        units: Compute units that each run one tile (streaming multiprocessors).
        tiles: Output tiles of the library, rows and columns.
        tile_overhead: Time to fill and drain one tile's pipeline, with a unit.
        reuse: A tile of tm x tn reaches ``i / (i + reuse)`` with i = tm tn / (tm + tn), relative to the best tile.
        measured: The measurement that ``fraction`` reproduces.
        relative: Of a precision, its share of its own peak over the share that BF16 reaches of its.
    """

    fraction: float = Field(gt=0, le=1)
    units: int = Field(gt=0)
    tiles: tuple[tuple[int, int], ...] = Field(min_length=1)
    tile_overhead: str
    reuse: float = Field(ge=0)
    measured: Measurement
    relative: dict[str, float] = {}


class AttentionCalibration(_Section):
    """Fused attention: share of the peak forward and backward for endless sequences, and the number of keys a query
    sees at which it halves (``half_keys``; a causal query sees half of the sequence on average)."""

    forward: float = Field(gt=0, le=1)
    backward: float = Field(gt=0, le=1)
    half_keys: float = Field(ge=0)


class MemoryCalibration(_Section):
    """Share of the data-sheet bandwidth that streaming kernels reach.

    ``scores`` is that of kernels on the score matrix of unfused attention (batched products, softmax, dropout with its
    random numbers); as the others where nobody measured it.
    """

    fraction: float = Field(gt=0, le=1)
    scores: float | None = Field(None, gt=0, le=1)


class Calibration(_Section):
    """The ``calibration:`` mapping of an accelerator file.

    ``attention`` has an entry a kernel (``flash``, the best one, and ``flash2``). ``assumption`` is true where some
    rate was not measured on this accelerator.
    """

    gemm: GemmCalibration
    attention: dict[str, AttentionCalibration]
    memory: MemoryCalibration
    kernel_overhead: str
    assumption: bool = False
    sources: dict[str, str] = {}

    @property
    def overhead(self) -> float:
        """Fixed cost of one kernel, seconds."""
        return parse(self.kernel_overhead, "second")


class BlockCost(NamedTuple):
    """A compute node of a trace: FLOPs, bytes (see ``block_cost``), and the seconds they stand for."""

    num_ops: int
    tensor_size: int
    seconds: float


def calibration(accelerator: Accelerator) -> Calibration:
    """The accelerator's calibration, checked.

    Raises:
        InvalidInput: E-CALIBRATION for a missing, unknown or out-of-range entry.
    """
    return _calibration(_Key(accelerator))


def operator_seconds(operator: Operator, accelerator: Accelerator, precision: str = "bf16") -> float:
    """Seconds of one operator on one accelerator, kernel overhead included; 0 for an operator without work."""
    if operator.flops == 0 and operator.bytes == 0:
        return 0.0
    return _seconds(operator, _Key(accelerator), precision)


def block_cost(operators: Iterable[Operator], accelerator: Accelerator, precision: str = "bf16") -> BlockCost:
    """One compute node for operators run one after the other.

    ``num_ops`` is their FLOPs (at least 1: a roofline divides by it). ``tensor_size`` is their traffic, raised to what
    takes the calibrated seconds at the data-sheet bandwidth, so that ASTRA-sim's roofline
    ``max(num_ops / peak, tensor_size / bandwidth)`` gives those seconds. No work at all: (0, 0, 0.0).
    """
    operators = tuple(operators)
    seconds = sum(operator_seconds(operator, accelerator, precision) for operator in operators)
    if seconds == 0.0:
        return BlockCost(0, 0, 0.0)
    flops = sum(operator.flops for operator in operators)
    traffic = sum(operator.bytes for operator in operators)
    return BlockCost(max(1, flops), max(traffic, math.ceil(seconds * accelerator.memory_bandwidth)), seconds)


class _Key:
    """Hashable by identity of content the cache needs; accelerators hold dictionaries."""

    __slots__ = ("_identity", "accelerator")

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self._identity = hash(accelerator)

    def __hash__(self) -> int:
        return self._identity

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (
            self.accelerator is other.accelerator or self.accelerator == other.accelerator
        )


@lru_cache(maxsize=64)
def _calibration(key: _Key) -> Calibration:
    accelerator = key.accelerator
    try:
        return Calibration.model_validate(accelerator.calibration)
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        sections = {"gemm": GemmCalibration, "attention": AttentionCalibration, "memory": MemoryCalibration}
        known: Any = sections.get(where[0], Calibration) if len(where) > 1 else Calibration
        unknown = first["type"] == "extra_forbidden"
        clash = f"{accelerator.name}: calibration.{'.'.join(where)}: {'unknown key' if unknown else first['msg']}"
        fix = did_you_mean(where[-1], known.model_fields) if unknown else "mend the accelerator's file"
        raise InvalidInput("E-CALIBRATION", clash, fix) from error


@lru_cache(maxsize=65536)
def _seconds(operator: Operator, key: _Key, precision: str) -> float:
    accelerator, calibrated = key.accelerator, _calibration(key)
    if precision == "fp8" and operator.name.partition(".")[0] in _NEVER_FP8:
        precision = "bf16"
    fraction = calibrated.memory.fraction
    if calibrated.memory.scores is not None and operator.name.partition(".")[0] in _ON_SCORES:
        fraction = calibrated.memory.scores
    bandwidth = accelerator.memory_bandwidth * fraction
    traffic = operator.bytes / bandwidth
    work = 0.0
    if operator.kind == "gemm":
        rate = accelerator.peak(precision) * calibrated.gemm.relative.get(precision, 1.0)
        work = _gemm_seconds(operator, rate, calibrated.gemm)
        work += operator.output_bytes / bandwidth
    elif operator.kind == "attention":
        work = _attention_seconds(operator, accelerator, precision, calibrated)
    return max(work, traffic) + calibrated.overhead


def _gemm_seconds(operator: Operator, achievable: float, calibrated: GemmCalibration) -> float:
    best_reuse = max(_reuse(tile, calibrated.reuse) for tile in calibrated.tiles)
    overhead = parse(calibrated.tile_overhead, "second")
    products = math.inf
    for tile in calibrated.tiles:
        tiles = math.ceil(operator.m / tile[0]) * math.ceil(operator.n / tile[1]) * operator.count
        waves = math.ceil(tiles / calibrated.units)
        rate = achievable / calibrated.units * calibrated.fraction * _reuse(tile, calibrated.reuse) / best_reuse
        products = min(products, waves * (2.0 * tile[0] * tile[1] * operator.k / rate + overhead))
    shape = 2 * operator.m * operator.n * operator.k * operator.count
    return products * (operator.flops / shape if shape else 1.0)


def _reuse(tile: tuple[int, int], half: float) -> float:
    intensity = tile[0] * tile[1] / (tile[0] + tile[1])
    return intensity / (intensity + half)


def _attention_seconds(operator: Operator, accelerator: Accelerator, precision: str, calibrated: Calibration) -> float:
    rates = calibrated.attention.get(operator.kernel)
    if rates is None:
        raise InvalidInput(
            "E-CALIBRATION",
            f"{accelerator.name} has no rates of the attention kernel '{operator.kernel}'",
            did_you_mean(operator.kernel, calibrated.attention),
        )
    share = rates.backward if operator.name.endswith("dgrad") else rates.forward
    keys = operator.n / 2
    return operator.flops / (accelerator.peak(precision) * share) * (keys + rates.half_keys) / keys

"""The degrees and knobs of one training plan: how many ranks each parallel axis has and how its work is arranged.

Vocabulary (the field's): *tp* tensor, *cp* context, *pp* pipeline, *dp* data, *ep* expert and *etp* expert-tensor
parallelism. Experts live on the ranks of the tp, cp and dp axes, so ``ep`` and ``etp`` multiply nothing: a plan fills
``tp * cp * pp * dp`` GPUs. Data sharding (ZeRO, FSDP) works over the dp *and* cp ranks, as in Megatron-LM, torchtitan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from ..errors import InvalidInput, did_you_mean
from .kinds import check_kinds, plain

AXES = ("tp", "cp", "pp", "dp")
DP_SHARDINGS = ("ddp", "zero1", "zero2", "fsdp", "fsdp-reshard", "hsdp")
DP_OVERLAPS = ("none", "backward", "prefetch")
RECOMPUTES = ("none", "selective", "full")
GRANULARITIES = ("operator", "layer", "block")
CP_METHODS = ("all-gather", "ring")
ATTENTIONS = ("flash", "flash2", "unfused")
RINGABLE = ("tp", "cp", "ep", "dp")
BY_SPEED: tuple[int, ...] = ()  # the layout that follows from the sites' speeds, before it is known
PRECISION_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}


@dataclass(frozen=True)
class Training:
    """What is trained, whatever the plan.

    Attributes:
        sequence_length: tokens a sequence.
        global_batch: sequences a step over all data-parallel replicas.
        precision: of the arithmetic: bf16, fp16, fp8 (activations and weights then still travel in 16 bit) or fp32.
        optimizer: adam or sgd.
        expert_imbalance: tokens of the busiest expert rank over the mean, at least 1. Every rank is taken to be that
            busy, since the busiest sets the time.
        document_length: mean length in tokens of the documents packed into a sequence, weighted by tokens, where
            attention is masked between them; 0: a sequence is one document. Fused kernels skip what is masked.
        attention_imbalance: attention work of the busiest rank over the mean, at least 1 (documents differ in length).
            Every rank is taken to be that busy.
    """

    sequence_length: int
    global_batch: int
    precision: str = "bf16"
    optimizer: str = "adam"
    expert_imbalance: float = 1.0
    document_length: float = 0.0
    attention_imbalance: float = 1.0

    def __post_init__(self) -> None:
        _positive("training", self, ("sequence_length", "global_batch"))
        _choice("precision", self.precision, PRECISION_BYTES)
        _choice("optimizer", self.optimizer, ("adam", "sgd"))
        check_kinds(self)
        for name in ("expert_imbalance", "attention_imbalance"):
            if not 1 <= getattr(self, name) < float("inf"):
                clash = f"training: {name} is {getattr(self, name)!r}"
                raise InvalidInput("E-IMBALANCE", clash, "give a number of at least 1")
        if self.document_length and not 1 <= self.document_length <= self.sequence_length:
            clash = f"training: document_length is {self.document_length!r}, sequence_length {self.sequence_length}"
            raise InvalidInput("E-DOCUMENT", clash, "give a number from 1 to sequence_length, or 0 for whole sequences")

    @property
    def tokens(self) -> int:
        """Tokens a step."""
        return self.sequence_length * self.global_batch

    @property
    def element_bytes(self) -> int:
        """Bytes of an activation or parameter on the wire and in memory."""
        return max(2, PRECISION_BYTES[self.precision])


@dataclass(frozen=True)
class Parallelism:
    """One plan's degrees and knobs.

    Attributes:
        tp, cp, pp, dp: degrees of the axes.
        ep: expert-parallel degree, taken from tp / etp, then cp, then dp (inner ranks first).
        etp: tensor-parallel degree inside an expert; 0 becomes tp, Megatron's default.
        order: the axes from the innermost tier to the outermost.
        micro_batch: sequences a micro-batch.
        chunks: virtual stages a pipeline rank.
        schedule, schedule_parameters: name of the pipeline schedule and its own (name, value) pairs.
        dp_sharding: what the data-parallel ranks share out:
            ``ddp`` nothing (gradients all-reduced), ``zero1`` optimizer (gradients reduce-scattered once a step,
            parameters all-gathered), ``zero2`` gradients too (reduce-scattered after every micro-batch, so none is ever
            held whole), ``fsdp`` parameters too, gathered once a step and kept (Llama 3, arXiv 2407.21783),
            ``fsdp-reshard`` gathered for every forward and backward and dropped, ``hsdp`` as fsdp inside groups of
            ``dp_shard`` dp ranks (times cp) with an all-reduce across the replicas.
        dp_shard: dp ranks that share a copy under hsdp; 0 lets the placement take those below dp's outermost tier.
        dp_overlap: ``none`` data-parallel traffic alone; ``backward`` gradients by bucket during backward; ``prefetch``
            parameters gathered ahead of the forward too, at most two gathers in flight.
        bucket_layers: layers a gradient bucket (and a parameter gather) holds.
        gradient_bytes: bytes an element of gradients as accumulated and reduced (4: FP32, as Llama 3; 2: bf16).
        sequence_parallel: activations between tensor-parallel regions are split along the sequence.
        cp_method: ``all-gather`` gathers K and V before attention (Llama 3); ``ring`` passes them round under it.
        recompute: none, selective (the attention core) or full (the whole layer), before backward.
        p2p_overlap: pipeline sends run under the next computation; False waits for each to end.
        scatter_gather: without sequence parallelism, send 1 / tp of a boundary and all-gather it on arrival (Megatron).
        attention: ``flash`` (the accelerator's best fused kernel), ``flash2`` (FlashAttention-2), or ``unfused`` as in
            Megatron-LM before 2022.
        fused_accumulation: GEMMs add weight gradients to memory (Megatron-LM since 2022); False: another kernel does.
        tp_overlap: in backward, the tensor-parallel reduction of an input gradient runs under the weight gradient of
            the same product (Megatron-LM since late 2021, Korthikanti et al., section 4.2.2); dense layers only.
        flat_rings: axes whose collectives run over one flat ring, a communicator group in rank order, instead of
            dimension by dimension.
        fixed_order: every rank meets its collectives in one fixed order, each after the one before. Safe where members
            of a group finish apart (double binary trees, say); flat rings always have it. Costs overlap between axes.
        layout: layers of every virtual stage, embedding to loss; None spreads them evenly, ``BY_SPEED`` (``by-speed``
            in a study) in proportion to the speed of their sites.
        granularity: of the trace: operator, layer, or block.
        defaulted: names that were not given (shown in messages; not part of equality).
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    etp: int = 0
    order: tuple[str, ...] = AXES
    micro_batch: int = 1
    chunks: int = 1
    schedule: str = "1f1b"
    schedule_parameters: tuple[tuple[str, Any], ...] = ()
    dp_sharding: str = "zero1"
    dp_shard: int = 0
    dp_overlap: str = "backward"
    bucket_layers: int = 1
    gradient_bytes: int = 4
    sequence_parallel: bool = False
    cp_method: str = "all-gather"
    recompute: str = "none"
    p2p_overlap: bool = True
    scatter_gather: bool = False
    attention: str = "flash"
    fused_accumulation: bool = True
    tp_overlap: bool = False
    flat_rings: tuple[str, ...] = ()
    fixed_order: bool = False
    layout: tuple[int, ...] | None = None
    granularity: str = "layer"
    defaulted: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        _positive("parallelism", self, (*AXES, "ep", "micro_batch", "chunks", "bucket_layers"))
        _choice("dp_sharding", self.dp_sharding, DP_SHARDINGS)
        _choice("dp_overlap", self.dp_overlap, DP_OVERLAPS)
        _choice("recompute", self.recompute, RECOMPUTES)
        _choice("cp_method", self.cp_method, CP_METHODS)
        _choice("granularity", self.granularity, GRANULARITIES)
        _choice("gradient_bytes", self.gradient_bytes, (2, 4))
        _choice("attention", self.attention, ATTENTIONS)
        check_kinds(self)
        for axis in self.flat_rings:
            _choice("flat_rings", axis, RINGABLE)
        if sorted(self.order) != sorted(AXES):
            raise InvalidInput(
                "E-ORDER", f"order {list(self.order)} is not a permutation of {list(AXES)}", "name each once"
            )
        for name in ("etp", "dp_shard"):
            if getattr(self, name) < 0:
                raise InvalidInput(
                    "E-DEGREE", f"{name} is {getattr(self, name)!r}", "give a whole number, 0 for the default"
                )
        object.__setattr__(self, "etp", self.etp or self.tp)

    @property
    def world(self) -> int:
        """GPUs the plan fills: tp * cp * pp * dp."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def data_ranks(self) -> int:
        """Ranks that hold the same dense parameters: dp * cp."""
        return self.dp * self.cp

    @property
    def expert_data_ranks(self) -> int:
        """Ranks that hold the same experts: tp * cp * dp / (etp * ep)."""
        return self.tp * self.cp * self.dp // (self.etp * self.ep)

    @property
    def shard_ranks(self) -> int:
        """Ranks over which one copy of the dense optimizer state is split (1 for ddp)."""
        if self.dp_sharding == "ddp":
            return 1
        return (self.dp_shard or self.dp) * self.cp if self.dp_sharding == "hsdp" else self.data_ranks

    @property
    def shard_group(self) -> int:
        """hsdp: ranks (dp and cp) of one shard group, 0 while the placement has not chosen it."""
        return self.dp_shard * self.cp if self.dp_sharding == "hsdp" else 0

    @property
    def virtual_stages(self) -> int:
        """Positions the layers are spread over: pp * chunks."""
        return self.pp * self.chunks

    def degree(self, axis: str) -> int:
        """Value of tp, cp, pp, dp, ep, etp, micro_batch or another whole-number knob."""
        return int(getattr(self, axis))

    def with_values(self, **values: Any) -> Parallelism:
        """A copy with some fields changed; a defaulted ``etp`` follows tp."""
        if "tp" in values and "etp" not in values and self.etp == self.tp:
            values["etp"] = values["tp"]
        return replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Every knob as plain data (lists, not tuples), in field order: ``from_values`` reads it back."""
        result: dict[str, Any] = {}
        for item in fields(self):
            if item.name != "defaulted":
                value = getattr(self, item.name)
                result[item.name] = plain(value)
        return result

    def describe(self, *names: str) -> str:
        """``tp 8 x cp 1 (default) x pp 16``: values with a mark on those that were not given."""
        return " x ".join(f"{name} {self.degree(name)}" + self.mark(name) for name in names)

    def mark(self, name: str) -> str:
        """`` (default)`` after the value of a knob nobody gave, `` (from the GPUs)`` for such a dp, else nothing."""
        if name not in self.defaulted:
            return ""
        return " (from the GPUs)" if name == "dp" and self.dp > 1 else " (default)"


def parallelism_from(values: Mapping[str, Any], gpus: int | None = None) -> Parallelism:
    """A plan from a point's values: unknown names are errors, what is missing gets its default and is remembered so.

    ``dp`` that is not given becomes ``gpus / (tp * cp * pp)`` where that is whole; ``sequence_parallel`` becomes true
    where tp > 1. ``schedule_parameters`` may be a mapping, ``order`` the text that tables show: ``tp-cp-pp-dp``.

    Raises:
        InvalidInput: E-KEY for an unknown name, E-DEGREE, E-CHOICE, E-LAYOUT or E-ORDER for a value of the wrong kind.
    """
    known = {item.name: item for item in fields(Parallelism) if item.name != "defaulted"}
    for name in values:
        if name not in known:
            raise InvalidInput("E-KEY", f"unknown parallelism key {name!r}", did_you_mean(name, known))
    given = {name: _frozen(name, value) for name, value in values.items()}
    result = Parallelism(**given, defaulted=frozenset(known) - frozenset(given))
    changes: dict[str, Any] = {}
    if "sequence_parallel" not in given:
        changes["sequence_parallel"] = result.tp > 1
    inner = result.tp * result.cp * result.pp
    if "dp" not in given and gpus is not None and gpus % inner == 0:
        changes["dp"] = gpus // inner
    return replace(result, **changes)


def training_from(values: Mapping[str, Any]) -> Training:
    """Training settings from a study's mapping.

    Raises:
        InvalidInput: E-KEY for an unknown or missing name, E-DEGREE, E-CHOICE or E-IMBALANCE for a bad value.
    """
    known = {item.name: item for item in fields(Training)}
    for name in values:
        if name not in known:
            raise InvalidInput("E-KEY", f"unknown training key {name!r}", did_you_mean(name, known))
    missing = [name for name, item in known.items() if item.default is MISSING and name not in values]
    if missing:
        raise InvalidInput("E-KEY", f"training lacks {', '.join(missing)}", "add it to the study")
    return Training(**values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def _frozen(name: str, value: Any) -> Any:
    """Lists and mappings of a study file as the tuples a frozen dataclass holds; their kind is checked there."""
    if name == "schedule_parameters" and isinstance(value, Mapping):
        return tuple(sorted((str(key), _tuples(item)) for key, item in value.items()))
    if name == "layout" and value == "by-speed":
        return BY_SPEED
    if name == "order" and isinstance(value, str) and "-" in value:
        return tuple(value.split("-"))
    return _tuples(value)


def _positive(what: str, instance: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(instance, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidInput("E-DEGREE", f"{what}: {name} is {value!r}", "give a whole number of at least 1")


def _choice(name: str, value: Any, known: Any) -> None:
    if value not in tuple(known):  # a list can be looked up in a tuple, not in a dict
        words = [str(word) for word in known]
        raise InvalidInput("E-CHOICE", f"{name} is {plain(value)!r}", did_you_mean(str(value), words))

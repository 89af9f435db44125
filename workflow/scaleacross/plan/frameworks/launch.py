"""What is launched, whatever the framework: a model, its training, a plan, and how many GPUs a node has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import Infeasible
from ...model import Model, Moe
from ..degrees import Parallelism, Training, parallelism_from
from ..rules import micro_batches

ORDERS = (("tp", "cp", "pp", "dp"), ("tp", "cp", "dp", "pp"))
DEFAULTS = Parallelism()
#: What a study assumes of the work itself, which no framework is told: name -> default.
ASSUMED = {"expert_imbalance": 1.0, "document_length": 0.0, "attention_imbalance": 1.0}
_REMARK = re.compile(r"^# (?P<key>model|scaleacross): (?P<text>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Launch:
    """A training run as a framework starts it. Under hsdp the plan's ``dp_shard`` is given, not left to placement."""

    model: Model
    training: Training
    parallelism: Parallelism
    gpus_per_node: int = 8

    @property
    def micro_batches(self) -> int:
        """Micro-batches a step of one data-parallel replica."""
        return micro_batches(self.training, self.parallelism)


@dataclass(frozen=True)
class Reading:
    """What settings were read as. ``notes``: settings taken for something near them, or without effect on the plan."""

    launch: Launch
    notes: tuple[str, ...] = ()


def canonical(launch: Launch) -> Launch:
    """The launch with every setting that changes nothing at its default, so that equal plans compare equal.

    Such are the place in ``order`` of an axis of degree 1, ``cp_method`` at cp 1, the data sharding of a single data
    rank, the size of an expert's tensor-parallel group without experts, and sizes of a model that another overrides.
    """
    training = launch.training
    if launch.model.moe is None:
        training = replace(training, expert_imbalance=ASSUMED["expert_imbalance"])
    return replace(launch, model=_canonical_model(launch.model), training=training, parallelism=_canonical_plan(launch))


def cannot(framework: str, what: str, fix: str) -> Infeasible:
    """The error for something a framework cannot express."""
    return Infeasible("E-FRAMEWORK", f"{framework} cannot express {what}", fix)


def given(parallelism: Parallelism, name: str) -> str:
    """``dp_sharding hsdp (default)``: a knob with its value, marked where nobody gave it."""
    value = getattr(parallelism, name)
    text = (
        ", ".join(map(str, value))
        if isinstance(value, tuple)
        else str(value).lower()
        if value in (True, False)
        else value
    )
    return f"{name} {text}{parallelism.mark(name)}"


def remarks(launch: Launch, names: Sequence[str]) -> list[str]:
    """Comment lines: the model's name, and knobs of the simulation that the framework has no setting for."""
    lines = [f"# model: {launch.model.name}"]
    own = []
    for name in names:
        value = getattr(launch.parallelism, name)
        if value != getattr(DEFAULTS, name):
            own.append(f"{name}={','.join(value) if isinstance(value, tuple) else value}")
    for name, default in ASSUMED.items():
        if getattr(launch.training, name) != default:
            own.append(f"{name}={getattr(launch.training, name)!r}")
    return lines + ([f"# scaleacross: {' '.join(own)}"] if own else [])


def read_remarks(text: str, names: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """The model's name and the knobs of ``remarks``; knobs that are not in ``names`` are left out."""
    found = {match["key"]: match["text"].strip() for match in _REMARK.finditer(text)}
    knobs: dict[str, Any] = {}
    for part in found.get("scaleacross", "").split():
        name, _, value = part.partition("=")
        if name in names:
            knobs[name] = _value(name, value)
    return found.get("model"), knobs


def assumptions(text: str) -> dict[str, Any]:
    """Values of ``ASSUMED`` in the comments of ``remarks``, defaults for those that are absent."""
    found = {match["key"]: match["text"] for match in _REMARK.finditer(text)}
    parts = dict(part.partition("=")[::2] for part in found.get("scaleacross", "").split())
    return {name: float(parts.get(name, default)) for name, default in ASSUMED.items()}


def plan_of(values: Mapping[str, Any], gpus: int) -> Parallelism:
    """A plan from values; ``defaulted`` is forgotten, since a framework's settings say everything."""
    return replace(parallelism_from(dict(values), gpus), defaulted=frozenset())


def _value(name: str, text: str) -> Any:
    default = getattr(DEFAULTS, name)
    if isinstance(default, bool):
        return text == "True"
    if isinstance(default, tuple):
        return tuple(text.split(","))
    return int(text) if isinstance(default, int) else text


def _canonical_plan(launch: Launch) -> Parallelism:
    plan = launch.parallelism
    changes: dict[str, Any] = {"order": _canonical_order(plan)}
    if plan.cp == 1:
        changes["cp_method"] = DEFAULTS.cp_method
    if launch.model.moe is None:
        changes["etp"] = plan.tp
    if plan.pp == 1:
        changes.update(p2p_overlap=DEFAULTS.p2p_overlap, scatter_gather=False)
    if plan.sequence_parallel or plan.tp == 1:
        changes["scatter_gather"] = False
    changes.update(_canonical_sharding(launch))
    if plan.virtual_stages == 1:
        changes["layout"] = None
    if plan.schedule_parameters == (("contiguous", plan.pp),):
        changes["schedule_parameters"] = ()
    return replace(plan, **changes)


def _canonical_order(plan: Parallelism) -> tuple[str, ...]:
    """The first order that lays the axes of more than one rank out as the plan's does."""

    def placed(order: Sequence[str]) -> list[str]:
        return [axis for axis in order if plan.degree(axis) > 1]

    return next((order for order in ORDERS if placed(order) == placed(plan.order)), plan.order)


def _canonical_sharding(launch: Launch) -> dict[str, Any]:
    plan = launch.parallelism
    experts_alone = launch.model.moe is None or plan.expert_data_ranks == 1
    if plan.data_ranks == 1 and experts_alone:
        return {"dp_sharding": DEFAULTS.dp_sharding, "dp_shard": 0, "dp_overlap": DEFAULTS.dp_overlap}
    if plan.dp_sharding == "hsdp" and plan.dp_shard == plan.dp:
        return {"dp_sharding": "fsdp", "dp_shard": 0}
    changes: dict[str, Any] = {}
    sharding = plan.dp_sharding
    if sharding == "hsdp" and plan.shard_group == 1 and launch.model.moe is None:
        sharding = changes["dp_sharding"] = "ddp"
    if sharding != "hsdp":
        changes["dp_shard"] = 0
    if sharding == "ddp" and plan.dp_overlap == "prefetch":
        changes["dp_overlap"] = "backward"
    return changes


def _canonical_model(model: Model) -> Model:
    changes: dict[str, Any] = {"source": ""}
    if model.bias:
        changes["qkv_bias"] = False
    if model.positions == "rope":
        changes["max_positions"] = 0
    if model.attention_chunk is None:
        changes["global_every"] = 1
    if model.mla:
        changes.update(kv_heads=model.heads, head_size=max(1, model.hidden // model.heads))
    if model.moe:
        changes["moe"] = canonical_experts(model.moe, [model.is_moe(layer) for layer in range(model.layers)])
    return model.model_copy(update=changes)


def canonical_experts(moe: Moe, pattern: Sequence[bool]) -> Moe:
    """``moe`` with its shared experts as one of their whole width, and the simplest description of its MoE layers.

    Raises:
        Infeasible: E-FRAMEWORK for a pattern that is not some dense layers and then every n-th an MoE layer.
    """
    width = moe.shared_width
    first, every = describe_pattern(pattern)
    shared = {"shared_experts": 1 if width else 0, "shared_ffn": None if width in (0, moe.ffn) else width}
    return moe.model_copy(update={**shared, "first_dense_layers": first, "every": every})


def describe_pattern(pattern: Sequence[bool]) -> tuple[int, int]:
    """(first_dense_layers, every) of a pattern of MoE layers, the smallest that gives it.

    Raises:
        Infeasible: E-FRAMEWORK where there is none.
    """
    layers = len(pattern)
    for first in range(layers + 1):
        for every in range(1, layers + 1):
            if all(
                (layer >= first and (layer - first) % every == every - 1) == pattern[layer] for layer in range(layers)
            ):
                return first, every
    text = "".join("1" if moe else "0" for moe in pattern)
    raise Infeasible("E-FRAMEWORK", f"MoE layers {text} are not every n-th layer after some dense ones", "change them")

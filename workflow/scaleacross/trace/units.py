"""The units data parallelism works in: a few layers, the embedding, or the loss head of one pipeline rank.

A unit is gathered, its gradient reduced and its parameters counted as one (FSDP's unit, arXiv 2304.11277; Megatron-LM's
bucket). Collectives run over the holders of the same parameters: dp and cp for dense ones, ``edata`` for experts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Model, Parameters, embedding_parameters, head_parameters, layer_parameters
from ..plan.degrees import Parallelism
from ..plan.layers import layer_ranges, spread_layers
from ..plan.placement import Placement
from .columns import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER

DENSE = ("data", "shard", "replica")
EXPERT = ("edata", "eshard", "ereplica")


@dataclass(frozen=True)
class Unit:
    """Part of one virtual stage.

    Attributes:
        label: ``embedding``, ``l7`` (its first layer) or ``head``.
        layers: numbers of its layers, empty for the ends of the model.
        dense, expert: parameters one rank holds before data sharding, elements.
    """

    label: str
    layers: tuple[int, ...]
    dense: int
    expert: int


@dataclass(frozen=True)
class Transfer:
    """One collective of data parallelism: name suffix, Chakra type, bytes as ASTRA-sim wants them, group."""

    suffix: str
    comm_type: int
    size: int
    group: str


def stage_units(model: Model, parallelism: Parallelism) -> tuple[tuple[Unit, ...], ...]:
    """The units of every virtual stage (position), in forward order."""
    ranges = layer_ranges(spread_layers(model.layers, parallelism))
    last = len(ranges) - 1
    result: list[tuple[Unit, ...]] = []
    for position, layers in enumerate(ranges):
        units: list[Unit] = []
        if position == 0:
            units.append(_unit("embedding", (), embedding_parameters(model, parallelism.tp)))
        for first in range(layers.start, layers.stop, parallelism.bucket_layers):
            group = tuple(range(first, min(first + parallelism.bucket_layers, layers.stop)))
            units.append(_unit(f"l{first}", group, _held(model, parallelism, group)))
        if position == last:
            held = head_parameters(model, parallelism.tp)
            modules = tuple(range(model.layers, model.layers + model.mtp_modules))
            held = held.plus(_held(model, parallelism, modules))
            if modules and not model.tied_embeddings:  # a copy of the token table, as in Megatron Core
                held = held.plus(Parameters(embedding_parameters(model, parallelism.tp).tensor))
            units.append(_unit("head", (), held))
        result.append(tuple(units))
    return tuple(result)


def without_table(unit: Unit, model: Model, parallelism: Parallelism) -> Unit:
    """A head whose token table is the embedding's on the same rank: counted there, not here."""
    table = embedding_parameters(model, parallelism.tp).tensor
    return Unit(unit.label, unit.layers, unit.dense - table, unit.expert)


def tied_bytes(model: Model, parallelism: Parallelism) -> int:
    """Gradient of the token table that first and last stage add up where both hold it, bytes."""
    return embedding_parameters(model, parallelism.tp).tensor * parallelism.gradient_bytes


def reductions(unit: Unit, parallelism: Parallelism, placement: Placement) -> tuple[tuple[Transfer, ...], ...]:
    """Gradient collectives of a unit: chains (dense, experts), each in order."""
    chains: list[tuple[Transfer, ...]] = []
    for suffix, elements, (data, shard, replica) in (("", unit.dense, DENSE), (".experts", unit.expert, EXPERT)):
        chain = _reduction(suffix, elements, parallelism, placement, data, shard, replica)
        if chain:
            chains.append(chain)
    return tuple(chains)


def gathers(unit: Unit, element_bytes: int, placement: Placement) -> tuple[Transfer, ...]:
    """Parameter all-gathers of a unit over the ranks that share it out."""
    result: list[Transfer] = []
    for suffix, elements, group in (("", unit.dense, "shard"), (".experts", unit.expert, "eshard")):
        ranks = placement.size_of(group)
        if elements and ranks > 1:
            result.append(Transfer(suffix, ALL_GATHER, -(-elements // ranks) * element_bytes, group))
    return tuple(result)


def optimizer_elements(units: list[Unit], placement: Placement) -> int:
    """Parameters whose optimizer step one rank takes: its shard of every unit."""
    dense, expert = placement.size_of("shard"), placement.size_of("eshard")
    return sum(-(-unit.dense // dense) + -(-unit.expert // expert) for unit in units)


def _unit(label: str, layers: tuple[int, ...], held: Parameters) -> Unit:
    return Unit(label, layers, held.dense, held.expert)


def _held(model: Model, parallelism: Parallelism, layers: tuple[int, ...]) -> Parameters:
    held = Parameters()
    for layer in layers:
        held = held.plus(layer_parameters(model, layer, parallelism.tp, parallelism.ep, parallelism.etp))
    return held


def _reduction(
    suffix: str, elements: int, parallelism: Parallelism, placement: Placement, data: str, shard: str, replica: str
) -> tuple[Transfer, ...]:
    if not elements:
        return ()
    ranks = placement.size_of(data)
    padded = -(-elements // ranks) * ranks * parallelism.gradient_bytes
    if parallelism.dp_sharding == "ddp":
        return (Transfer(suffix, ALL_REDUCE, padded, data),) if ranks > 1 else ()
    chain: list[Transfer] = []
    shards = placement.size_of(shard)
    if shards > 1:
        chain.append(Transfer(suffix, REDUCE_SCATTER, padded, shard))
    if placement.size_of(replica) > 1:
        chain.append(Transfer(f"{suffix}.replicas", ALL_REDUCE, padded // shards, replica))
    return tuple(chain)

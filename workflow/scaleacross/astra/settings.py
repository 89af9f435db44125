"""What a design point says about ASTRA-sim's system layer: collective algorithms, chunks, scheduling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..errors import Infeasible, InvalidInput, did_you_mean
from ..schema import quantity, validate
from .dimensions import AstraDim

# The field's names for the algorithms, and ASTRA-sim's.
ALGORITHMS = {"ring": "ring", "direct": "direct", "halving-doubling": "halvingDoubling"}
DEFAULT_ALGORITHM = "ring"


class Settings(BaseModel):
    """Keys of a study that the system file is made from, with their defaults.

    The defaults of ``chunk_splits`` and ``active_chunks`` are 1 because the congestion-unaware backend lets the
    chunks in flight share a link for free. Splitting would overlap the phases of a hierarchical collective; but above
    the node all dimensions are crossed through one NIC, so that what is overlapped shares a port and nothing is
    gained.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    collective: str | dict[str, str] = Field(
        DEFAULT_ALGORITHM,
        description="ring, direct or halving-doubling on every dimension, or per tier: {node: direct}, also "
        "written as the text 'node:direct campus:ring'; tiers not named use that of '*', else ring",
    )
    all_to_all: Annotated[str, Field(pattern=r"^(ring|direct([1-9]\d{0,4})?)$")] = Field(
        "direct1",
        description="ring, direct, or directK with K messages of a rank in flight; direct1 sends to one peer after the "
        "other, because the backend gives every message in flight the whole port",
    )
    chunk_splits: Annotated[int, Field(ge=1, le=2**20)] = Field(1, description="chunks a collective is cut into")
    active_chunks: Annotated[int, Field(ge=1, le=2**20)] = Field(1, description="chunks in flight on a dimension")
    scheduling_policy: Literal["LIFO", "FIFO", "EXPLICIT"] = Field("LIFO", description="order of waiting chunks")
    collective_optimization: Literal["localBWAware", "baseline"] = Field(
        "localBWAware", description="all-reduce over several dimensions: hierarchical, or whole on each in turn"
    )
    endpoint_delay: Annotated[quantity("second"), Field(ge=1e-9, le=1.0)] = Field(  # type: ignore[valid-type]
        10e-9, description="time an NPU spends on a message, at least 1 ns (ASTRA-sim aborts at 0)"
    )

    comm_streams: Literal["per-axis", 1] = Field(
        "per-axis",
        description="per-axis: tp, cp, ep, pp and dp overlap, a stream each; 1: one communication at a time, as in "
        "ASTRA-sim (read by the scaleacross network model alone)",
    )

    @property
    def endpoint_delay_ns(self) -> int:
        """``endpoint_delay`` in the whole nanoseconds that ASTRA-sim takes."""
        return round(self.endpoint_delay * 1e9)


SETTING_NAMES = frozenset(Settings.model_fields)


def read_settings(values: Mapping[str, Any]) -> Settings:
    """The settings among a point's values; the other values are somebody else's.

    Raises:
        InvalidInput: E-VALUE for a value that a setting cannot take.
    """
    return validate(Settings, {name: values[name] for name in SETTING_NAMES & values.keys()}, "design point")


@dataclass(frozen=True)
class Implementations:
    """ASTRA-sim's algorithm of each collective type, one entry a dimension: always exactly as many as dimensions."""

    all_reduce: tuple[str, ...]
    all_gather: tuple[str, ...]
    reduce_scatter: tuple[str, ...]
    all_to_all: tuple[str, ...]


def implementations(settings: Settings, dims: Sequence[AstraDim], tiers: Sequence[str]) -> Implementations:
    """The algorithm of every collective on every dimension.

    Pipeline dimensions carry sends and receives only and get ``ring``. All-to-all has its own setting: it has no
    halving-doubling, and ASTRA-sim's ring form sends each block through every rank in between.

    Args:
        settings: of the point.
        dims: dimensions, innermost first.
        tiers: names of the cluster's tiers, for a per-tier choice.

    Raises:
        InvalidInput: E-COLLECTIVE for an algorithm or a tier that does not exist.
        Infeasible: E-HALVING for halving-doubling on a dimension that is no power of two.
    """
    chosen = _per_tier(settings.collective, tiers)
    names = []
    for number, dim in enumerate(dims):
        algorithm = DEFAULT_ALGORITHM if dim.axis == "pp" else chosen[dim.tier]
        if algorithm == "halving-doubling" and dim.size & (dim.size - 1):
            raise _halving_error(number, dim)
        names.append(ALGORITHMS[algorithm])
    everywhere = tuple(names)
    return Implementations(everywhere, everywhere, everywhere, (settings.all_to_all,) * len(everywhere))


def _per_tier(collective: str | Mapping[str, str], tiers: Sequence[str]) -> dict[str, str]:
    if isinstance(collective, str) and ":" not in collective:
        choice: Mapping[str, str] = {"*": collective}
    elif isinstance(collective, str):
        parts = [part.partition(":") for part in collective.replace(",", " ").split()]
        choice = {tier: algorithm for tier, _, algorithm in parts}
    else:
        choice = collective
    for tier, algorithm in choice.items():
        if tier != "*" and tier not in tiers:
            raise InvalidInput(
                "E-COLLECTIVE", f"collective {collective!r}: no tier '{tier}'", did_you_mean(tier, tiers)
            )
        if algorithm not in ALGORITHMS:
            fix = did_you_mean(algorithm, ALGORITHMS)
            raise InvalidInput("E-COLLECTIVE", f"collective {collective!r}: no algorithm '{algorithm}'", fix)
    default = choice.get("*", DEFAULT_ALGORITHM)
    return {tier: choice.get(tier, default) for tier in tiers}


def _halving_error(number: int, dim: AstraDim) -> Infeasible:
    nearest = 2 ** round(math.log2(dim.size))
    clash = f"halving-doubling on dimension {number} ({dim.tier}, {dim.axis}) of {dim.size} NPUs, no power of two"
    fix = f"choose ring or direct for tier {dim.tier}, or degrees that leave {nearest} there"
    return Infeasible("E-HALVING", clash, fix, abs(dim.size - nearest) / dim.size)

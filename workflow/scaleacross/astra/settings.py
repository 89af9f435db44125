"""What a design point says about ASTRA-sim's system layer: collective algorithms, chunks, scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from ..schema import quantity, validate
from .algorithms.lowering import ALGORITHMS, DEFAULT_ALGORITHM


def _no_bool(value: Any) -> Any:
    """``true`` would pass for 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("streams", "write per-axis or 1")
    return value


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
        description=f"one of {', '.join(ALGORITHMS)}; or per tier: {{node: direct}}, also written as the text "
        "'node:direct campus:pat'; tiers not named use that of '*', else ring",
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

    comm_streams: Annotated[Literal["per-axis", 1], BeforeValidator(_no_bool)] = Field(
        "per-axis",
        description="per-axis: tp, cp, ep, pp and dp overlap, a stream each; 1: one communication at a time, as in "
        "ASTRA-sim (read by the scaleacross network model alone)",
    )

    qos: Literal["fair", "by-axis", "reserved"] = Field(
        "fair",
        description="fair: transfers share links alike; by-axis: strict priority, pipeline messages before tp, cp and "
        "ep before dp; reserved: nobody uses what others leave idle (read by the scaleacross network model alone)",
    )

    wan_sharing: Literal["fair", "temporal"] = Field(
        "fair",
        description="fair: transfers share the uplinks of the outermost tier; temporal: one data-parallel replica's "
        "pipeline message at a time has them, in turn (ATLAS; the scaleacross network model alone)",
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

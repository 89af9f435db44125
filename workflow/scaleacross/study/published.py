"""Published measurements beside a study: what somebody measured on some of its points, and where that is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..errors import InvalidInput
from ..model import Model, training_flops
from ..model.flops import Convention
from ..units import parse
from .tables import same


class Published(BaseModel):
    """One measured value: a time, or a rate that a time follows from.

    Attributes:
        when: Values that select the point; a study of one point needs none.
        iteration_time: With its unit; or
        tflops_per_gpu: Model FLOPs a GPU and second, in 1e12; or
        mfu: The same over the accelerator's peak.
        flops: How those FLOPs count causal attention (``model.flops``).
        table: Where it is written, shared by the rows that are compared with each other.
        row: Its name there.
        held_out: Whether no setting or calibration was chosen with this row in view.
        note: How the value was read or derived.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    when: dict[str, bool | int | float | str] = Field(default_factory=dict)
    iteration_time: str | None = None
    tflops_per_gpu: float | None = Field(None, gt=0)
    mfu: float | None = Field(None, gt=0, lt=1)
    flops: Convention = "full"
    table: str
    row: str
    held_out: bool = False
    note: str = ""

    @field_validator("iteration_time")
    @classmethod
    def _time_has_a_unit(cls, text: str | None) -> str | None:
        try:
            if text is not None and parse(text, "second") <= 0:
                raise ValueError(f"{text!r} is not above zero")
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _one_value(self) -> Published:
        given = [name for name in ("iteration_time", "tflops_per_gpu", "mfu") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of iteration_time, tflops_per_gpu and mfu, not {given}")
        return self

    def seconds(self, model: Model, sequence: int, work: Mapping[str, Any], document_length: float = 0.0) -> float:
        """Seconds an iteration.

        Args:
            model, sequence: What a rate's FLOPs are of; tokens a sequence.
            work: ``gpus``, ``tokens`` a step and ``peak_flops`` of a GPU (FLOP/s).
            document_length: Tokens of a packed document, weighted by tokens; 0: a sequence is one (``Training``).
        """
        if self.iteration_time is not None:
            return float(parse(self.iteration_time, "second"))
        flops = training_flops(model, work["tokens"], sequence, self.flops, document_length) / work["gpus"]
        return float(flops / (self.tflops_per_gpu * 1e12 if self.tflops_per_gpu else self.mfu * work["peak_flops"]))

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Whether a point of these values is the one that was measured."""
        return all(name in values and same(values[name], value) for name, value in self.when.items())

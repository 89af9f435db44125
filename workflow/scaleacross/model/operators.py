"""Operators: what one rank runs for one micro-batch, as FLOPs, memory traffic and GEMM shape.

FLOPs are those of the matrix units (multiply and add counted apart). Element-wise operators carry ``flops = 0``: their
time is memory traffic, and no published FLOP count includes them. With flash attention a causal layer computes half of
the score matrix, so ``flops`` (what the hardware does) is half of the full square; unfused kernels compute all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

GRADIENT_BYTES = 4  # gradients are accumulated in FP32 (Megatron-LM's main gradients; Llama 3, section 3.3.2)


@dataclass(frozen=True, slots=True)
class Shard:
    """How one micro-batch of one layer is divided, and over how many ranks.

    Attributes:
        micro_batch: Sequences.
        sequence: Tokens a sequence, before it is divided by ``cp``.
        tp, cp, ep, etp: Degrees of tensor, context, expert and expert-tensor parallelism.
        sequence_parallel: Norms and residuals divided by ``tp`` too (Korthikanti et al., arXiv 2205.05198).
        bytes_per_element: Of activations and weights in compute.
        attention: ``flash`` (fused, no score matrix in memory) or ``unfused`` (Megatron-LM before 2022).
        expert_imbalance: Tokens of the busiest expert rank over the mean, >= 1.
    """

    micro_batch: int
    sequence: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = True
    bytes_per_element: int = 2
    attention: Literal["flash", "unfused"] = "flash"
    expert_imbalance: float = 1.0

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one context-parallel rank."""
        return self.micro_batch * self.sequence // self.cp

    @property
    def residual_tokens(self) -> int:
        """Tokens whose residual stream (norms, dropout, additions) one rank computes."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens


@dataclass(frozen=True, slots=True)
class Operator:
    """One kernel (or a group that runs as one).

    Attributes:
        name: For example ``qkv`` or ``qkv.dgrad``.
        kind: ``gemm``, ``attention`` (fused) or ``memory`` (element-wise, bound by memory traffic).
        flops: Matrix FLOPs; 0 for ``memory``.
        bytes: Device-memory traffic, each operand read or written once.
        m, n, k: GEMM shape of one problem; for attention: queries, keys, head size.
        count: Problems run together (batched or grouped GEMM; sequences x heads for attention).
        weights: Whether the second operand is a parameter, so that a weight gradient exists.
        selective: Run again under selective recomputation: core attention where it is unfused, norms and the MLP's
            activation where it is fused.
    """

    name: str
    kind: Literal["gemm", "attention", "memory"]
    flops: int
    bytes: int
    m: int = 0
    n: int = 0
    k: int = 0
    count: int = 1
    weights: bool = False
    selective: bool = False


def gemm(
    name: str, m: int, n: int, k: int, element: int, count: int = 1, weights: bool = True, selective: bool = False
) -> Operator:
    """``count`` products of an m x k by a k x n matrix of ``element``-byte numbers: 2mnk FLOPs each."""
    traffic = element * (m * k + k * n + m * n) * count
    return Operator(name, "gemm", 2 * m * n * k * count, traffic, m, n, k, count, weights, selective)


def memory(name: str, traffic: int, selective: bool = False) -> Operator:
    """An element-wise operator that moves ``traffic`` bytes."""
    return Operator(name, "memory", 0, traffic, selective=selective)


def backward_input(operator: Operator) -> tuple[Operator, ...]:
    """Operators of the gradient with respect to the inputs.

    A GEMM with weights: one product of the same FLOPs. A batched GEMM of two activations: one for each operand. Flash
    attention: five products instead of two, the scores being computed again (FlashAttention-2, arXiv 2307.08691).
    An element-wise operator: the output's gradient and the saved input are read, the input's gradient is written, 1.5
    times the traffic of reading one tensor and writing one.
    """
    name = f"{operator.name}.dgrad"
    if operator.kind == "memory":
        return (replace(operator, name=name, bytes=operator.bytes * 3 // 2),)
    if operator.kind == "attention":
        return (replace(operator, name=name, flops=operator.flops * 5 // 2, bytes=operator.bytes * 2),)
    first = replace(operator, name=name, n=operator.k, k=operator.n, weights=False)
    if operator.weights:
        return (first,)
    return (first, replace(operator, name=f"{operator.name}.dgrad2", m=operator.k, k=operator.m, weights=False))


def backward_weight(operator: Operator) -> tuple[Operator, ...]:
    """The gradient with respect to the weights: one product k x m by m x n, added to an FP32 gradient in memory."""
    if operator.kind != "gemm" or not operator.weights:
        return ()
    rows, columns, depth = operator.k, operator.n, operator.m
    elements = (operator.m * operator.k + operator.k * operator.n + operator.m * operator.n) * operator.count
    element = operator.bytes // max(elements, 1)
    accumulated = (2 * GRADIENT_BYTES - element) * rows * columns * operator.count
    traffic = operator.bytes + accumulated
    return (replace(operator, name=f"{operator.name}.wgrad", bytes=traffic, m=rows, n=columns, k=depth, weights=False),)


def recomputed(operators: tuple[Operator, ...], recompute: str) -> tuple[Operator, ...]:
    """Forward operators that run again before the backward pass.

    ``none``: none. ``full``: all of the layer. ``selective``: what selective recomputation drops (a flash kernel
    computes the scores again inside its backward pass in any mode, counted there).
    """
    if recompute == "full":
        return operators
    if recompute == "selective":
        return tuple(operator for operator in operators if operator.selective)
    return ()

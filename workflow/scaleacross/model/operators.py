"""Operators: what one rank runs for one micro-batch, as FLOPs, memory traffic and GEMM shape.

FLOPs are those of the matrix units (multiply and add counted apart). Element-wise operators carry ``flops = 0``: their
time is memory traffic, and no published FLOP count includes them. With flash attention a causal layer computes half of
the score matrix, so ``flops`` (what the hardware does) is half of the full square; unfused kernels compute all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Shard:
    """How one micro-batch of one layer is divided, and over how many ranks.

    Attributes:
        micro_batch: Sequences.
        sequence: Tokens a sequence, before it is divided by ``cp``.
        tp, cp, ep, etp: Degrees of tensor, context, expert and expert-tensor parallelism.
        sequence_parallel: Norms and residuals divided by ``tp`` too (Korthikanti et al., arXiv 2205.05198).
        bytes_per_element: Of activations and weights in compute.
        attention: ``flash`` (the accelerator's best fused kernel, no score matrix in memory), ``flash2``
            (FlashAttention-2, what was there when Hopper was new) or ``unfused`` (Megatron-LM before 2022).
        expert_imbalance: Tokens of the busiest expert rank over the mean, >= 1.
        document_length: Tokens of the documents packed into a sequence, between which fused attention is masked
            (unfused kernels compute the whole square all the same); 0: a sequence is one document.
        attention_imbalance: Attention work of the busiest rank over the mean, >= 1.
        gradient_bytes: Of the number that weight gradients are accumulated in.
        fused_accumulation: Weight gradients are added to memory by the GEMM itself (Megatron-LM since 2022); otherwise
            written, then read and added by another kernel.
    """

    micro_batch: int
    sequence: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = True
    bytes_per_element: int = 2
    attention: Literal["flash", "flash2", "unfused"] = "flash"
    expert_imbalance: float = 1.0
    document_length: float = 0.0
    attention_imbalance: float = 1.0
    gradient_bytes: int = 4
    fused_accumulation: bool = True

    @property
    def fused(self) -> bool:
        """Whether attention is one kernel that keeps its scores on chip."""
        return self.attention != "unfused"

    def attended(self, span: int) -> int:
        """Keys that the last query of a document sees, of the ``span`` that its layer allows."""
        return min(span, round(self.document_length)) if self.document_length else span

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
        weights: Whether the second operand is a parameter, so that a weight gradient exists; ``bias``: and a bias too.
        selective: Run again under selective recomputation: core attention where it is unfused; where it is fused,
            norms, the MLP's activation and the up-projections of latent attention.
        output_bytes: The part of ``bytes`` a GEMM moves for its result, after its products (8 an element where it adds
            to an accumulated gradient in FP32: one read, one write).
        kernel: Which kernel runs fused attention (``Shard.attention``).
        backward_bytes: Traffic of an element-wise operator's backward pass.
        element, gradient_element, fused_accumulation: Bytes of a number of a GEMM and of its accumulated weight
            gradient, and how that is added (see ``Shard``).
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
    bias: bool = False
    selective: bool = False
    output_bytes: int = 0
    kernel: str = ""
    backward_bytes: int = 0
    element: int = 2
    gradient_element: int = 4
    fused_accumulation: bool = True


def gemm(
    name: str,
    shape: tuple[int, int, int],
    shard: Shard,
    count: int = 1,
    weights: bool = True,
    bias: bool = False,
    selective: bool = False,
) -> Operator:
    """``count`` products of an m x k by a k x n matrix (``shape`` = m, n, k): 2mnk FLOPs each."""
    m, n, k = shape
    element = shard.bytes_per_element
    output = element * m * n * count
    return Operator(
        name,
        "gemm",
        flops=2 * m * n * k * count,
        bytes=element * (m * k + k * n) * count + output,
        m=m,
        n=n,
        k=k,
        count=count,
        weights=weights,
        bias=bias,
        selective=selective,
        output_bytes=output,
        element=element,
        gradient_element=shard.gradient_bytes,
        fused_accumulation=shard.fused_accumulation,
    )


def memory(name: str, traffic: int, backward: int, selective: bool = False) -> Operator:
    """An element-wise operator that moves ``traffic`` bytes forward and ``backward`` bytes in its backward pass."""
    return Operator(name, "memory", 0, traffic, selective=selective, backward_bytes=backward)


def backward_input(operator: Operator) -> tuple[Operator, ...]:
    """Operators of the gradient with respect to the inputs.

    A GEMM with weights: one product of the same FLOPs. A batched GEMM of two activations: one for each operand. Flash
    attention: five products instead of two, the scores being computed again (FlashAttention-2, arXiv 2307.08691).
    An element-wise operator: its own backward traffic; none if it has no backward pass.
    """
    name = f"{operator.name}.dgrad"
    if operator.kind == "memory":
        return (replace(operator, name=name, bytes=operator.backward_bytes),) if operator.backward_bytes else ()
    if operator.kind == "attention":
        return (replace(operator, name=name, flops=operator.flops * 5 // 2, bytes=operator.bytes * 2),)
    element = operator.element
    left = replace(
        operator,
        name=name,
        n=operator.k,
        k=operator.n,
        weights=False,
        bias=False,
        output_bytes=element * operator.m * operator.k * operator.count,
    )
    if operator.weights:
        return (left,)
    right = replace(
        operator,
        name=f"{operator.name}.dgrad2",
        m=operator.k,
        k=operator.m,
        output_bytes=element * operator.k * operator.n * operator.count,
    )
    return (left, right)


def backward_weight(operator: Operator) -> tuple[Operator, ...]:
    """The gradient with respect to the weights: one product k x m by m x n, its addition to the accumulated gradient
    (inside the product, or a kernel of its own), and the sum over rows that is the bias's."""
    if operator.kind != "gemm" or not operator.weights:
        return ()
    element, weights = operator.element, operator.k * operator.n * operator.count
    result = (2 * operator.gradient_element if operator.fused_accumulation else element) * weights
    operators = [
        replace(
            operator,
            name=f"{operator.name}.wgrad",
            bytes=operator.bytes - element * weights + result,
            m=operator.k,
            k=operator.m,
            weights=False,
            bias=False,
            output_bytes=result,
        )
    ]
    if not operator.fused_accumulation:
        traffic = (element + 2 * operator.gradient_element) * weights
        operators.append(memory(f"{operator.name}.accumulate", traffic, 0))
    if operator.bias:
        operators.append(memory(f"{operator.name}.bgrad", element * operator.m * operator.n * operator.count, 0))
    return tuple(operators)


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

"""The operators of each block of a transformer, for one rank's shard of one micro-batch, forward.

A layer is an attention block followed by an MLP or MoE block; each starts with its norm and ends with its addition to
the residual stream. Matrix FLOPs summed over ranks don't depend on the degrees (a property test). ``backward_input``
and ``backward_weight`` derive the backward pass from these.
"""

from __future__ import annotations

from dataclasses import replace

from .operators import Operator, Shard, gemm, memory
from .spec import Model


def attention_operators(model: Model, layer: int, shard: Shard) -> tuple[Operator, ...]:
    """Norm, projections, core attention, output projection, residual."""
    _element, tokens = shard.bytes_per_element, shard.tokens
    projections = _latent_projections(model, shard) if model.mla else _projections(model, shard)
    output = gemm(
        "output",
        (tokens, model.hidden, model.heads * model.value_size // shard.tp),
        shard,
        bias=model.bias,
    )
    return (
        _norm("attention_norm", model, shard),
        *projections,
        *_core_attention(model, layer, shard),
        output,
        _residual("attention_residual", model, shard),
    )


def mlp_operators(model: Model, layer: int, shard: Shard) -> tuple[Operator, ...]:
    """Norm, up (and gate) projection, activation, down projection, residual of a dense layer."""
    del layer  # every dense MLP of a model is alike
    return (
        _norm("mlp_norm", model, shard),
        *_mlp("mlp", model, shard.tokens, model.ffn // shard.tp, shard),
        _residual("mlp_residual", model, shard),
    )


def moe_operators(model: Model, layer: int, shard: Shard) -> tuple[Operator, ...]:
    """Norm, router, permutation, shared and routed experts, combination, residual of an MoE layer.

    Routed rows on one rank: every rank of the ``ep x etp`` group routes ``tokens / tp`` tokens to ``top_k`` experts,
    balanced, and expert-tensor parallelism gathers the rows of ``etp`` ranks and divides the expert's width by it.
    """
    del layer
    if model.moe is None:
        return ()
    moe, element, tokens = model.moe, shard.bytes_per_element, shard.tokens
    routed_tokens = tokens // shard.tp
    sent = routed_tokens * moe.top_k
    rows = sent * shard.etp
    experts = max(1, moe.experts // shard.ep)
    routed = _grouped(_mlp("expert", model, 1, moe.ffn // shard.etp, shard), rows, experts, shard)
    combined = element * (sent + routed_tokens) * model.hidden
    shared = _mlp("shared", model, tokens, moe.shared_width // shard.tp, shard) if moe.shared_experts else ()
    return (
        _norm("moe_norm", model, shard),
        gemm("router", (routed_tokens, moe.experts, model.hidden), shard),
        memory("permute", 2 * element * sent * model.hidden, 2 * element * sent * model.hidden),
        *shared,
        *routed,
        memory("combine", combined, combined),
        _residual("moe_residual", model, shard),
    )


def layer_operators(model: Model, layer: int, shard: Shard) -> tuple[Operator, ...]:
    """All forward operators of layer ``layer``: attention, then MLP or MoE."""
    feed_forward = moe_operators if model.is_moe(layer) else mlp_operators
    return attention_operators(model, layer, shard) + feed_forward(model, layer, shard)


def embedding_operators(model: Model, shard: Shard) -> tuple[Operator, ...]:
    """Rows read from the table and written to the residual stream (dropout included where the model has it).

    Backward: the gradient is read and added to rows of the FP32 table.
    """
    element, elements = shard.bytes_per_element, shard.residual_tokens * model.hidden
    dropout = 2 * element + 1 if model.dropout else 0
    return (
        memory(
            "embedding", (2 * element + dropout) * elements, (element + 2 * shard.gradient_bytes + dropout) * elements
        ),
    )


def head_operators(model: Model, shard: Shard) -> tuple[Operator, ...]:
    """Final norm, logits (vocabulary divided by ``tp``) and cross-entropy in FP32.

    The loss's passes over the logits are those of Megatron-LM's vocabulary-parallel cross-entropy: cast, maximum,
    subtraction, exponential with its sum, division; backward: scaling and cast.
    """
    element, columns = shard.bytes_per_element, -(-model.vocab // shard.tp)
    logits = shard.tokens * columns
    return (
        _norm("final_norm", model, shard),
        gemm("logits", (shard.tokens, columns, model.hidden), shard),
        memory("loss", logits * (element + 4 + 4 + 8 + 12 + 8), logits * (8 + 4 + element)),
    )


def mtp_operators(model: Model, module: int, shard: Shard) -> tuple[Operator, ...]:
    """One multi-token-prediction module: two norms, projection of 2h to h, a layer, and its logits and loss."""
    rows = shard.tokens // shard.tp
    return (
        *embedding_operators(model, shard),
        _norm("mtp_hidden_norm", model, shard),
        _norm("mtp_embedding_norm", model, shard),
        gemm("mtp_projection", (rows, model.hidden, 2 * model.hidden), shard),
        *layer_operators(model, model.layers + module, shard),
        *head_operators(model, shard),
    )


def optimizer_operators(parameters: int, gradient_bytes: int = 4, scaled: bool = False) -> tuple[Operator, ...]:
    """Adam's step over ``parameters`` elements in mixed precision, as Megatron-LM runs it.

    Gradient norm (4 bytes read); Adam (FP32 gradient, master and two moments read, the latter three written: 28);
    copy of the master to the 2-byte weight (6); zeroing the gradient. Gradients of 2 bytes are first copied to FP32
    (6); those of a ``scaled`` loss (FP16) are divided by the scale and searched for infinities (8).
    """
    traffic = {"gradient_norm": 4, "adam": 28, "copy_weights": 6, "zero_gradients": gradient_bytes}
    if gradient_bytes < 4:
        traffic["widen_gradients"] = gradient_bytes + 4
    if scaled:
        traffic["unscale_gradients"] = 8
    return tuple(memory(name, size * parameters, 0) for name, size in traffic.items())


def _projections(model: Model, shard: Shard) -> tuple[Operator, ...]:
    """Queries, keys and values. Around unfused attention, Megatron-LM adds their bias in a pass of its own and joins
    their three gradients into one tensor by copying (2021, ``megatron/model/transformer.py``)."""
    element, tokens = shard.bytes_per_element, shard.tokens
    width = (model.query_width + model.kv_width) // shard.tp
    bias = model.bias or model.qkv_bias
    operators = [gemm("qkv", (tokens, width, model.hidden), shard, bias=bias)]
    if not shard.fused:
        copy = 2 * element * tokens * width
        operators.append(memory("qkv_layout", copy if bias else 0, copy))
    rotated = model.query_width // shard.tp + model.rank_kv_width(shard.tp) // 2
    passes = int(model.positions == "rope") + int(model.qk_norm)
    if passes:
        traffic = 2 * passes * element * tokens * rotated
        operators.append(memory("rope", traffic, traffic))
    return tuple(operators)


def _latent_projections(model: Model, shard: Shard) -> tuple[Operator, ...]:
    """Down-projections are not divided by ``tp``; each rank runs them on its own part of the sequence."""
    assert model.mla is not None
    mla, element, tokens = model.mla, shard.bytes_per_element, shard.tokens
    heads, rows = model.heads // shard.tp, tokens // shard.tp
    latent, fused = mla.query_rank + mla.kv_rank, shard.fused
    rotated = 2 * element * tokens * heads * 2 * model.qk_size
    return (
        gemm("latent", (rows, latent + mla.rope_size, model.hidden), shard),
        memory("latent_norm", 2 * element * rows * latent, 5 * element * rows * latent),
        gemm("query", (tokens, heads * model.qk_size, mla.query_rank), shard, selective=fused),
        gemm("key_value", (tokens, heads * (mla.nope_size + mla.value_size), mla.kv_rank), shard, selective=fused),
        memory("rope", rotated, rotated, selective=fused),
    )


def _core_attention(model: Model, layer: int, shard: Shard) -> tuple[Operator, ...]:
    element, heads = shard.bytes_per_element, shard.micro_batch * model.heads // shard.tp
    queries, keys = shard.sequence // shard.cp, model.attention_span(layer, shard.sequence)
    if shard.fused:
        keys = shard.attended(keys)
        flops = heads * queries * keys * (model.qk_size + model.value_size)  # 2 x the full square, halved: causal
        if shard.attention_imbalance != 1:
            flops = round(flops * shard.attention_imbalance)
        traffic = element * shard.tokens * model.heads // shard.tp * (model.qk_size + model.value_size)
        traffic += element * shard.micro_batch * shard.sequence * model.rank_kv_width(shard.tp)
        size = model.qk_size
        return (Operator("attention", "attention", flops, traffic, queries, keys, size, heads, kernel=shard.attention),)
    scores = heads * queries * keys
    dropout = 2 * element + 1 if model.dropout else 0
    # The causal softmax reads its own half of every matrix and writes all of it (Megatron-LM, fused_kernels/
    # scaled_upper_triang_masked_softmax.h); the products and the dropout run over the whole.
    forward, backward = scores * element * 3 // 2 + scores * dropout, scores * (2 * element + dropout)
    return (
        gemm("scores", (queries, keys, model.qk_size), shard, heads, weights=False, selective=True),
        memory("softmax", forward, backward, selective=True),
        gemm("context", (queries, model.value_size, keys), shard, heads, weights=False, selective=True),
        memory("context_layout", 2 * element * heads * queries * model.value_size, 0, selective=True),
    )


def _mlp(prefix: str, model: Model, tokens: int, ffn: int, shard: Shard) -> tuple[Operator, ...]:
    element, fused = shard.bytes_per_element, shard.fused
    up = 2 * ffn if model.mlp == "swiglu" else ffn
    return (
        gemm(f"{prefix}_up", (tokens, up, model.hidden), shard, bias=model.bias),
        memory(
            f"{prefix}_activation", element * tokens * (up + ffn), element * tokens * (2 * up + ffn), selective=fused
        ),
        gemm(f"{prefix}_down", (tokens, model.hidden, ffn), shard, bias=model.bias),
    )


def _grouped(one_row: tuple[Operator, ...], rows: int, experts: int, shard: Shard) -> tuple[Operator, ...]:
    """Expert operators for ``rows`` rows over ``experts`` local experts: FLOPs exact, the GEMM's height the mean's."""
    rows = round(rows * shard.expert_imbalance)
    height = max(1, round(rows / experts))
    grouped = []
    for operator in one_row:
        if operator.kind == "memory":
            grouped.append(
                replace(operator, bytes=operator.bytes * rows, backward_bytes=operator.backward_bytes * rows)
            )
            continue
        like = gemm(operator.name, (height, operator.n, operator.k), shard, experts)
        grouped.append(replace(like, flops=operator.flops * rows))
    return tuple(grouped)


def _norm(name: str, model: Model, shard: Shard) -> Operator:
    """Backward: output gradient and input read and input gradient written, then both read again for the weights'."""
    element, elements = shard.bytes_per_element, shard.residual_tokens * model.hidden
    return memory(name, 2 * element * elements, 5 * element * elements, selective=shard.fused)


def _residual(name: str, model: Model, shard: Shard) -> Operator:
    """Bias, dropout and addition in one kernel: two tensors read, one written, and the mask's byte.

    Backward: the gradients of the two branches added (read two, write one), and the dropout's.
    """
    element, elements = shard.bytes_per_element, shard.residual_tokens * model.hidden
    dropout = 2 * element + 1 if model.dropout else 0
    return memory(name, (3 * element + int(model.dropout)) * elements, (3 * element + dropout) * elements)

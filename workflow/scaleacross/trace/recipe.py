"""What a rank runs for one layer (or the embedding, or the loss): compute blocks and the collectives between them.

A *recipe* is a short list of steps with dependencies among them. It is made once for each kind of layer and phase and
then instantiated for every micro-batch. Collectives of degree-1 axes never appear. Sizes follow ASTRA-sim: an
all-gather is given one rank's shard, every other collective the whole buffer, in bytes.

Volumes (a layer, one micro-batch of t tokens a context-parallel rank, h hidden, e bytes an element):

* tp with sequence parallelism: 2 all-gathers and 2 reduce-scatters of t h e each way (Korthikanti et al., arXiv
  2205.05198, section 4.2.2); without: 2 all-reduces each way (Megatron-LM, arXiv 1909.08053).
* tp beyond the KV heads: all-gather of t (q + kv widths) e after the projections, reduce-scatter of its gradient; of it
  a rank keeps its query heads and one KV head (Megatron Core, attention.py).
* cp: all-gather of K and V forward, reduce-scatter of their gradients backward (Llama 3, arXiv 2407.21783, 3.3.2).
* ep: all-to-all of t / tp * top_k * h e (times the imbalance of routing) out and back, each way; all-gather and
  reduce-scatter among the ``etp`` ranks.

Left out because they are small or hidden: the second all-gather of a layer's input in backward (under the input
gradient), the loss' all-reduces of one number a token, all-reduces of norm gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster.accelerator import Accelerator
from ..model import (
    Model,
    Operator,
    Shard,
    attention_operators,
    backward_input,
    backward_weight,
    embedding_operators,
    head_operators,
    layer_operators,
    mlp_operators,
    moe_operators,
    mtp_operators,
    recomputed,
)
from ..plan.degrees import Parallelism
from ..plan.placement import Placement
from .columns import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from .compute import block_cost
from .steps import COMPUTE, INPUT, Handles, Recipe, Step

_START: Handles = (INPUT,)


@dataclass(frozen=True)
class Kitchen:
    """Makes recipes for one plan: ``kitchen.layer(model.is_moe(l), ...)``."""

    model: Model
    parallelism: Parallelism
    placement: Placement
    shard: Shard
    accelerator: Accelerator
    precision: str

    def forward(self, layer: int) -> Recipe:
        """Forward of one transformer layer."""
        chain = _Chain(self)
        return chain.finish(self._layer_forward(chain, layer, _START))

    def backward(self, layer: int, whole: bool) -> Recipe:
        """Backward of one layer, recomputation first; input gradients only unless ``whole``."""
        chain = _Chain(self)
        return chain.finish(self._layer_backward(chain, layer, whole, _START))

    def weight(self, layer: int) -> Recipe:
        """Weight gradients of one layer, where the schedule runs them apart."""
        chain = _Chain(self)
        model, shard = self.model, self.shard
        feed_forward = moe_operators if model.is_moe(layer) else mlp_operators
        after = chain.compute(
            feed_name(model, layer), _each(backward_weight, feed_forward(model, layer, shard)), _START
        )
        return chain.finish(
            chain.compute("attention", _each(backward_weight, attention_operators(model, layer, shard)), after)
        )

    def embedding(self, phase: str) -> Recipe:
        """Token look-up: forward (F), its gradient (B); W is part of B, a table has no input gradient."""
        chain, operators = _Chain(self), embedding_operators(self.model, self.shard)
        if phase == "F":
            after = chain.compute("embedding", operators, _START)
            return chain.finish(chain.reduce("embedding.rs", after))
        after = chain.gather("embedding.ag", _START)
        return chain.finish(chain.compute("embedding", _each(backward_input, operators), after))

    def head(self, phase: str) -> Recipe:
        """Final norm, logits and loss, multi-token-prediction modules before them: F, B (input), BW (whole) or W."""
        chain, after = _Chain(self), _START
        modules = range(self.model.mtp_modules)
        if phase == "F":
            for module in modules:
                after = self._module_forward(chain, module, after)
            return chain.finish(self._head_forward(chain, after))
        if phase == "W":
            after = chain.compute("head", _each(backward_weight, head_operators(self.model, self.shard)), after)
            for module in modules:
                operators = mtp_operators(self.model, module, self.shard)
                after = chain.compute(f"mtp{module}", _each(backward_weight, operators), after)
            return chain.finish(after)
        after = self._head_backward(chain, phase == "BW", after)
        for module in modules:
            after = self._module_backward(chain, module, phase == "BW", after)
        return chain.finish(after)

    # -- layers -------------------------------------------------------------------------------------------------------

    def _layer_forward(self, chain: _Chain, layer: int, after: Handles) -> Handles:
        after = self._attention_forward(chain, layer, after)
        if self.model.is_moe(layer):
            return self._moe_forward(chain, layer, after)
        after = chain.gather("mlp.ag", after)
        after = chain.compute("mlp", mlp_operators(self.model, layer, self.shard), after)
        return chain.reduce("mlp.rs", after)

    def _attention_forward(self, chain: _Chain, layer: int, after: Handles) -> Handles:
        operators = attention_operators(self.model, layer, self.shard)
        after = chain.gather("attention.ag", after)
        if self.shard.cp == 1 and not self._splits_kv_heads:
            return chain.reduce("attention.rs", chain.compute("attention", operators, after))
        before, core, output = _split_attention(operators)
        projected = chain.compute("qkv", before, after)
        if self._splits_kv_heads:
            projected = chain.collective("tp", "qkv.ag", ALL_GATHER, self._qkv_bytes // self.shard.tp, "tp", projected)
        gathered = chain.collective("cp", "kv.ag", ALL_GATHER, self._kv_bytes // self.shard.cp, "cp", projected)
        if self.shard.cp > 1 and self.parallelism.cp_method == "ring":
            attended = chain.compute("attention", core, projected)
            after = chain.compute("output", output, attended + gathered)
        else:
            after = chain.compute("attention", core + output, gathered)
        return chain.reduce("attention.rs", after)

    def _layer_backward(self, chain: _Chain, layer: int, whole: bool, after: Handles) -> Handles:
        if self.parallelism.recompute == "full":
            prefix, chain.prefix = chain.prefix, f"{chain.prefix}recompute."
            after = self._layer_forward(chain, layer, after)
            chain.prefix = prefix
        feed_forward = self._moe_backward if self.model.is_moe(layer) else self._mlp_backward
        after = feed_forward(chain, layer, whole, after)
        return self._attention_backward(chain, layer, whole, after)

    def _attention_backward(self, chain: _Chain, layer: int, whole: bool, after: Handles) -> Handles:
        operators = attention_operators(self.model, layer, self.shard)
        after = chain.gather("attention.ag", after)
        if self.shard.cp == 1 and not self._splits_kv_heads:
            return self._reduced_backward(chain, "attention", operators, whole, after)
        before, core, output = _split_attention(operators)
        attended = chain.compute("attention", self._back(core + output, whole), after)
        ring = self.shard.cp > 1 and self.parallelism.cp_method == "ring"
        reduced = chain.collective("cp", "kv.rs", REDUCE_SCATTER, self._kv_bytes, "cp", after if ring else attended)
        joined = reduced + attended if ring else reduced
        if self._splits_kv_heads:
            joined = chain.collective("tp", "qkv.rs", REDUCE_SCATTER, self._qkv_bytes, "tp", joined)
        return chain.reduce("attention.rs", chain.compute("qkv", self._back(before, whole), joined))

    def _mlp_backward(self, chain: _Chain, layer: int, whole: bool, after: Handles) -> Handles:
        after = chain.gather("mlp.ag", after)
        return self._reduced_backward(chain, "mlp", mlp_operators(self.model, layer, self.shard), whole, after)

    def _reduced_backward(
        self, chain: _Chain, name: str, operators: tuple[Operator, ...], whole: bool, after: Handles
    ) -> Handles:
        """Backward of a tensor-parallel region and the reduction of its input's gradient.

        With ``tp_overlap`` that reduction runs under the weight gradient of the region's first product; the norm before
        it comes after both.
        """
        first = next((index for index, item in enumerate(operators) if item.name in ("qkv", "mlp_up")), None)
        if not (self.parallelism.tp_overlap and whole) or first is None:
            return chain.reduce(f"{name}.rs", chain.compute(name, self._back(operators, whole), after))
        entry, product, rest = operators[:first], operators[first], operators[first + 1 :]
        inputs = (*self._again((*entry, product)), *self._back(rest, whole), *backward_input(product))
        after = chain.compute(name, inputs, after)
        reduced = chain.reduce(f"{name}.rs", after)
        weighed = chain.compute(f"{name}.wgrad", backward_weight(product), after)
        return chain.compute(f"{name}.entry", _each(backward_input, entry), reduced + weighed)

    def _moe_forward(self, chain: _Chain, layer: int, after: Handles) -> Handles:
        router, shared, experts, combine = _split_moe(moe_operators(self.model, layer, self.shard))
        routed = chain.compute("router", router, after)
        sent = chain.exchange("dispatch", routed)
        aside = self._shared(chain, shared, routed)
        arrived = chain.collective("tp", "experts.ag", ALL_GATHER, chain.routed_bytes, "etp", sent)
        done = chain.compute("experts", experts, arrived)
        reduced = chain.collective("tp", "experts.rs", REDUCE_SCATTER, chain.routed_bytes * self.shard.etp, "etp", done)
        returned = chain.exchange("combine", reduced)
        return chain.compute("combine", combine, returned + aside)

    def _moe_backward(self, chain: _Chain, layer: int, whole: bool, after: Handles) -> Handles:
        router, shared, experts, combine = _split_moe(moe_operators(self.model, layer, self.shard))
        spread = chain.compute("combine", self._back(combine, whole), after)
        sent = chain.exchange("combine", spread)
        aside = self._shared(chain, self._back(shared, whole), spread)
        arrived = chain.collective("tp", "experts.ag", ALL_GATHER, chain.routed_bytes, "etp", sent)
        done = chain.compute("experts", self._back(experts, whole), arrived)
        reduced = chain.collective("tp", "experts.rs", REDUCE_SCATTER, chain.routed_bytes * self.shard.etp, "etp", done)
        returned = chain.exchange("dispatch", reduced)
        return chain.compute("router", self._back(router, whole), returned + aside)

    def _shared(self, chain: _Chain, operators: Sequence[Operator], after: Handles) -> Handles:
        """Shared experts: tensor parallel, beside the routed ones' all-to-all."""
        if not operators:
            return ()
        return chain.reduce("shared.rs", chain.compute("shared", operators, chain.gather("shared.ag", after)))

    # -- ends of the model --------------------------------------------------------------------------------------------

    def _head_forward(self, chain: _Chain, after: Handles) -> Handles:
        after = chain.gather("head.ag", after)
        return chain.compute("head", head_operators(self.model, self.shard), after)

    def _head_backward(self, chain: _Chain, whole: bool, after: Handles) -> Handles:
        after = chain.compute("head", self._back(head_operators(self.model, self.shard), whole, again=False), after)
        return chain.reduce("head.rs", after)

    def _module_forward(self, chain: _Chain, module: int, after: Handles) -> Handles:
        chain.prefix = f"mtp{module}."
        after = chain.compute("entry", self._module_entry(module), after)
        after = self._head_forward(chain, self._layer_forward(chain, self.model.layers + module, after))
        chain.prefix = ""
        return after

    def _module_backward(self, chain: _Chain, module: int, whole: bool, after: Handles) -> Handles:
        layer = self.model.layers + module
        chain.prefix = f"mtp{module}."
        after = self._layer_backward(chain, layer, whole, self._head_backward(chain, whole, after))
        after = chain.compute("entry", self._back(self._module_entry(module), whole, again=False), after)
        chain.prefix = ""
        return after

    def _module_entry(self, module: int) -> tuple[Operator, ...]:
        """A prediction module's operators before its layer: embedding, norms, projection."""
        operators = mtp_operators(self.model, module, self.shard)
        layer = layer_operators(self.model, self.model.layers + module, self.shard)
        tail = len(layer) + len(head_operators(self.model, self.shard))
        return operators[: len(operators) - tail]

    # -- helpers ------------------------------------------------------------------------------------------------------

    @property
    def _kv_bytes(self) -> int:
        """K and V of one micro-batch's whole sequence on one tensor-parallel rank."""
        shard = self.shard
        return shard.bytes_per_element * shard.tokens * shard.cp * self.model.rank_kv_width(shard.tp)

    @property
    def _splits_kv_heads(self) -> bool:
        return self.model.splits_kv_heads(self.shard.tp)

    @property
    def _qkv_bytes(self) -> int:
        """Queries, keys and values of one micro-batch, all heads."""
        shard = self.shard
        return shard.bytes_per_element * shard.tokens * (self.model.query_width + self.model.kv_width)

    def _back(self, operators: Sequence[Operator], whole: bool, again: bool = True) -> tuple[Operator, ...]:
        """Backward of some operators: recomputed ones (selective), input gradients, weight gradients if ``whole``."""
        first = self._again(tuple(operators)) if again else ()
        weights = _each(backward_weight, operators) if whole else ()
        return first + _each(backward_input, operators) + weights

    def _again(self, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
        """What selective recomputation runs once more."""
        return recomputed(operators, "selective") if self.parallelism.recompute == "selective" else ()


class _Chain:
    """Steps of a recipe under construction. Every method returns the handles to depend on."""

    def __init__(self, kitchen: Kitchen) -> None:
        self.kitchen = kitchen
        self.prefix = ""
        self.steps: list[Step] = []
        shard, hidden = kitchen.shard, kitchen.model.hidden
        self.sequence_parallel = shard.sequence_parallel
        self.whole_bytes = shard.tokens * hidden * shard.bytes_per_element
        top_k = kitchen.model.moe.top_k if kitchen.model.moe else 0
        routed = shard.tokens // shard.tp * top_k * hidden * shard.bytes_per_element
        self.routed_bytes = round(routed * shard.expert_imbalance)

    def finish(self, ends: Handles) -> Recipe:
        """The recipe."""
        return Recipe(tuple(self.steps), ends)

    def compute(self, name: str, operators: Sequence[Operator], after: Handles) -> Handles:
        """A block of compute: a step for all operators, or one for each at operator granularity; none without work."""
        parts = [(name, tuple(operators))]
        if self.kitchen.parallelism.granularity == "operator":
            parts = [(f"{name}.{operator.name}", (operator,)) for operator in operators]
        costs = [(part, block_cost(own, self.kitchen.accelerator, self.kitchen.precision)) for part, own in parts]
        costs = [(part, cost) for part, cost in costs if cost.num_ops]
        for index, (part, cost) in enumerate(costs, start=1):
            closes = index == len(costs)
            step = Step(self.prefix + part, COMPUTE, cost.num_ops, cost.tensor_size, "", "", after, closes)
            after = self._add(step)
        return after

    def collective(self, axis: str, name: str, comm_type: int, size: int, group: str, after: Handles) -> Handles:
        """A collective over a group of more than one rank."""
        if self.kitchen.placement.size_of(group) == 1:
            return after
        return self._add(Step(self.prefix + name, comm_type, 0, max(1, size), axis, group, after))

    def gather(self, name: str, after: Handles) -> Handles:
        """Sequence parallelism: all-gather before a tensor-parallel region."""
        if not self.sequence_parallel:
            return after
        return self.collective("tp", name, ALL_GATHER, self.whole_bytes // self.kitchen.shard.tp, "tp", after)

    def reduce(self, name: str, after: Handles) -> Handles:
        """After a tensor-parallel region: reduce-scatter with sequence parallelism, all-reduce without."""
        if self.sequence_parallel:
            return self.collective("tp", name, REDUCE_SCATTER, self.whole_bytes, "tp", after)
        return self.collective("tp", name.replace(".rs", ".ar"), ALL_REDUCE, self.whole_bytes, "tp", after)

    def exchange(self, name: str, after: Handles) -> Handles:
        """Expert parallelism: all-to-all of the routed tokens."""
        return self.collective("ep", name, ALL_TO_ALL, self.routed_bytes, "ep", after)

    def _add(self, step: Step) -> Handles:
        self.steps.append(step)
        return (len(self.steps) - 1,)


def feed_name(model: Model, layer: int) -> str:
    """Name of the second half of a layer."""
    return "experts" if model.is_moe(layer) else "mlp"


def _each(derive: object, operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """``derive`` of every operator, last operator first as backward runs them."""
    assert callable(derive)
    return tuple(result for operator in reversed(operators) for result in derive(operator))


def _split_attention(
    operators: tuple[Operator, ...],
) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Norm and projections, core attention, output projection and residual."""
    core = [index for index, item in enumerate(operators) if item.name in ("attention", "scores", "softmax", "context")]
    first, last = core[0], core[-1] + 1
    return operators[:first], operators[first:last], operators[last:]


def _split_moe(
    operators: tuple[Operator, ...],
) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Router (norm, router, permutation), shared experts, routed experts, combination and residual."""
    shared = tuple(item for item in operators if item.name.startswith("shared"))
    experts = tuple(item for item in operators if item.name.startswith("expert"))
    combine = tuple(item for item in operators if item.name in ("combine", "moe_residual"))
    aside = {*shared, *experts, *combine}
    return tuple(item for item in operators if item not in aside), shared, experts, combine

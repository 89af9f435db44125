"""Block granularity: the compute of an action fused, what its collectives cost kept.

A recipe is cut into *segments* that run strictly one after the other; a segment is one step, or steps that run beside
each other (an all-to-all under the shared experts, a reduction under a weight gradient). Segments in series may be
permuted and equal ones run in a row without changing the time they take, so an action becomes: what it starts with, its
other collectives in a row, each kind of parallel segment once with the work of all its copies, one compute block, and
the collectives it ends with. Start and end stay as they are because the neighbouring actions and their messages run
under them; so do segments in which chains of collectives run side by side (shared and routed experts).

What a collective costs in latency must stay: one of k-fold size would pay the network's latency once instead of k
times. Only a reduce-scatter and the all-gather of the same buffer over one network dimension become one all-reduce,
which by ring, direct exchange and halving-doubling is the same messages in the same number of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import Infeasible
from ..plan.dims import Placement
from .columns import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from .steps import COMPUTE, INPUT, Handles, Recipe, Step, join, renamed


def fuse(recipes: Sequence[tuple[str, Recipe]], ranks: Mapping[str, int]) -> Recipe:
    """Recipes that run one after the other, each with the prefix of its names, as one with fewer steps.

    ``ranks`` has the sizes of the groups that lie in one network dimension.
    """
    known = {id(recipe): segments(recipe) for _, recipe in recipes}
    parts = [renamed(part, prefix) for prefix, recipe in recipes for part in known[id(recipe)]]
    working = [index for index, part in enumerate(parts) if any(step.comm_type == COMPUTE for step in part.steps)]
    if not working:
        return join(parts)
    if all(step.comm_type == COMPUTE for part in parts for step in part.steps):
        return Recipe((_compute(parts),), (0,))
    first, last = working[0] + 1, working[-1] + 1
    return join([*parts[:first], *_middle(parts[first:last], ranks), *parts[last:]])


def check_fused(placement: Placement, system: Mapping[str, Any]) -> None:
    """Refuse block granularity where an all-reduce is run by other steps than its halves.

    Raises:
        Infeasible: E-GRANULARITY with the algorithms of ASTRA-sim's ``system`` mapping that differ.
    """
    for dim in sorted({dim for group in ("tp", "etp") for dim in placement.dims_of(group)}):
        names = [system[f"{kind}-implementation"][dim] for kind in ("all-reduce", "reduce-scatter", "all-gather")]
        if len(set(names)) > 1:
            clash = "granularity block counts a reduce-scatter and the all-gather after it as one all-reduce, but on "
            clash += f"dimension {dim} ({placement.dims[dim].tier}) all-reduce is {names[0]}, the others {names[1]}"
            raise Infeasible("E-GRANULARITY", clash, "use granularity layer, or ring, direct or halving-doubling")


def segments(recipe: Recipe) -> list[Recipe]:
    """The finest cut of a recipe into recipes that follow each other (``join`` of them is the recipe again).

    It can be cut before a step where all that comes later and needs something earlier needs everything earlier.
    """
    steps = recipe.steps
    cuts = [index for index in range(len(steps)) if index == 0 or _can_cut(recipe, index)]
    found = []
    for start, end in zip(cuts, [*cuts[1:], len(steps)], strict=True):
        inner = tuple(step._replace(after=_rebase(step.after, start)) for step in steps[start:end])
        ends = recipe.ends if end == len(steps) else tuple(sorted(_sinks(steps[:end])))
        found.append(Recipe(inner, _rebase(ends, start)))
    return found


def _can_cut(recipe: Recipe, index: int) -> bool:
    sinks = _sinks(recipe.steps[:index])
    needs = [{handle for handle in after if handle < index} for after in (s.after for s in recipe.steps[index:])]
    return all(need in (set(), sinks) for need in needs) and min(recipe.ends) >= index


def _sinks(steps: Sequence[Step]) -> set[int]:
    """Steps that no other of them needs."""
    return set(range(len(steps))) - {handle for step in steps for handle in step.after}


def _rebase(handles: Handles, start: int) -> Handles:
    return tuple(dict.fromkeys(handle - start if handle >= start else INPUT for handle in handles))


def _middle(parts: Sequence[Recipe], ranks: Mapping[str, int]) -> list[Recipe]:
    """Segments in series: collectives, parallel segments by kind, one compute block."""
    alone = [part for part in parts if len(part.steps) == 1]
    collectives = _paired([part.steps[0] for part in alone if part.steps[0].comm_type != COMPUTE], ranks)
    blocks = [part for part in alone if part.steps[0].comm_type == COMPUTE]
    kinds: dict[object, list[Recipe]] = {}
    for index, part in enumerate(parts):
        if len(part.steps) > 1:
            # Chains of collectives side by side take turns, and would do so otherwise if each came in one run.
            same = (tuple(step._replace(name="") for step in part.steps), part.ends)
            kinds.setdefault(same if _in_one_chain(part) else index, []).append(part)
    fused = [_stacked(copies) for copies in kinds.values()]
    return [
        *(Recipe((step,), (0,)) for step in collectives),
        *fused,
        *([Recipe((_compute(blocks),), (0,))] if blocks else []),
    ]


def _in_one_chain(recipe: Recipe) -> bool:
    """Whether each collective waits for the one before it."""
    behind: list[int] = []  # of every step, the last collective that it waits for or is; INPUT for none
    last = INPUT
    for index, step in enumerate(recipe.steps):
        before = max((behind[handle] for handle in step.after if handle != INPUT), default=INPUT)
        if step.comm_type != COMPUTE:
            if before != last:
                return False
            before = last = index
        behind.append(before)
    return True


def _paired(steps: Sequence[Step], ranks: Mapping[str, int]) -> list[Step]:
    """Collectives in series, each reduce-scatter with an all-gather of what it leaves made an all-reduce."""
    gathers = Counter(
        (step.group, step.size * ranks.get(step.group, 0)) for step in steps if step.comm_type == ALL_GATHER
    )
    free = Counter((step.group, step.size) for step in steps if step.comm_type == REDUCE_SCATTER) & gathers
    merged, dropped = Counter(free), Counter(free)
    found: list[Step] = []
    for step in steps:
        own = step.group, step.size
        whole = step.group, step.size * ranks.get(step.group, 0)
        if step.comm_type == REDUCE_SCATTER and merged[own]:
            merged[own] -= 1
            found.append(step._replace(comm_type=ALL_REDUCE, name=step.name.removesuffix("rs") + "ar"))
        elif step.comm_type == ALL_GATHER and dropped[whole]:
            dropped[whole] -= 1
        else:
            found.append(step)
    return found


def _compute(parts: Iterable[Recipe]) -> Step:
    """One block with the work of all compute steps.

    The roofline of the sums is the sum of the rooflines: ``block_cost`` makes every block's bytes take its whole time.
    """
    steps = [step for part in parts for step in part.steps]
    ops, size = sum(step.num_ops for step in steps), sum(step.size for step in steps)
    return Step("block", COMPUTE, ops, size, "", "", (INPUT,))


def _stacked(copies: Sequence[Recipe]) -> Recipe:
    """Equal parallel segments as one: compute blocks as long as all copies' together, each collective in a row."""
    steps: list[Step] = []
    last: dict[int, int] = {INPUT: INPUT}
    for index, step in enumerate(copies[0].steps):
        after = tuple(last[handle] for handle in step.after)
        if step.comm_type == COMPUTE:
            ops, size = len(copies) * step.num_ops, len(copies) * step.size
            steps.append(step._replace(num_ops=ops, size=size, after=after))
        else:
            for copy in copies:
                steps.append(copy.steps[index]._replace(after=after))
                after = (len(steps) - 1,)
        last[index] = len(steps) - 1
    return Recipe(tuple(steps), tuple(last[handle] for handle in copies[0].ends))

"""Pipeline schedules as plain data: build one by name, replay it with durations and delays, draw it.

One chunk a rank: gpipe, 1f1b, zb-h1, zb-h2, zb-1p, zb-2p, dualpipe. Two, in V shape: zbv, v-half, v-min, dualpipe-v.
Two or more: interleaved. Any: latency-aware. A user's own is one decorated function, see ``registry``.

>>> from scaleacross.schedule import build, replay
>>> round(replay(build("1f1b", stages=4, micro_batches=8), f=1, b=1, w=1).bubble_over_ideal, 9)    # (4 - 1) / 8
0.375
"""

from . import bidirectional, classic, latency, vshape, zero_bubble  # noqa: F401  they register their schedules
from .actions import Action, Schedule, action, looped_positions, v_positions
from .bounds import makespan_lower_bound
from .gantt import gantt_rows
from .registry import build, names, parameters, register
from .replay import Replay, replay

__all__ = [
    "Action",
    "Replay",
    "Schedule",
    "action",
    "build",
    "gantt_rows",
    "looped_positions",
    "makespan_lower_bound",
    "names",
    "parameters",
    "register",
    "replay",
    "v_positions",
]

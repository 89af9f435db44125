"""Records of the event loop: two arrays of equal length, ``m`` (int64) and ``f`` (float64), hold everything.

A record is named by its first cell, its address; ``m[row + KIND]`` is a whole number, ``f[row + END]`` a time. Address
0 means none. Times are ns, rates bytes per ns.
"""

from __future__ import annotations

# Globals  -------------------------------------------------------------------------------------------------------------
G_HEAP = 0  # address of the heap of items, by time
G_ITEMS = 1  # how many there are
G_STACK = 2  # rows that end now
G_STACKED = 3
G_TOUCHED = 4  # slots that may start something
G_TOUCHES = 5
G_SEEDS = 6  # resources that have won or lost a flow
G_SEEDED = 7
G_FRESH = 8  # jobs whose flow has begun and has no rate yet
G_FRESHLY = 9
G_FLOWS = 10  # scratch: jobs of a component
G_POOL = 11  # scratch: resources of a component
G_MARK = 12  # number of the last component
G_LEFT = 13  # rows that have not ended
G_EVENTS = 14
G_SOLVED = 15  # flows that were given a rate by sharing
G_FIRST_JOB = 16  # items from this address on are jobs, those before are slots
G_TURNS = 17  # 1: some jobs take turns
G_SIZE = 20
NOW = 0  # f: the time

# A row: an operator of a simulated rank  ------------------------------------------------------------------------------
KIND = 0  # of prepared.py: TIMED, COLLECTIVE, SEND, RECEIVE
SLOT = 1  # 0: needs none
JOB = 2
CHANNEL = 3
AXIS = 4  # what it counts as: 0..5 communication, COMPUTES, QUIET
SIM = 5
CHILD = 6  # first cell of its children's addresses
CHILD_END = 7
WAITS = 8  # rows that it waits for
SEQUENCE = 9  # place among the channel's sends or receives
CAUSE = 10  # what it waited for last: a row's end, the last caller of a collective, the send of a receive
ROW_SIZE = 11
DURATION, START, BEGIN, END = 0, 1, 2, 3  # f; BEGIN: when communication has begun, all having arrived

# A slot: what one rank does one at a time  ----------------------------------------------------------------------------
POSITION = 0  # in the heap, -1: not in it (slots and jobs)
KEY = 0  # f: time of its event (slots and jobs)
RUNNING = 1  # row
READY = 2  # first cell of its heap of ready rows
WAITING = 3  # how many there are
LISTED = 4  # 1: among the touched
LINE = 5  # cell of the row that comes next; 0: any ready row may start, the lowest number first
LINE_END = 6
SLOT_SIZE = 7

# A job: a collective, or messages between two ranks  ------------------------------------------------------------------
FIRST = 1  # stretch
LAST = 2  # end of the stretches
NEED = 3  # classes that have to call
MEMBERS = 4  # first cell of the rows that have called
ARRIVED = 5
STRETCH = 6  # current
STATE = 7  # IDLE, WAITS_LATENCY, FLOWS
MARKED = 8  # last component it was in
BOTTLENECK = 9  # resource that sets its rate, 0: its own limit
FIXED = 10  # whether it has its rate in the current solution: maxmin.py's UNSERVED, GROWS, SERVED
NEXT_BOTTLENECK = 11
FORMER = 12  # job whose turn is before its own, 0: it begins the round
LATTER = 13  # job whose turn comes next, 0
LINK_OUT = 14  # directions of links that its turns occupy
LINK_IN = 15
TURNED = 16  # turns so far
ENDS = 17  # first cell of when they end
OTHERS = 18  # job of the turns of the other replicas that it stands for, 0
CLASS = 19  # traffic class: lower numbers are served first
JOB_SIZE = 20
REMAINING, RATE, SINCE, NEXT_RATE = 1, 2, 3, 4  # f
TURN_TIME, BEHIND, ROUND = 5, 6, 7  # f; BEHIND: from the former's end to its own
IDLE, WAITS_LATENCY, FLOWS, WAITS_FORMER, HAS_TURN = 0, 1, 2, 3, 4

# A stretch: latency, then bytes at a rate  ----------------------------------------------------------------------------
USES = 0  # first use
USES_END = 1
TIGHTEST = 2  # resource that sets its limit, 0: none
TURN = 3  # 1: before it flows it waits for its turn
STRETCH_SIZE = 4
LATENCY, BYTES, LIMIT = 0, 1, 2  # f; LIMIT: rate where nobody else is on its resources

# A use of a resource by a stretch  ------------------------------------------------------------------------------------
RESOURCE = 0
OWNER = 1  # job
NEXT = 2  # active uses of the resource
BEFORE = 3
USE_SIZE = 4
LOAD = 0  # f

# A resource  ----------------------------------------------------------------------------------------------------------
HEAD = 0  # first active use
USERS = 1
SEEN = 2  # last component it was in
OPEN = 3  # users without a rate
SEED = 4  # 1: among the seeds
RESOURCE_SIZE = 5
CAPACITY, LEFT, WEIGHT, LIMITED = 0, 1, 2, 3  # f; LIMITED: ns for which it has set the rate of flows, summed

# One direction of a link between sites that replicas take turns on  ---------------------------------------------------
FREE = 0  # f: end of the last round
LINK_SIZE = 1

# A channel: messages with the same ends, tag and size  ----------------------------------------------------------------
SENDS = 0  # first cell of its sends
RECEIVES = 1
SENT = 2
POSTED = 3
CHANNEL_SIZE = 4

# A simulated rank  ----------------------------------------------------------------------------------------------------
COUNTS = 0  # running rows: six axes, then compute
ROWS_LEFT = 8
SIM_SIZE = 10
SPENT = 0  # f: ns in six axes exposed, compute, idle
CHANGED = 8  # f: up to when SPENT counts
FINISH = 9  # f

"""Names of the cells of every record. All records are runs of cells in one memory ``m``: the handle of a record and a
cell's name give ``m[handle + NAME]``; handle 0 is no record. Globals are ``m[G_...]``. Two more arrays go with it:
``h``, the event heap, and ``f``, the float constants (latency of each dimension in ns, bandwidth of each in bytes/ns,
bandwidth of the local memory in bytes/s).
"""

from __future__ import annotations

from typing import Any

Memory = Any  # a list when interpreted, an int64 (``f``: float64) array when compiled

# Globals, one of each -----------------------------------------------------------------------------------------------
G_NOW = 0  # ns
G_SEQ = 1  # events scheduled so far: first scheduled, first run, at equal times
G_COMPOSED = 2  # 1: a collective is one step whose duration comes from its signature; 0: simulated chunk by chunk
G_AWARE = 3  # 1: link queues
G_ENDPOINT = 4  # endpoint delay, ns
G_CONCURRENT = 5  # streams that run at once in a queue
G_QUEUES = 6  # queues per dimension
G_DIMS = 7
G_POLICY = 8  # 0 LIFO, 1 FIFO, 2 EXPLICIT
G_RENDEZVOUS = 9
G_QUOTIENT = 10  # 1: a simulated rank stands for many, messages are matched by their place in the ring
G_UNFINISHED = 11  # ranks
G_NEED = 12  # first orbit that waits for its signature
G_MASK = 13  # buckets of the matching table, minus one
G_EVENTS = 14
G_ROOM = 15  # cells that one step may take
G_STREAM = 16  # cells of a stream record
G_TOPOLOGY = 17  # aware: 0 Ring, 1 FullyConnected, 2 Switch
G_NPUS = 18
G_BUS = 19  # 1: shared bus
G_REDUCE = 20  # local reduction delay of the shared bus
G_BAD = 21  # 1: a message without bytes or to its own sender
G_LEAD = 22  # how long ago the running packet's timer was set
G_TOP = 23  # first cell that was never used
G_FREE = 24  # five cells: free lists of batches, items, messages, streams, bus requests
G_RANKS = 29  # handle of the first rank record
G_COUNT = 30  # simulated ranks
G_SIM_OF = 31  # first of NPUS cells: for each rank of the world, the record of the rank that stands for it
G_SHAPE = 32  # first of three cells a dimension: size, stride, topology
G_BUCKET = 33  # first of two cells a bucket: head, tail
G_LINK = 34  # first of three cells a link: busy, first and last waiting message
G_MEMORY = 35  # first remote memory channel
G_ORBIT = 36
G_MEMBER = 37
G_SIGNATURE = 38
G_SIZE = 39
FREE_BATCH, FREE_ITEM, FREE_MESSAGE, FREE_STREAM, FREE_REQUEST = range(5)

# A simulated rank ---------------------------------------------------------------------------------------------------
R_BUSY = 0  # three cells: CPU, compute and communication slot
R_READY = 3  # four cells: first ready node of each slot, receives last
R_LAST = 7  # four cells: last of each
R_BATCHES = 11  # open batches
R_ONGOING = 12
R_LEFT = 13  # nodes not done
R_NODES = 14  # its first node state
R_CALLS = 15  # its first call record
R_FINISH = 16  # ns, -1 before
R_PRIORITY = 17
R_STREAMS_LEFT = 18  # streams of the running collective
R_COLL_NODE = 19
R_DEFERRED = 20  # ready nodes that wait for the end of an issue round
R_STALE = 21  # queue (+ 1) of the stream whose end issues now
R_END_QUEUE = 22  # queue (+ 1) in which its last collective ended
R_LEAD = 23  # how long before that its last packet's timer was set
R_CHANNEL = 24  # remote memory channel + 1, 0: memory of its own
R_TRUE = 25  # its number in the world
R_QUEUES = 26  # first of two cells a queue: first of its active streams, running streams
R_ROBINS = 27  # three cells a dimension: next queue of all, of the first half, of the second; then the tree counters
R_CUSTOM = 28  # cells of its custom collective
R_SENT = 29  # first of a cell a dimension: bytes sent
R_BUS = 30  # shared bus
R_SIZE = 31

# The state of a rank's node. Handles ascend with ids ----------------------------------------------------------------
W_WAITS = 0  # unfinished dependencies
W_AFTER = 1  # next in its ready list
W_START = 2  # ns, -1 before
W_END = 3
W_ROW = 4  # its node record
W_RANK = 5
W_SIZE = 6

# A node of a trace --------------------------------------------------------------------------------------------------
N_KIND = 0
N_SLOT = 1
N_TIME = 2  # ns
N_CALL = 3
N_BYTES = 4
N_TAG = 5
N_PEER = 6  # true rank
N_CHILDREN = 7  # where the list of those who wait for it starts: distances of their states from the rank's first
N_CHILDREN_END = 8
N_SIZE = 9
TIMED, COLLECTIVE, SEND, RECEIVE, MEMORY, SKIPPED, STALE = range(7)
CPU, COMPUTE, COMM, FREE = range(4)

# A collective as one rank calls it ----------------------------------------------------------------------------------
C_CHUNKS = 0
C_PHASES = 1  # first phase record
C_COUNT = 2  # phases; 0: the collective never ends
C_ORBIT = 3
C_SIGNATURE = 4
C_MEMBER = 5  # this rank's place in the orbit's arrays
C_POSITION = 6  # place in the group
C_COUNTER = 7  # cell that counts the streams of the communicator on this rank
C_PRIORITY = 8
C_CUSTOM = 9  # this rank's graph of a custom collective
C_SIZE = 10

# A phase of a collective --------------------------------------------------------------------------------------------
P_ALGORITHM = 0
P_TYPE = 1  # Chakra collective type
P_NODES = 2
P_WINDOW = 3
P_BYTES = 4  # of a message (a tree: of the buffer)
P_STEPS = 5  # messages that a rank sends
P_PROCESSED = 6  # insertions with local work between two without
P_LOCAL = 7  # 1: 10 ns endpoint delay (groups smaller than the world)
P_STRIDE = 8
P_GROUP = 9  # first of its members' ranks in ring order, 0: a dimension
P_LEVEL = 10  # dimension whose queues it takes
P_ALLOCATOR = 11  # 0 every queue, 1 the first half, 2 the second half
P_TABLE = 12  # halving-doubling: first (offset, bytes) pair; tree: first of 2 x nodes (parent, left, right) triples
P_TREE = 13  # which tree counter
P_SIZE = 14
RING, DIRECT, HALVING, TREE, CUSTOM = range(5)

# A stream: a chunk's way through the phases -------------------------------------------------------------------------
S_RANK = 1
S_CALL = 2
S_TAG = 3
S_PRIORITY = 4
S_PHASE = 5
S_NEXT = 6  # in the active list of its queue
S_STARTED = 7
S_QUEUE = 8
S_STEPS = 9  # messages to send
S_INSERTED = 10
S_SENT = 11
S_FREE = 12  # packets that passed the endpoint and were not sent
S_RECEIVED = 13
S_PLAIN = 14  # insertions left without local work
S_WORK = 15  # insertions left with
S_TOGGLE = 16
S_STATE = 17  # of a tree, or of a custom graph (its first run record)
S_REDUCED = 18
S_PATH = 19  # queue * 4 + direction * 2 + tree of each phase

# A message or a posted receive --------------------------------------------------------------------------------------
M_KIND = 1
M_TAG = 2
M_DST = 3  # rank record that receives
M_LANE = 4  # which sender, see operators.lane
M_BYTES = 5
M_NEXT = 6  # in the bucket
M_BEFORE = 7
M_BUCKET = 8
M_SRC = 9  # rank record that sends
M_CALLBACK = 10  # three cells: what happens at the sender
M_RECEIVER = 13  # three cells: what happens at the receiver, 0: not posted yet
M_ARRIVED = 16
M_TIME = 17  # when it was sent
M_AT = 18  # aware: device
M_TO = 19  # true rank; a waiting rendezvous: the true peer
M_QUEUE = 20  # next message that waits for the link
M_SIZE = 21
SENT, POSTED = 1, 2
C_NONE, C_NODE, C_STREAM, C_REAL_SEND, C_REAL_RECEIVE, C_CUSTOM_NODE = range(6)
RENDEZVOUS_TAG, RENDEZVOUS_BYTES = 1_000_000_000, 8192
COLLECTIVE_TAG = 500_000_000

# Events, batches of a rank's events at one time, their items --------------------------------------------------------
E_BATCH, E_ARRIVAL, E_RECEIVE, E_LINK, E_ORBIT = range(5)
B_TIME, B_RANK, B_FIRST, B_FINAL, B_NEXT, B_SIZE = 1, 2, 3, 4, 5, 6
I_KIND, I_A, I_B, I_NEXT, I_SIZE = 1, 2, 3, 4, 5
I_NODE, I_BUNDLE, I_MEMORY, I_CUSTOM, I_STALE, I_BUS = range(6)

# An orbit: one communicator, as the simulated ranks see it ----------------------------------------------------------
O_MEMBERS = 0  # simulated ranks in it
O_ARRIVED = 1
O_SEQUENCE = 2  # stream number of the open collective
O_FIRST = 3  # its first member record
O_CALL = 4  # call record of the first to arrive
O_STATUS = 5  # 1: mismatch, it never ends
O_WAITING = 6  # next orbit that waits for its signature, + 1
O_TIME = 7  # arrival of the last
O_EVEN = 8  # 1: all arrived at once
O_SIZE = 9
MEMBER_RANK, MEMBER_TIME, MEMBER_NODE, MEMBER_END, MEMBER_LEAD, MEMBER_CALL, MEMBER_STALE, MEMBER_QUEUE, MEMBER_SIZE = (
    range(9)
)

# A signature's durations when all members arrive at once ------------------------------------------------------------
Y_KNOWN = (
    0  # 1: Y_TIME, Y_LEAD hold for issues outside a stream's end; 2: also inside the end of a stream in queue Y_QUEUE
)
Y_QUEUE = 1
Y_FRESH = 2  # three cells: time, lead, queue (+ 1) of the end
Y_STALE = 5  # three cells
Y_SIZE = 8

# Remote memory ------------------------------------------------------------------------------------------------------
X_BUSY, X_FIRST, X_FINAL, X_SIZE = range(4)

# The shared bus: a side of a link, and a request ---------------------------------------------------------
V_SIDE = 0  # 0 endpoint, 1 memory, 2 and 3 of the inner link
V_RANK = 1
V_STATE, V_BEFORE, V_LAST, V_READS, V_BUSY, V_WAITING = 2, 3, 4, 5, 6, 7
V_L, V_O, V_G = 8, 9, 10
V_QUEUES = 11  # head and tail of what waits to be sent, was received, waits to be processed
V_SIZE = 17
Q_SIDE, Q_BYTES, Q_PROCESSED, Q_RETURNS, Q_EVENT, Q_OUTER, Q_STREAM, Q_WORK, Q_NEXT, Q_SIZE = range(1, 11)

"""The compiled core: events, streams and operators on flat int64 arrays.

Every function here is plain Python over indexable state, so the same source runs in two ways: interpreted on lists
(small
inputs: no numba import) and compiled by numba on arrays (:mod:`.jit`). A record is a run of cells in a flat array and a
handle is the offset of its first cell; 0 is no record. :mod:`.layout` names the cells.
"""

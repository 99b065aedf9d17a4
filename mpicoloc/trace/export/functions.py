"""What kind of function of MPI a name is, by the families and states of Paraver's views."""

from __future__ import annotations

import re

STATES = (
    "Idle", "Running", "Not created", "Waiting a message", "Blocking Send", "Synchronization", "Test/Probe",
    "Scheduling and Fork/Join", "Wait/WaitAll", "Blocked", "Immediate Send", "Immediate Receive", "I/O",
    "Group Communication", "Tracing Disabled", "Others", "Send Receive",
)  # fmt: skip
_OTHER_TYPE = 50000003
_GROUP = r"Bcast|Reduce.*|Allreduce|Alltoall[vw]?|Gatherv?|Scatterv?|Allgatherv?|(Ex)?scan|Neighbor_.*"
_KINDS = tuple(
    (re.compile(f"I?({pattern})(_init)?", re.IGNORECASE), type_, STATES.index(state))
    for pattern, type_, state in (
        ("Barrier", 50000002, "Synchronization"),
        (_GROUP, 50000002, "Group Communication"),
        ("Sendrecv(_replace)?", 50000001, "Send Receive"),
        ("M?probe", 50000001, "Test/Probe"),
        ("Test(all|any|some)?", 50000003, "Test/Probe"),
        ("Wait(all|any|some)?", 50000001, "Wait/WaitAll"),
        ("File_.*", 50000005, "I/O"),
        ("Win_.*|R?(Put|Get|Accumulate|Get_accumulate)|Fetch_and_op|Compare_and_swap", 50000004, "Others"),
        ("Cancel", 50000001, "Others"),
    )
)


def event_of(name: str) -> tuple[int, int]:
    """Type of the events, and state, of a function."""
    plain = bare(name)
    if found := re.fullmatch(r"(I?)[bsr]?send(_init)?", plain, re.IGNORECASE):
        return 50000001, STATES.index("Immediate Send" if found[1] else "Blocking Send")
    if found := re.fullmatch(r"(I?)M?recv(_init)?", plain, re.IGNORECASE):
        return 50000001, STATES.index("Immediate Receive" if found[1] else "Waiting a message")
    for pattern, type_, state in _KINDS:
        if pattern.fullmatch(plain):
            return type_, state
    return _OTHER_TYPE, STATES.index("Others")


def is_communication(name: str) -> bool:
    """Whether the time in a function is the network's or the partners', not the rank's own."""
    type_, state = event_of(name)
    return type_ in (50000001, 50000002) or STATES[state] == "Test/Probe"


def is_one_sided(name: str) -> bool:
    """Whether messages of a function have no receive."""
    return event_of(name)[0] == 50000004


def bare(name: str) -> str:
    """Without prefix, and without the mark of large counts."""
    return name.removeprefix("MPI_").removesuffix("_c")

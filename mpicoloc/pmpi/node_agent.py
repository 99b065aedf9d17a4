"""The node agent seen from Python: the keeper's, which is watched, or one that runs in this process.

NumPy is not imported: the coordinator, beside a running application, starts without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from mpicoloc.errors import EnvironmentFault
from mpicoloc.pmpi import contract
from mpicoloc.pmpi.contract import ffi, lib

KEEPER_WITHIN_NS, KEEPER_STEP_NS = 2_000_000_000, 50_000_000
"""Wait so long for the keeper's agent before being the agent."""


class Common(NamedTuple):
    """A node agent's data on the shutters that its job has in common with other nodes: see `mc_common`."""

    i_answered: int
    is_free: int
    i_judged: int
    verdict: int
    n_jobs: int
    period_ns: int
    duration_ns: int
    can_bubble: int
    drawn_bubble: int
    is_bubble_wanted: int


class Agent:
    """A view of the keeper's node agent, or that agent itself (csrc/agent/), driven by the coordinator."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def run(self, step_ns: int, n_steps: int) -> int:
        """Do the agent's duties for `n_steps` steps, or until all ranks are in MPI_Finalize.

        Sleeps `step_ns` at a time, with the GIL free. Returns MC_OK or a status.
        """
        return int(lib.mc_agent_run(self._handle, step_ns, n_steps))

    def ranks(self) -> tuple[int, int, int]:
        """Ranks of this job on this node: seen ever, alive, finalizing."""
        n = ffi.new("int[3]")
        lib.mc_agent_ranks(self._handle, n, n + 1, n + 2)
        return n[0], n[1], n[2]

    @property
    def common(self) -> Common:
        """The agent's data on the shutters that the job's nodes have in common."""
        out = ffi.new("mc_common *")
        lib.mc_common_read(self._handle, out)
        return Common(*(int(getattr(out, name)) for name in Common._fields))

    def agree(self, is_on: bool) -> None:
        """Whether the coordinators of all nodes agree on shutters; if not, the job takes none."""
        lib.mc_common_state(self._handle, lib.MC_COMMON_ON if is_on else lib.MC_COMMON_OFF)

    def set_clock(self, offset_ns: int, bound_ns: int) -> None:
        """This node's clock against the first one's; `bound_ns` holds for all nodes."""
        lib.mc_common_clock(self._handle, offset_ns, bound_ns)

    def share(self, is_shared: bool) -> None:
        """Whether the job has company on some node: then all of its time is shared."""
        lib.mc_common_share(self._handle, is_shared)

    def ask(self, i: int, t0_ns: int, t1_ns: int, bubble: int) -> None:
        """Whether the node is free for shutter `i`, by its own clock, and for the bubble in it.

        The answer comes in `common`; `bubble` is as of `mc_common`.
        """
        lib.mc_common_ask(self._handle, i, t0_ns, t1_ns, bubble)

    def decide(self, i: int, is_firm: bool, has_bubble: bool) -> None:
        """Set whether shutter `i`, which `ask` proposed, and its bubble take place: on all nodes or none."""
        lib.mc_common_decide(self._handle, i, is_firm, has_bubble)

    def confirm(self, i: int, verdict: int) -> None:
        """The verdict (MC_VERDICT_...) on shutter `i`, of all nodes."""
        lib.mc_common_confirm(self._handle, i, verdict)


@contextmanager
def open_agent(key: str, job_id: str) -> Iterator[Agent | None]:
    """The agent of job `key` for the time of a with block; None if the job is over and its files are gone.

    Raises `EnvironmentFault` if the board or the node file cannot be opened.
    """
    out = ffi.new("mc_agent **")
    # The keeper is the agent where there is one; its own session wakes it sooner than this process can wake.
    status = lib.MC_E_GONE
    deadline_ns = time.monotonic_ns() + KEEPER_WITHIN_NS
    while status == lib.MC_E_GONE and time.monotonic_ns() < deadline_ns:
        status = lib.mc_agent_watch(out, key.encode(), KEEPER_STEP_NS)
        heads = contract.segment_heads(key)
        if status == lib.MC_E_GONE and not heads:
            yield None  # an agent now would make a node file that nobody removes
            return
        # A keeper that comes when the job is over starts no agent.
        if all(head.state == lib.MC_RANK_FINALIZING for head in heads):
            break
    if status != lib.MC_OK:
        lib.mc_board_outlive()
        status = lib.mc_agent_open(out, key.encode(), job_id.encode())
        if status == lib.MC_E_GONE:  # the keeper's has just begun
            status = lib.mc_agent_watch(out, key.encode(), KEEPER_WITHIN_NS)
    if status != lib.MC_OK:
        raise EnvironmentFault(f"node agent of {job_id} cannot start (status {status}): see `mpicoloc check`")
    try:
        yield Agent(out[0])
    finally:
        lib.mc_agent_close(out[0])

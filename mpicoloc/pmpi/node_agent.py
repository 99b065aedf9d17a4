"""Python interface of the node agent: watches the keeper's agent, or runs one in this process.

This module does not import NumPy, because the coordinator, beside a running application, must start fast.
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
"""Time to wait for the keeper's agent before this process becomes the agent, ns; length of each wait."""


class Common(NamedTuple):
    """A node agent's data on shutters common to the nodes of its job: see `mc_common`."""

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
    """A view of the keeper's node agent, or the node agent itself (csrc/agent/) in the coordinator."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def run(self, step_ns: int, n_steps: int) -> int:
        """Run the agent for `n_steps` steps, or until all ranks are in MPI_Finalize.

        Sleeps `step_ns` in each step, without the GIL. Returns MC_OK or an error status.
        """
        return int(lib.mc_agent_run(self._handle, step_ns, n_steps))

    def ranks(self) -> tuple[int, int, int]:
        """Numbers of this job's ranks on this node: seen so far, alive, finalizing."""
        n = ffi.new("int[3]")
        lib.mc_agent_ranks(self._handle, n, n + 1, n + 2)
        return n[0], n[1], n[2]

    @property
    def common(self) -> Common:
        """The agent's data on shutters common to the job's nodes."""
        out = ffi.new("mc_common *")
        lib.mc_common_read(self._handle, out)
        return Common(*(int(getattr(out, name)) for name in Common._fields))

    def agree(self, is_on: bool) -> None:
        """Set whether the coordinators of all nodes agree on shutters; if not, the job takes no shutters."""
        lib.mc_common_state(self._handle, lib.MC_COMMON_ON if is_on else lib.MC_COMMON_OFF)

    def set_clock(self, offset_ns: int, bound_ns: int) -> None:
        """Set this node's clock offset from the first node, and the error bound that holds for all nodes."""
        lib.mc_common_clock(self._handle, offset_ns, bound_ns)

    def share(self, is_shared: bool) -> None:
        """Set whether the job has co-runners on any node: then all of its time counts as shared."""
        lib.mc_common_share(self._handle, is_shared)

    def ask(self, i: int, t0_ns: int, t1_ns: int, bubble: int) -> None:
        """Ask whether the node is free for shutter `i` and its bubble; times are by the node's own clock.

        The answer arrives in `common`; for `bubble` see `mc_common`.
        """
        lib.mc_common_ask(self._handle, i, t0_ns, t1_ns, bubble)

    def decide(self, i: int, is_firm: bool, has_bubble: bool) -> None:
        """Set whether shutter `i`, which `ask` proposed, and its bubble take place, on all nodes or none."""
        lib.mc_common_decide(self._handle, i, is_firm, has_bubble)

    def confirm(self, i: int, verdict: int) -> None:
        """Set the verdict (MC_VERDICT_...) of all nodes on shutter `i`."""
        lib.mc_common_confirm(self._handle, i, verdict)


@contextmanager
def open_agent(key: str, job_id: str) -> Iterator[Agent | None]:
    """Yield the agent of job `key`; None if the job is over and its files are gone.

    Raises `EnvironmentFault` if the board or the node file cannot be opened.
    """
    out = ffi.new("mc_agent **")
    # The keeper's agent is preferred: it has its own session, so the kernel wakes it sooner.
    status = lib.MC_E_GONE
    deadline_ns = time.monotonic_ns() + KEEPER_WITHIN_NS
    while status == lib.MC_E_GONE and time.monotonic_ns() < deadline_ns:
        status = lib.mc_agent_watch(out, key.encode(), KEEPER_STEP_NS)
        heads = contract.segment_heads(key)
        if status == lib.MC_E_GONE and not heads:
            yield None  # an agent started now would create a node file that no process removes
            return
        # A keeper that starts after the job's end runs no agent.
        if all(head.state == lib.MC_RANK_FINALIZING for head in heads):
            break
    if status != lib.MC_OK:
        lib.mc_board_outlive()
        status = lib.mc_agent_open(out, key.encode(), job_id.encode())
        if status == lib.MC_E_GONE:  # the keeper's agent has just started
            status = lib.mc_agent_watch(out, key.encode(), KEEPER_WITHIN_NS)
    if status != lib.MC_OK:
        raise EnvironmentFault(
            f"the node agent of job {job_id} cannot start (status {status}): see `mpicoloc check`"
        )
    try:
        yield Agent(out[0])
    finally:
        lib.mc_agent_close(out[0])

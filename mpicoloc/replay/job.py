"""What is simulated: jobs of rank programs, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ops = NDArray[np.void]
"""One program: a structured array of `native.OP`."""


@dataclass(frozen=True)
class Job:
    """A job of `n_ranks` programs.

    Parameters
    ----------
    name : str
        For messages.
    programs : sequence of structured ndarray (`native.OP`)
        They may be memory-mapped files; they are only read.
    program_of_rank : ndarray of int, shape (n_ranks,)
        Program of each rank: one for all, if they run the same.
    host_of_rank : ndarray of int, shape (n_ranks,)
    service_level : int
    restarts : bool
        Whether the job starts again, as often as needed, until all jobs have run once.
    compute_factor_of_rank : ndarray of float, shape (n_ranks,), optional
        Multiplies the rank's computation times; None: 1.
    start_s : float
        When the job starts first.
    """

    name: str
    programs: Sequence[Ops]
    program_of_rank: NDArray[np.integer[Any]]
    host_of_rank: NDArray[np.integer[Any]]
    service_level: int = 0
    restarts: bool = True
    compute_factor_of_rank: NDArray[np.float64] | None = None
    start_s: float = 0.0

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return len(self.program_of_rank)


@dataclass(frozen=True)
class Settings:
    """How messages become packets, and what is recorded.

    Parameters
    ----------
    mtu_bytes : int
        Bytes of a full packet on the wire; headers are not modelled.
    control_bytes : int
        Bytes of a request or clearance to send.
    eager_bytes : int
        Longer messages are sent after a rendezvous.
    mpi_latency_s : float
        From a send until the adapter has the message.
    send_overhead_s, recv_overhead_s : float
        Processor time of a send, and of a receive after its data has come.
    local_latency_s, local_bps : float
        Messages between ranks of one host.
    seed : int
        Of random routes.
    window_s : float
        Windows of link loads; 0: none.
    n_windows_max : int
        When there would be more windows, two become one.
    adapter_is_fifo : bool
        Whether an adapter sends the messages of a lane one after the other, and not a packet of each in turn.
    shuffle_ties : int
        For tests: not 0 mixes the orders that must not change a result: of places in memory, of credits that
        come at the same time, and of links that choose a packet at the same time.
    """

    mtu_bytes: int = 2048
    control_bytes: int = 64
    eager_bytes: int = 16384
    mpi_latency_s: float = 1e-6
    send_overhead_s: float = 0.0
    recv_overhead_s: float = 0.0
    local_latency_s: float = 5e-7
    local_bps: float = 5e9
    seed: int = 0
    window_s: float = 0.0
    n_windows_max: int = 256
    adapter_is_fifo: bool = False
    shuffle_ties: int = 0

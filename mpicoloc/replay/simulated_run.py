"""What a simulation found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class JobRun:
    """One job of a simulation.

    Parameters
    ----------
    name : str
    end_s : float
        End of the first run, from the job's start.
    rank_end_s, rank_compute_s : ndarray, shape (n_ranks,)
        Of the first run: end of each rank, and what it computed.
    n_runs : int
        Complete runs.
    """

    name: str
    end_s: float
    rank_end_s: NDArray[np.float64]
    rank_compute_s: NDArray[np.float64]
    n_runs: int


@dataclass(frozen=True)
class SimulatedRun:
    """Results of `simulate`. Times are simulated seconds.

    Parameters
    ----------
    jobs : tuple of JobRun
    end_s : float
        When the last first run ended.
    n_packet_hops, n_packets, n_messages, n_events : int
        Transmissions of packets over links, packets and messages sent, and the simulator's events. Control
        messages count.
    marks : structured ndarray (`native.MARK`)
        Marks of the first runs in the order of time: value, t_ps, job, rank.
    window_s : float
        Length of a window; 0: none were asked for.
    window_bytes : ndarray of int, shape (n_windows, n_links)
        Bytes that began to leave each link's begin in each window.
    sent_bytes, received_bytes : ndarray of int, shape (n_links, n_lanes)
    busy_s : ndarray, shape (n_links,)
        Time that each link sent.
    wait_s : ndarray, shape (n_levels, n_jobs, n_lanes)
        Packet seconds between being ready to leave a node and leaving it, by the level of the link. Only the
        first run of each job counts, here and in the next two.
    n_waits : ndarray of int, shape (n_levels, n_jobs, n_lanes)
        Packets that waited at all.
    blocked_by_s : ndarray, shape (n_jobs, n_jobs + 1)
        Of the waits of job i, those while the link sent a packet of job j. Last column: while it sent
        nothing, for lack of credits, or as the packet stood behind one that wants another link. Further runs
        of job j are causes too.
    peak_bytes : int
        Memory of the simulator at its highest.
    """

    jobs: tuple[JobRun, ...]
    end_s: float
    n_packet_hops: int
    n_packets: int
    n_messages: int
    n_events: int
    marks: NDArray[np.void]
    window_s: float
    window_bytes: NDArray[np.int64]
    sent_bytes: NDArray[np.int64]
    received_bytes: NDArray[np.int64]
    busy_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    n_waits: NDArray[np.int64]
    blocked_by_s: NDArray[np.float64]
    peak_bytes: int

    def utilisation_frac(self, link_bps: NDArray[Any]) -> NDArray[np.float64]:
        """Bytes of each window over what the link could carry, shape (n_windows, n_links)."""
        if not self.window_s:
            return np.zeros((0, self.sent_bytes.shape[0]))
        return np.asarray(self.window_bytes / (self.window_s * np.asarray(link_bps)), dtype=np.float64)

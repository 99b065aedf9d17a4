"""Synthetic traffic, for use without a trace: incast, shift, all-to-all, uniform, halo."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import UsageError
from mpicoloc.replay.native import ANY, Operation
from mpicoloc.replay.programs.builder import (
    Program,
    ProgramBuilder,
    RankPrograms,
    of_each,
    shared,
    shift_fields,
)

NAMES = ("incast", "shift:K", "alltoall", "uniform:LOAD", "halo")
UNIFORM_MESSAGES = 100
"""Default number of messages of each host in the pattern uniform."""
_MAX_UNIFORM_MESSAGES = 10**7
"""Largest number of messages; each message takes memory."""


def by_name(
    name: str,
    n_ranks: int,
    n_bytes: int,
    link_bps: float,
    rng: np.random.Generator,
    n_times: int | None = None,
) -> RankPrograms:
    """The programs of a pattern.

    Raises `UsageError` if there is no such pattern, or its parameter is invalid.
    """
    word, _, parameter = name.partition(":")
    if n_ranks < 2:
        raise UsageError(f"--hosts must be at least 2 for a pattern, got {n_ranks}")
    plain = {"incast": incast, "alltoall": alltoall, "halo": halo}
    if word in plain and not parameter:
        return plain[word](n_ranks, n_bytes, n_times or 1)
    if word == "shift":
        return shift(n_ranks, n_bytes, _shift_of(name, parameter, n_ranks), n_times or 1)
    if word == "uniform":
        gap_ns = n_bytes / (_load_of(name, parameter) * link_bps) * 1e9
        n_messages = n_times or UNIFORM_MESSAGES
        if n_ranks * n_messages > _MAX_UNIFORM_MESSAGES:
            raise UsageError(
                f"--pattern {name}: {n_ranks:,} hosts with {n_messages:,} messages each exceed the limit of "
                f"{_MAX_UNIFORM_MESSAGES:,} messages in all: give a smaller --times or --hosts"
            )
        return uniform(n_ranks, n_bytes, gap_ns, rng, n_messages)
    raise UsageError(f"--pattern must be {', '.join(NAMES[:-1])} or {NAMES[-1]}, got {name!r}")


def _shift_of(name: str, parameter: str, n_ranks: int) -> int:
    if not (parameter.isascii() and parameter.isdigit()) or int(parameter) % n_ranks == 0:
        raise UsageError(
            f"--pattern {name}: give a distance from 1 to {n_ranks - 1} after a colon, like shift:1"
        )
    return int(parameter) % n_ranks


def _load_of(name: str, parameter: str) -> float:
    try:
        load = float(parameter)
    except ValueError:
        load = math.nan
    if not 0 < load <= 10:
        raise UsageError(
            f"--pattern {name}: give the load after a colon, as a fraction of the rate of a host's link "
            "(above 0, at most 10), like uniform:0.5"
        )
    return load


def incast(n_ranks: int, n_bytes: int, n_times: int = 1) -> RankPrograms:
    """Ranks 1 to n-1 all send to rank 0."""
    programs = (
        repeated(n_times, lambda b: b.wait_all([b.irecv(peer, n_bytes) for peer in range(1, n_ranks)])),
        repeated(n_times, lambda b: b.send(0, n_bytes)),
    )
    return RankPrograms("incast", programs, (np.arange(n_ranks) > 0).astype(np.int32))


def shift(n_ranks: int, n_bytes: int, distance: int, n_times: int = 1) -> RankPrograms:
    """Each rank sends to the rank `distance` further on, modulo the number of ranks."""
    program = repeated(n_times, lambda builder: _exchange(builder, distance, 0, n_bytes))
    return shared(f"shift:{distance}", program, n_ranks)


def alltoall(n_ranks: int, n_bytes: int, n_times: int = 1) -> RankPrograms:
    """In n-1 rounds each rank sends to every other rank, as in MPI's pairwise all-to-all."""
    return shared("alltoall", repeated(n_times, lambda b: exchange(b, n_ranks, n_bytes)), n_ranks)


def exchange(builder: ProgramBuilder, n_ranks: int, n_bytes: int, comm: int = 0) -> None:
    """Add the rounds of an all-to-all among all ranks, as one loop."""
    with builder.loop(n_ranks - 1):
        _exchange(builder, 1, 1, n_bytes, comm)


def _exchange(builder: ProgramBuilder, offset: int, step: int, n_bytes: int, comm: int = 0) -> None:
    """Receive from the rank on one side while sending to the other; request slots 0 and 1 must be free."""
    ends = ((Operation.IRECV, -offset, -step, 0), (Operation.ISEND, offset, step, 1))
    for kind, peer, per_turn, request in ends:
        fields = shift_fields(peer, per_turn)
        builder.raw(kind, request=request, comm=comm, value=n_bytes, **fields)
    builder.raw(Operation.WAITALL, request=0, n=2)


def uniform(
    n_ranks: int, n_bytes: int, gap_ns: float, rng: np.random.Generator, n_messages: int
) -> RankPrograms:
    """Each rank sends to other ranks drawn uniformly, at exponential intervals of mean `gap_ns`.

    A rank never waits for a message before it sends the next, so it offers this load even if the network
    cannot carry it.
    """
    peers = rng.integers(1, n_ranks, (n_ranks, n_messages))
    peers = (peers + np.arange(n_ranks)[:, None]) % n_ranks
    gaps_ns = np.rint(rng.exponential(gap_ns, (n_ranks, n_messages))).astype(np.int64)
    n_into = np.bincount(peers.ravel(), minlength=n_ranks)
    programs = [_open_loop(peers[rank], gaps_ns[rank], int(n_into[rank]), n_bytes) for rank in range(n_ranks)]
    return of_each("uniform", programs)


def _open_loop(peers: NDArray[np.int64], gaps_ns: NDArray[np.int64], n_into: int, n_bytes: int) -> Program:
    builder = ProgramBuilder()
    requests = [builder.irecv(ANY, n_bytes) for _ in range(n_into)]
    for peer, gap_ns in zip(peers.tolist(), gaps_ns.tolist(), strict=True):
        builder.compute(gap_ns)
        requests.append(builder.isend(peer, n_bytes))
    builder.wait_all(requests)
    return builder.build()


def halo(n_ranks: int, n_bytes: int, n_times: int = 1) -> RankPrograms:
    """Ranks on a torus exchange with their neighbours; it has three dimensions, as equal as possible."""
    shape = grid(n_ranks)
    place = np.arange(n_ranks).reshape(shape)
    ends = [
        (np.roll(place, -step, axis).ravel(), np.roll(place, step, axis).ravel(), 2 * axis + (step < 0))
        for axis in range(len(shape))
        for step in (1, -1)
        if shape[axis] > 1
    ]
    swaps = [functools.partial(_swap, rank=rank, ends=ends, n_bytes=n_bytes) for rank in range(n_ranks)]
    return of_each("halo", [repeated(n_times, swap) for swap in swaps])


def _swap(
    builder: ProgramBuilder,
    rank: int,
    ends: list[tuple[NDArray[np.int64], NDArray[np.int64], int]],
    n_bytes: int,
) -> None:
    requests = [builder.irecv(int(before[rank]), n_bytes, tag) for _, before, tag in ends]
    requests += [builder.isend(int(after[rank]), n_bytes, tag) for after, _, tag in ends]
    builder.wait_all(requests)


def grid(n: int) -> tuple[int, int, int]:
    """Three factors of a number that are as equal as possible, the largest first."""
    best = (n, 1, 1)
    for c in range(1, round(n ** (1 / 3)) + 1):
        if n % c:
            continue
        b = next(b for b in range(math.isqrt(n // c), 0, -1) if n // c % b == 0)
        factors = sorted((n // c // b, b, c), reverse=True)
        if sum(factors) < sum(best):
            best = (factors[0], factors[1], factors[2])
    return best


def repeated(n_times: int, add: Callable[[ProgramBuilder], None]) -> Program:
    """A program that repeats the operations added by `add` `n_times`."""
    builder = ProgramBuilder()
    if n_times == 1:
        add(builder)
    else:
        with builder.loop(n_times):
            add(builder)
    return builder.build()

"""The facts of a job as gauges, for the textfile collector of Prometheus' node exporter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from mpicoloc.core.profile import Profile
from mpicoloc.errors import printable
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.summary import co_runners
from mpicoloc.show import outputs

Sample: TypeAlias = tuple[str, str, Mapping[str, object], float | None]
"""Name without prefix, help text, labels besides the job's, value."""


def write(job: Frames, out: str) -> None:
    """Write the facts of `job` to the file `out`, atomically, because the collector may read it any time."""
    with outputs.text_file(out) as file:
        seen: set[str] = set()
        for name, meaning, labels, value in _samples(job.profile):
            if value is None or not math.isfinite(value):
                continue
            full = f"mpicoloc_job_{name}"
            if full not in seen:
                file.write(f"# HELP {full} {_escaped(meaning, quotes=False)}\n# TYPE {full} gauge\n")
                seen.add(full)
            pairs = {"job": job.profile.job.id, **labels}
            inside = ",".join(f'{key}="{_escaped(str(word))}"' for key, word in pairs.items())
            number = float(value)
            file.write(f"{full}{{{inside}}} {int(number) if number.is_integer() else repr(number)}\n")


def _escaped(word: str, quotes: bool = True) -> str:
    word = "\n".join(map(printable, word.split("\n")))  # safe to view in a terminal
    word = word.replace("\\", "\\\\").replace("\n", "\\n")
    return word.replace('"', '\\"') if quotes else word


def _samples(profile: Profile) -> Iterator[Sample]:
    """All samples; those with the same name are adjacent, as the format requires."""
    job, found, price = profile.job, profile.interference, profile.price
    about = {
        "command": job.command, "mpi_library": job.mpi_library, "mode": job.mode, "meter": found.meter,
        "method": getattr(found.slowdown, "method", ""), "pricing": getattr(price, "pricing", ""),
    }  # fmt: skip
    yield from (
        ("info", "Facts of the job, as labels; always 1.", about, 1),
        ("partial", "1 if a rank was lost or left without MPI_Finalize.", {}, profile.partial),
        ("start_timestamp_seconds", "Begin of the job, since 1970.", {}, job.start_unix_s or None),
        ("wall_seconds", "Run time.", {}, job.wall_s),
        ("ranks", "Number of ranks.", {}, job.n_ranks),
        ("nodes", "Number of nodes.", {}, job.n_nodes),
        ("cores", "Number of cores.", {}, job.n_cores),
        ("mpi_calls", "MPI calls of all ranks.", {}, profile.mpi.n_calls),
        ("sent_bytes", "Bytes given to sends and collectives.", {}, profile.mpi.sent_bytes),
        ("received_bytes", "Bytes taken from receives and collectives.", {}, profile.mpi.recv_bytes),
        ("mpi_time_ratio", "Share of the time inside MPI.", {}, profile.mpi.time_frac),
    )
    yield from _interference(profile)
    for name in ("rate_su", "runtime_su", "fair_su", "fair_low_su", "fair_high_su", "discount_frac"):
        value = getattr(price, name, None)
        yield f"price_{name.replace('_frac', '_ratio')}", "Price in service units.", {}, value
    yield from _network(profile)


def _interference(profile: Profile) -> Iterator[Sample]:
    found = profile.interference
    value, low, high, n = (getattr(found.slowdown, name, None) for name in ("value", "low", "high", "n"))
    yield from (
        ("slowdown", "T_co / T_solo.", {}, value),
        ("slowdown_low", "Lower end of its 95 % interval.", {}, low),
        ("slowdown_high", "Upper end of its 95 % interval.", {}, high),
        ("slowdown_observations", "Observations from which the slowdown is estimated.", {}, n),
        ("shutters_taken", "Shutters taken for the job.", {}, found.n_taken),
        ("shutters_used", "Shutters from which the slowdown is estimated.", {}, found.n_used),
        ("overhead_ratio", "Share of the time that measuring took.", {}, found.overhead_frac),
        ("coverage_ratio", "Share of the time that was measured.", {}, found.coverage_frac),
        ("shared_seconds", "Time with a co-runner.", {}, found.shared_s),
    )
    for one in co_runners(profile):
        of = {"corunner": one.id}
        yield "corunner_overlap_seconds", "Time that both jobs were on a node.", of, one.overlap_s
        if one.slowdown is not None:
            yield "corunner_slowdown", "Slowdown by that job alone.", of, one.slowdown.value


def _network(profile: Profile) -> Iterator[Sample]:
    rows = (
        ("network_sent_bytes", "Bytes that left this level of the fat-tree.", "sent_bytes"),
        ("network_injection_bytes_per_second", "Rate of the bytes that left this level.", "injection_bps"),
        ("network_utilisation_ratio", "Rate over the rate available to the job.", "utilisation_frac"),
    )
    for name, meaning, key in rows:
        for level in profile.network.levels if profile.network else ():
            yield name, meaning, {"level": level.level}, getattr(level, key)

"""The meter ipc on hardware counters: a machine that QEMU emulates counts what the jobs on it execute.

Run by hand: `tests/machines/pmu/run`, in some minutes. It needs Debian's packages qemu-system-arm,
gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and cpio, and at first the network: Debian's kernel for arm64,
BusyBox and the wheel `mpich` then stay in ~/.cache/mpicoloc-tests.

The truth is known: with `-icount` every instruction takes two nanoseconds, and that is two cycles. The jobs
write down when each of their loops began and ended. There is one processor and no cache, so jobs slow each
other by taking turns.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import machine
import numpy as np
import objects
import pytest

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "unit" / "c"))

import c_tests  # noqa: E402
import test_tally_c  # noqa: E402

from mpicoloc.core.profile import valid_shutters  # noqa: E402
from mpicoloc.pmpi import build_shim  # noqa: E402
from mpicoloc.profile import assemble, collect, hdf5  # noqa: E402

CC = "aarch64-linux-gnu-gcc"
N_LOOPS = 50_000
PER_ROUND = 2 * N_LOOPS
"""Instructions of one round."""
BESIDE = 0.04
"""Upper bound on a round's instructions outside its loop, as a fraction: clock reads, MPI, counting."""
SLACK = 1.05
"""The truth is of the whole run, which had shutters of others and a begin alone."""
SECONDS = 10
SECONDS_ALONE = 3
N_COUNTERS = 7
FREE_PAIR = 5
"""So many pinned counters leave one pair: a thread is counted by the agent, but not by itself."""
C_TESTS = {"test_tally": test_tally_c.TALLY, "test_pmu": c_tests.SOURCES,
           "test_perf": (*objects.AGENT, *objects.RECORDER)}  # fmt: skip

pytestmark = pytest.mark.timeout(3 * machine.LIMIT_S)


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """The machine's files: the library, the keeper, and programs, all for aarch64."""
    root, made = tmp_path_factory.mktemp("pmu") / "root", tmp_path_factory.mktemp("made")
    machine.lay_out(root)
    data = machine.mpich()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", CC)
        build_shim.build_keeper(root / "lib/mpicoloc", made / "kept")
    build_shim.build_shim([CC], [data / "include"], "mpich", root / "lib/mpicoloc", kept=made / "kept")
    words = [CC, *objects.FLAGS, f"-I{data / 'include'}", "-Wl,--allow-shlib-undefined,-rpath,/mpich/lib"]
    for name in ("loops", "pinned"):
        library = data / "lib/libmpi.so.12"
        subprocess.run([*words, HERE / f"{name}.c", library, "-o", root / "bin" / name], check=True)
    for name, files in C_TESTS.items():
        objects.program(root / "bin" / name, [objects.of_tests(name), *files], objects.FLAGS, made, cc=[CC])
    for name in ("job", "keep"):
        shutil.copy(HERE / name, root / "bin")
    return root


def profile_of(folder, name, monkeypatch):
    """The profile of a job, from what the keeper on that machine had left when it wanted it written."""
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(folder / name))
    (node,) = (folder / name).glob("mpicoloc.*.node")
    part = collect.collect(node.name.split(".")[1])
    out = str(folder / f"{name}.h5")
    assert assemble.write([dataclasses.replace(part, facts={**part.facts, "out_path": out})]) == (out, "")
    return hdf5.read(out)


def rounds_of(folder, name):
    """Begin and end of each round of a job, ns."""
    return np.fromfile(folder / f"{name}.rounds", dtype="u8").reshape(-1, 2).astype(float)


def per_second(rounds):
    return len(rounds) / (rounds[-1, 1] - rounds[0, 0]) * 1e9


def rounds_in(rounds, begin_ns, end_ns):
    """Rounds between two instants; cut ones in part, as if all of a round went on at one speed."""
    n = np.arange(len(rounds))
    done = np.stack([n, n + 1], axis=1).ravel()
    return np.interp(end_ns, rounds.ravel(), done) - np.interp(begin_ns, rounds.ravel(), done)


def check_counts(name, profile, rounds):
    """Each window's counts are those of the rounds in it."""
    shutters = valid_shutters(profile.tables["shutters"])
    known = shutters[shutters["during_outside_instructions"] > 0]
    assert len(known) >= 8
    n = np.array([rounds_in(rounds, row["t0_ns"], row["t1_ns"]) for row in known])
    counted = known["during_outside_instructions"] / PER_ROUND
    print(f"{name}: {counted.sum():.1f} rounds counted of {n.sum():.1f} in {len(known)} shutters,",
          f"{abs(counted - n).max():.1f} between them at most")  # fmt: skip
    assert (abs(counted - n) < 2 + BESIDE * n).all()
    assert 1 <= counted.sum() / n.sum() < 1 + BESIDE
    for when in ("before", "during", "after"):
        for what in ("", "outside_"):
            instructions, cycles = (known[f"{when}_{what}{event}"] for event in ("instructions", "cycles"))
            assert abs(cycles / machine.NS_PER_INSTRUCTION - instructions).max() < 100


def check_slowdown(name, profile, true):
    """The job's slowdown is the meter's, and right; its instructions are not slower, and IPC says so."""
    found = profile.interference
    estimates = {one.method: one for one in (found.slowdown, *found.alternatives)}
    print(f"{name}:", *(f"{e.method} {e.value:.3f} [{e.low:.3f}, {e.high:.3f}]" for e in estimates.values()),
          f"true {true:.3f}")  # fmt: skip
    assert {result.meter: result.reason for result in found.meters}["ipc"] == ""
    assert found.slowdown.method == "ipc-progress"
    assert found.slowdown.low / SLACK < true < found.slowdown.high * SLACK
    # what it loses to its neighbours' shutters is in all of them
    assert 1 <= estimates["ipc-outside"].value < 1 / (1 - 0.08)


def counted(profile, rank, event="instructions"):
    rows = profile.tables["counters"]
    (row,) = rows[(rows["rank"] == rank) & (rows["event"] == event.encode())]
    assert row["running_s"] == row["enabled_s"]
    return row["value"]


def test_programs_of_tests_c(root, tmp_path):
    of_pmu = (f"test_pmu {name}" for name in ("hardware", "hardware_raw", "default"))
    programs = ("test_tally hardware", *of_pmu, "test_perf")
    steps = (f"echo {program}\nsu -s /bin/sh user -c '{program}' && echo passed" for program in programs)
    printed = machine.boot(root, "\n".join(steps), tmp_path / "out")
    print(printed)
    assert "armv8_pmuv3" in printed
    assert printed.count("passed") == len(programs)


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_jobs_that_take_turns(root, tmp_path, monkeypatch, n_ranks):
    folder = tmp_path / "out"
    runs = [("alone", n_ranks, SECONDS_ALONE), ("one", n_ranks, SECONDS), ("other", 1, SECONDS)]
    alone, *both = (f"job {name} {n} loops {s} {N_LOOPS} /out/{name}.rounds" for name, n, s in runs)
    printed = machine.boot(root, "\n".join([alone, *(f"{job} &" for job in both), "wait"]), folder)
    assert "failed" not in printed
    found = {name: (profile_of(folder, name, monkeypatch), rounds_of(folder, name)) for name, *_ in runs}
    profile, rounds = found["one"]
    check_counts("one", profile, rounds)
    check_slowdown("one", profile, per_second(found["alone"][1]) / per_second(rounds))
    shutters = valid_shutters(profile.tables["shutters"])
    polls_frac = 1 - shutters["during_outside_instructions"].sum() / shutters["during_instructions"].sum()
    print(f"one: {polls_frac:.3f} of the instructions in MPI")
    assert polls_frac < BESIDE if n_ranks == 1 else polls_frac > 0.2
    for name, (profile, rounds) in found.items():
        total, in_loops = counted(profile, 0), len(rounds) * PER_ROUND
        print(f"{name}: {total:.0f} instructions of rank 0 over the whole run, {in_loops} of them in loops")
        assert in_loops <= total
        if len(profile.tables["ranks"]) == 1:
            assert total < in_loops * (1 + BESIDE)


@pytest.mark.parametrize("n_pinned", [FREE_PAIR, N_COUNTERS])
def test_counters_that_others_have(root, tmp_path, monkeypatch, n_pinned):
    folder = tmp_path / "out"
    jobs = [f"job {name} 1 loops 6 {N_LOOPS} /out/{name}.rounds &\n" for name in ("one", "other")]
    printed = machine.boot(root, f"pinned {n_pinned} & sleep 1\n{''.join(jobs)}wait %2 %3", folder)
    print(printed)
    assert "pinned" in printed and "failed" not in printed
    profile = profile_of(folder, "one", monkeypatch)
    shutters = valid_shutters(profile.tables["shutters"])
    (result,) = (result for result in profile.interference.meters if result.meter == "ipc")
    print(f"{n_pinned} pinned:", result, shutters["during_instructions"])
    assert len(shutters) >= 8
    assert result.reason.startswith("0 shutters have counts outside MPI")
    assert not shutters["during_outside_instructions"].any()
    assert shutters["during_instructions"].all() == (n_pinned == FREE_PAIR)

"""The meter loop on real programs that call MPI only to begin and to end, in several shapes."""

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest

from mpicoloc.pmpi import paths

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.serial]

SECONDS = 22
CORUN_FEW, CORUN_MANY = 1.2, 3.0
"""Two jobs by turns on one processor are slowed by 2. On a day on which others want it too, a shutter does
not give the job all of it, so that it is slowed less; and a few shutters have their noise."""


ASK = """
#include "agent/loop/probe.h"
#include <stdio.h>
int main(void) { char reason[256]; mc_probe_available(reason, 256); puts(reason); }
"""


def no_breakpoints():
    """Why there are none, empty where there are: asked of the kernel as the agent asks it."""
    csrc = Path(__file__).resolve().parents[2] / "csrc"
    sources = [
        str(csrc / f"{name}.c")
        for name in ("agent/loop/probe", "common/counters/perf", "common/proc", "common/trap")
    ]
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-std=gnu11", f"-I{csrc}", "-x", "c", "-", *sources, "-o", f"{folder}/ask"]
        subprocess.run(command, input=ASK, text=True, check=True, timeout=60)
        done = subprocess.run([f"{folder}/ask"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def mpi():
    for name in ("mpich", "openmpi"):
        found = jobs.commands(name)
        if found and paths.find_shim(name):
            return jobs.Mpi(name, found[1], jobs.FAMILIES[name], found[0])
    pytest.skip("no MPI")


@pytest.fixture(scope="module")
def breakpoints():
    reason = no_breakpoints()
    if reason:
        pytest.skip(reason)


def build(mpi, folder, flags=(), source="rarely.c", strip=False):
    compiler = mpi.program if source.endswith(".c") else mpi.program.replace("mpicc", "mpif90")
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    folder.mkdir(exist_ok=True)
    program = folder / "rarely"
    subprocess.run(
        [compiler, "-O2", *flags, str(jobs.PROGRAMS / source), "-o", str(program)],
        check=True,
        timeout=60,
        cwd=folder,
    )
    if strip:
        subprocess.run(["strip", "-s", str(program)], check=True, timeout=60)
    return program


def run_two(mpi, folder, programs, *arguments, processor, ways=("preload", "preload"), before=(), **options):
    """Two jobs of one rank by turns on one processor, and their profiles."""
    running = []
    for name, program, way in zip(("a", "b"), programs, ways, strict=True):
        env = {**os.environ, "MPICOLOC_OUT": str(folder / f"{name}.h5"), "MPICOLOC_JOB_ID": name,
               "MPICOLOC_PYTHON": sys.executable, **options}  # fmt: skip
        shim = ["env", f"LD_PRELOAD={paths.find_shim(mpi.name)}"]
        wrap = [sys.executable, "-m", "mpicoloc.wrap"]
        n_ranks = "2" if way == "wrap" else "1"
        command = [*before, "taskset", "-c", str(processor), mpi.mpirun, *mpi.flags, "-n", n_ranks,
                   *(wrap if way == "wrap" else shim), str(program), *map(str, arguments)]  # fmt: skip
        log = folder / f"{name}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        running.append(jobs.Job(process, folder / f"{name}.h5", log))
    for job in running:
        assert job.wait() == 0, job.log
    return [(job.profile(), job.log) for job in running]


def node(profile):
    row = profile.tables["nodes"][0]
    return {name: row[name].decode() for name in ("meter", "meter_reason", "entry")}


def is_measured(profile, log):
    """It chose a place in the program itself; what was measured, if so, is the sharing of the processor."""
    found, facts = profile.interference, node(profile)
    wall_s, cpu_s = map(float, re.search(r"wall +([\d.]+) cpu +([\d.]+)", log).groups())
    if facts["meter"] != "loop" and cpu_s < LEAST_FRAC * wall_s:
        return False  # others had the processor: no place was passed often enough
    assert facts["meter"] == "loop", (facts, log)
    assert facts["entry"].startswith("rarely+0x")
    assert profile.tables["nodes"]["n_hits"][0] > 0 and found.overhead_frac < 0.1
    if found.slowdown is None or found.slowdown.method != "loop":
        return False
    assert found.slowdown.low < CORUN_MANY and found.slowdown.high > CORUN_FEW, found
    return True


NO_UNWIND = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
SHAPES = {
    "symbols": {},
    "stripped": {"strip": True},
    "inlined": {"flags": ("-DINLINED",), "strip": True},
    "no-unwind": {"flags": NO_UNWIND},
    "fortran": {"source": "rarely.f90", "strip": True},
}
LEAST_FRAC = 0.4  # two by turns have half of a processor each
N_ATTEMPTS = 3  # too few shutters may be valid where others want the processor as well


@dataclass(frozen=True)
class Pair:
    """Two jobs, each the co-runner of the other: their shapes, how they start, what they are told."""

    shapes: tuple[str, str]
    ways: tuple[str, str] = ("preload", "preload")
    arguments: tuple = (SECONDS,)

    def is_as_it_should(self, profile, log):
        if "endless" in self.arguments:
            facts = node(profile)
            assert facts["meter"] == "burst" and profile.interference.slowdown is None
            assert "no meter loop: no function entry" in facts["meter_reason"], facts
            return True
        return is_measured(profile, log)


PAIRS = (
    Pair(("symbols", "stripped")),
    Pair(("inlined", "no-unwind")),
    Pair(("fortran", "symbols"), ("preload", "wrap")),
    Pair(("stripped", "stripped"), arguments=(8, "endless")),  # one function that never ends has no entry
)


def on_own_processors(calls):
    """What these calls return, which are told a processor that they have for themselves."""
    free = queue.SimpleQueue()
    for processor in (processors := os.sched_getaffinity(0)):
        free.put(processor)

    def with_one(call):
        processor = free.get()
        try:
            return call(processor)
        finally:
            free.put(processor)

    with ThreadPoolExecutor(len(processors)) as at_a_time:
        return list(at_a_time.map(with_one, calls))


@pytest.mark.timeout(400)
def test_slowdown_of_jobs_that_call_no_mpi(mpi, breakpoints, shm_dir, tmp_path):
    programs = {shape: build(mpi, tmp_path / shape, **SHAPES[shape]) for shape in SHAPES}

    def not_measured(pair, processor):
        """Shapes of the pair that gave no slowdown in any run."""
        missing, name = set(pair.shapes), "-".join([*pair.shapes, *map(str, pair.arguments)])
        (own_shm := shm_dir / name).mkdir()
        for attempt in range(N_ATTEMPTS):
            folder = tmp_path / f"{name}-{attempt}"
            folder.mkdir()
            two = [programs[shape] for shape in pair.shapes]
            found = run_two(mpi, folder, two, *pair.arguments, processor=processor, ways=pair.ways,
                            MPICOLOC_SHM_DIR=str(own_shm), MPICOLOC_PATCHING="0")  # fmt: skip
            jobs.assert_nothing_left(own_shm)
            are_good = [pair.is_as_it_should(*each) for each in found]
            missing -= {shape for shape, is_good in zip(pair.shapes, are_good, strict=True) if is_good}
            if not missing:
                break
        return missing

    missing = on_own_processors(
        [lambda processor, pair=pair: not_measured(pair, processor) for pair in PAIRS]
    )
    assert not any(missing), f"not measured: {missing}"


def test_where_perf_is_forbidden_the_profile_says_so(mpi, shm_dir, tmp_path):
    program, forbid = build(mpi, tmp_path), tmp_path / "no_perf"
    subprocess.run(["cc", str(jobs.PROGRAMS / "no_perf.c"), "-o", str(forbid)], check=True, timeout=60)
    found = run_two(
        mpi, tmp_path, (program, program), 2,
        processor=max(os.sched_getaffinity(0)), before=[str(forbid)], MPICOLOC_METER="loop",
    )  # fmt: skip
    for profile, _ in found:
        facts = node(profile)
        assert facts["meter"] == "burst"
        assert "option meter is loop; no meter loop: perf_event_open refused" in facts["meter_reason"]

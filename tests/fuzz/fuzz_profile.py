"""Damaged and hostile profiles, traces and indexes, for every verb that reads them.

    python tests/fuzz/fuzz_profile.py [--minutes 30] [--seed 0] [--keep FOLDER]

Each must end with its exit code, with one line if it is an error, in time and within the bound of memory.
What breaks one is kept as FOLDER/NUMBER, and the command printed. A seed gives the same files again.
"""

import argparse
import contextlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "support")]

import mutations  # noqa: E402
import sample  # noqa: E402
import traces  # noqa: E402

from mpicoloc.cli.main import main as mpicoloc  # noqa: E402
from mpicoloc.core.profile import Network, NetworkLevel, table  # noqa: E402
from mpicoloc.profile import hdf5, sandbox  # noqa: E402
from mpicoloc.trace import node_file  # noqa: E402

LIMIT_S = 100
MEMORY_BYTES = 1 << 30
"""Bound that is held here, in place of the 12 GiB of `sandbox`, for the command and for each reader."""
NAME = "job.h5"
CODES = {"history": {0, 1, 3}, "network": {0, 2, 3}}
"""Exit codes besides 0 and 3: one unread file of a folder; a placement for which the tree is too small."""


def sound_profile():
    """A profile with something in each part of it, of a job on two nodes whose calls were traced."""
    profile = sample.profile()
    ranks = profile.tables["ranks"].copy()
    ranks["i_node"], ranks["n_events"] = [0, 1], [3, 4]
    nodes = np.resize(profile.tables["nodes"], 2)
    nodes["hostname"] = [b"n1", b"n2"]
    nodes["clock_offset_s"] = [0.0, 1e-3]
    events = {
        "rank": [0, 1], "t_ns": [10, 20], "duration_ns": [5, 6], "bytes": [8, 8], "peer": [1, 0],
        "call": ["MPI_Send", "MPI_Recv"],
    }  # fmt: skip
    collectives = {
        "rank": [0], "call": ["MPI_Allreduce"], "group": [7], "root": [-1], "size_class": [4], "n": [9],
        "bytes": [72], "item_bytes": [8],
    }  # fmt: skip
    more = {
        "ranks": ranks,
        "nodes": nodes,
        "events": table("events", events),
        "collectives": table("collectives", collectives),
        "groups": table("groups", {"group": [7], "first": [0], "stride": [1], "n": [2]}),
        "regions": table(
            "regions", {"rank": [0], "name": ["solve"], "n": [2], "time_ns": [9], "mpi_ns": [3]}
        ),
    }
    levels = tuple(NetworkLevel(i, 1e6, 1e3, 1e9, 1e-6) for i in range(2))
    return replace(
        profile,
        job=replace(profile.job, n_nodes=2),
        tables={**profile.tables, **more},
        network=Network("XGFT(2;4,2;1,2)", "low", "all", 2, levels),
        notes=("a note",),
    )


def sound_trace(folder):
    """The trace of the same job, a file for each node."""
    sent, received = traces.SEND | node_file.SENT, traces.RECV | node_file.RECEIVED
    more = traces.WAITALL | node_file.RECEIVED | node_file.MESSAGE
    blocks = (
        traces.events(
            0, [1100, 1300, 2100], [50, 500, 7], [8, 64, 0], [1, 1, -1], [sent, received, traces.BARRIER],
        ),
        traces.events(
            1, [1000, 1500, 1500, 3000], [400, 0, 9, 1], [8, 16, 16, 0], [0, 0, 0, -1],
            [received, more, traces.WAITALL | node_file.RECEIVED, traces.BARRIER], [5, 6, 6, 7],
        ),
    )  # fmt: skip
    folder.mkdir()
    for i, block in enumerate(blocks):
        head = traces.head(hostname=b"n%d" % (i + 1))
        (folder / f"{i}.mct").write_bytes(head + traces.names() + block)


def commands(with_trace):
    """Commands to run on a file: lists of arguments for mpicoloc."""
    out = ["--out", "out"]
    if with_trace:
        kinds = ("perfetto", "paraver", "parquet")
        return [["export", NAME, "--format", kind, *out] for kind in kinds]
    network = ["network", NAME, "--topology", "XGFT(2;4,2;1,2)"]
    return [
        ["show", NAME], ["show", "--json", NAME], ["report", NAME, *out], ["history", "."],
        ["compare", "sound.h5", NAME], ["price", NAME, "--rate-su", "1"], network, [*network, "--json"],
        ["export", NAME, "--format", "json", *out], ["export", NAME, "--format", "prometheus", *out],
        ["export", NAME, "--format", "perfetto", *out],
        ["export", NAME, "--format", "clustercockpit", *out], ["export", NAME, "--format", "xdmod", *out],
    ]  # fmt: skip


class TooLong(BaseException):
    """Not caught by anything on the way."""


@contextlib.contextmanager
def limited():
    """Within these limits the commands must work: time of one, memory of it and of each reader."""

    def late(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, late), sandbox.MEMORY_BYTES
    sandbox.MEMORY_BYTES = MEMORY_BYTES
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before[0])
        sandbox.MEMORY_BYTES = before[1]


def trouble(argv, codes=None):
    """Run a command; a description of its failure, or None."""
    out, err = io.StringIO(), io.StringIO()
    signal.alarm(LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            code = mpicoloc(argv)
    except TooLong:
        return f"took more than {LIMIT_S} s: {traceback.format_exc()}"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return wrong_answer(argv[0], codes, code, out.getvalue(), err.getvalue())


def wrong_answer(verb, codes, code, out, err):
    lines = err.splitlines()
    if code not in (codes or CODES.get(verb, {0, 3})):
        return f"exit code {code}: {err}"
    if any("Warning" in line or "Traceback" in line for line in lines):
        return f"not for users: {err}"
    if not all(line.startswith("mpicoloc: ") and line.isprintable() for line in lines):
        return f"not one line each: {err!r}"
    if code == 3 and (not lines or (out and verb not in ("price", "network"))):
        return f"exit code 3, output {out[:200]!r}, error {err!r}"
    if mutations.SECRET in out + err:
        return f"tells the content of another file: {err}"
    return None


def prepare(folder):
    """A folder to fuzz in: sound files, and what malice points at."""
    profile = sound_profile()
    hdf5.write(profile, folder / "sound.h5")
    shutil.copy(folder / "sound.h5", folder / "other.h5")
    hdf5.write(replace(profile, tables={**profile.tables, "events": table("events")}), folder / "traced.h5")
    sound_trace(folder / "traced.trace")
    (folder / "secret").write_text(mutations.SECRET * 100_000)
    os.mkfifo(folder / "pipe")


def files(folder, rng):
    """A new damaged job in the folder; what was done to it, and the commands to try."""
    shutil.rmtree(folder / "job.trace", ignore_errors=True)
    if rng.random() < 0.75:
        shutil.copy(folder / "sound.h5", folder / NAME)
        return mutations.mutate_profile(rng, folder / NAME), commands(False)
    shutil.copy(folder / "traced.h5", folder / NAME)
    shutil.copytree(folder / "traced.trace", folder / "job.trace")
    done = mutations.mutate_trace(rng, folder / "job.trace" / f"{int(rng.integers(2))}.mct")
    if rng.random() < 0.2:
        done += mutations.mutate_profile(rng, folder / NAME)
    return done, commands(True)


def fuzz(folder, seed, n_files=None, minutes=None, n_commands=2):
    """Try damaged files; yields number of the file, what was done to it, command, and trouble or None."""
    prepare(folder)
    started_s, i = time.monotonic(), 0
    before = Path.cwd()
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    try:
        with limited():
            while (n_files is None or i < n_files) and (
                minutes is None or time.monotonic() - started_s < 60 * minutes
            ):
                rng = np.random.default_rng([seed, i])
                done, asked = files(folder, rng)
                for at in rng.permutation(len(asked))[:n_commands]:
                    out = folder / "out"
                    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
                    yield i, done, asked[at], trouble(asked[at])
                i += 1
    finally:
        os.chdir(before)


def peak_bytes():
    """Largest memory of this process, and of one of those that it started."""
    return [
        resource.getrusage(who).ru_maxrss << 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--keep", type=Path, default=Path("fuzz-profile"), help="where to keep what breaks something"
    )
    args = parser.parse_args(argv)
    keep = args.keep.resolve()
    n_found = n_tried = n_files = 0
    with tempfile.TemporaryDirectory(prefix="mpicoloc-fuzz-") as name:
        folder = Path(name)
        for i, done, command, wrong in fuzz(folder, args.seed, minutes=args.minutes):
            n_tried, n_files = n_tried + 1, i + 1
            if not wrong:
                continue
            n_found += 1
            kept = keep / str(i)
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / NAME, kept)
            if (folder / "job.trace").exists():
                shutil.copytree(folder / "job.trace", kept / "job.trace", dirs_exist_ok=True)
            print(f"\n== {kept}: {', '.join(done)}: mpicoloc {' '.join(command)}\n{wrong}", flush=True)
    peaks = ", ".join(f"{n >> 20} MiB" for n in peak_bytes())
    print(f"\n{n_tried} commands on {n_files} files: {n_found} not as they must be")
    print(
        f"peak memory of the command and of a reader: {peaks}; {sum(os.times()[:4]):.0f} s of processor time"
    )
    return 1 if n_found else 0


if __name__ == "__main__":
    sys.exit(main())

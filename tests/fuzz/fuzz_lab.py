"""Builds the fuzzers and runs one: ``python tests/fuzz/fuzz_lab.py NAME [libFuzzer options]``."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mpicoloc.pmpi.sources import AGENT

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import objects  # noqa: E402

CSRC = HERE.parents[1] / "csrc"
# What each fuzzer is linked with, besides the files that it includes to reach their inner functions.
_AGENT = tuple(name for name in AGENT if name not in ("agent.c", "options.c", "proc.c"))
_RANK = (
    "clock.c",
    "gate.c",
    "hooks.c",
    "lanes.c",
    "perf.c",
    "restart.c",
    "pmu.c",
    "segment.c",
    "table.c",
    "tally.c",
)
SOURCES = {
    "board": (*(name for name in _AGENT if name != "agent_schedule.c"), "options.c", "proc.c"),
    "segment": (*_AGENT, "options.c", "proc.c"),
    "keeper": (
        *_AGENT,
        "agent.c",
        "agent_thread.c",
        "keeper_checkpoint.c",
        "keeper_files.c",
        "keeper_writer.c",
        "options.c",
        "pmu.c",
        "proc.c",
    ),
    "text": (*_RANK, "board.c", "regions.c", "trap.c", "usage.c"),
    "entries": (),
    "spank": (),
    "regions": (*_RANK, "keeper_start.c", "options.c", "proc.c", "start.c", "trap.c", "usage.c"),
}
FLAGS = ("-std=gnu11", "-O1", "-g", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined",
         "-Wno-initializer-overrides")  # fmt: skip


def find_compiler():
    """Clang with its fuzzer, or None."""
    clang = shutil.which("clang") or shutil.which("clang-14")
    if clang is None:
        return None
    command = [clang, "-fsanitize=fuzzer,address,undefined", "-o", os.devnull, "-x", "c", "-"]
    program = "int LLVMFuzzerTestOneInput(void) { return 0; }"
    done = subprocess.run(command, input=program, text=True, capture_output=True, timeout=60, check=False)
    return clang if done.returncode == 0 else None


def build(clang, name, folder, shared):
    """The fuzzer of this name, compiled into a folder; objects of others' as well lie in `shared`."""
    sources = [HERE / f"fuzz_{name}.c", *(CSRC / source for source in SOURCES[name])]
    return objects.program(folder / f"fuzz_{name}", sources, FLAGS, shared, cc=[clang])


def main(name, *options):
    """Fuzz until something is found, or as the options say; what is learnt stays in ./corpus-NAME."""
    corpus = Path(f"corpus-{name}")
    corpus.mkdir(exist_ok=True)
    inputs = [] if any(not option.startswith("-") for option in options) else [corpus]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        program = build(find_compiler(), name, Path(folder), Path(folder))
        environment = {**os.environ, "MPICOLOC_SHM_DIR": folder}
        return subprocess.run([program, *options, *inputs], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

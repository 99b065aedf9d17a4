"""Builds the fuzzers and runs one: ``python tests/fuzz/fuzz_lab.py NAME [libFuzzer options]``."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

import objects  # noqa: E402

from mpicoloc.pmpi import build_shim  # noqa: E402

_RECORDER = (*objects.COMMON, *objects.RECORDER)
LINKED = {
    "board": (objects.AGENT, "agent/step.c"),
    "segment": (objects.AGENT, "agent/step.c"),
    "keeper": (objects.KEEPER, "keeper/keeper.c"),
    "text": (_RECORDER, "common/options.c", "common/proc.c", "guest/rank_segment.c", "guest/start_keeper.c"),
    "object": ((),),
    "relocate": (build_shim.c_files(objects.CSRC, ("agent/relocation",)),),
    "spank": ((),),
    "regions": (_RECORDER, "guest/regions.c"),
}
"""Per fuzzer: sources to link, then those left out because it includes them to reach static functions."""
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


def check_syntax(name, folder):
    """Check that a fuzzer's own file compiles, with any compiler."""
    objects.write_options(folder)
    flags = build_shim.find_capstone().flags if name == "relocate" else ()
    command = [*objects.compiler(), "-std=gnu11", "-fsyntax-only", "-Werror", *flags, f"-I{folder}",
               f"-I{objects.CSRC}", HERE / f"fuzz_{name}.c"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def build(clang, name, folder, shared):
    """The fuzzer of this name, compiled into a folder; objects of others' as well lie in `shared`."""
    linked, *included = LINKED[name]
    files = [HERE / f"fuzz_{name}.c", *(file for file in linked if file not in objects.of_csrc(*included))]
    flags = list(FLAGS)
    if name == "relocate":
        capstone = build_shim.find_capstone()
        flags += capstone.flags
        shutil.copyfile(capstone.library, folder / "libcapstone.so")
    return objects.program(folder / f"fuzz_{name}", files, flags, shared, cc=[clang])


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

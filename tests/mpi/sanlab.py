"""Shims built with a sanitizer, runs under it or Valgrind, and those reports in which we are to blame."""

import re
import subprocess
from pathlib import Path

import shimlab

from mpicoloc.pmpi import build_shim

# MPI's own leaks and races are not ours to mend: reports are sorted by who did it, not suppressed.
FRAME = 'stack_trace_format="    FRAME %n %M %f %S"'
FLAGS = {"address": ("-fsanitize=address,undefined",), "thread": ("-fsanitize=thread",)}
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
OURS = "libmpicoloc-"


def runtimes(kind):
    """The sanitizer's libraries, which must be loaded before all others; None where the compiler has none."""
    found = []
    for name in RUNTIMES[kind]:
        done = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        path = Path(done.stdout.strip())
        if not path.is_absolute():
            return None
        found.append(str(path.resolve()))
    return found


def build(family, kind, folder):
    """The shim of `family` with a sanitizer in it."""
    # warnings of a sanitizer's own making are not looked at
    flags = (*shimlab.quickly(), *FLAGS[kind], "-Wno-error")
    include = build_shim.include_dirs_of(family.mpicc)
    return shimlab.build(folder, family.name, include, flags, family.folder.parent / "kept")


def environment(kind, shim, folder):
    """Variables of the ranks only: (what `env` sets, reports' folder)."""
    folder.mkdir(exist_ok=True)
    common = f"log_path={folder}/report:exitcode=0:{FRAME}"
    if kind == "address":
        options = {"ASAN_OPTIONS": common, "UBSAN_OPTIONS": f"print_stacktrace=1:{common}"}
    else:
        options = {"TSAN_OPTIONS": common}
    # UCX replaces mmap, which the thread sanitizer does not survive, with or without this library
    options["UCX_MEM_EVENTS"] = "n"
    # Events that every machine can count, so that their code runs.
    options["MPICOLOC_COUNTERS"] = "page-faults,minor-faults"
    return {**options, "LD_PRELOAD": ":".join([*runtimes(kind), str(shim)])}


def _frames(text):
    """Stacks of a report: modules of the frames, without those of the sanitizer and of libc.

    An address of ours without a function is none of our code, which has all its symbols, but data that lay on
    the stack of a library without frame pointers.
    """
    stacks = []
    for line in text.splitlines():
        match = re.match(r"\s+FRAME (\d+) \((.*?)(?:\+0x[0-9a-f]+)?\)", line)
        if match and (match[1] == "0" or not stacks):
            stacks.append([])
        is_data = match and OURS in match[2] and "<null>" in line
        if match and not is_data and not re.match(r"lib([atu]san|ubsan|c)\.so", match[2]):
            stacks[-1].append(match[2])
    return stacks


def blamed(text):
    """Parts of a sanitizer's report in which code of ours did it: its innermost frame is ours."""
    found = []
    for part in re.split(r"\n={18}\n|\n\n(?=Direct leak|Indirect leak)", text):
        is_error = "ERROR: AddressSanitizer" in part or "runtime error:" in part
        if is_error or any(stack and OURS in stack[0] for stack in _frames(part)):
            found.append(part)
    return found


def reports(folder):
    """All of `blamed` in a folder of reports."""
    return [
        part for path in sorted(folder.glob("report*")) for part in blamed(path.read_text(errors="replace"))
    ]


def valgrind_errors(folder):
    """Valgrind's errors with a frame of ours among the innermost three that are not Valgrind's own."""
    found = []
    for path in sorted(folder.glob("valgrind*")):
        text = re.sub(r"(?m)^==\d+== ?", "", path.read_text(errors="replace"))
        for part in text.split("\n\n"):
            frames = re.findall(r"(?m)^ +(?:at|by) 0x[0-9A-F]+: .*$", part)
            if any(OURS in frame or "csrc/" in frame or "_gen.c" in frame for frame in frames[:3]):
                found.append(part)
    return found

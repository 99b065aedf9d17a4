"""In which part of a program's time it is in an innermost loop that the meter `count` can count.

    python benchmarks/places.py [lammps,gromacs,...]

Each program runs alone, as one rank, for some seconds, and is sampled. A sample's loop is the smallest one
that a backward jump closes around it, in the function that the unwinding table names. Needs the wheel
`capstone`.
"""

import bisect
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/relocation"))

import elf_functions
import programs
import relocation_lab as lab
import toggled_programs
from accuracy_tables import print_table

SAMPLE_S, SETTLE_S = 8.0, 6.0
WAITING = re.compile(r"/(libc\.so|ld-linux|libmpi|libopen-|libpmix|libucp|libuc[st]|libfabric|sample_places)")
GOES_ON, FORKS, JUMPS, SPARES_FLAGS, SETS_FLAGS, MOVES = 1, 2, 4, 8, 16, 32
JUMP_BYTES, SHORT_JUMP_BYTES, WORD_BYTES = 5, 2, 16
BEFORE_BYTES, BEHIND_BYTES = 256, 512  # as in csrc/agent/count/places.c
TITLES = {
    "in_loop": "in a loop",
    "aligned_8": "place in 8 aligned bytes",
    "aligned_16": "in 16",
    "anywhere": "anywhere",
    "around": "in 16, or in a loop around it",
    "found": "found from this sample alone",
    "pad_between": "in 16, or a short jump to padding between functions",
    "pad_anywhere": "also inside functions",
}
PROGRAMS = {
    "lammps": toggled_programs.lammps,
    "lammps_metal": toggled_programs.lammps_metal,
    "gromacs": toggled_programs.gromacs,
    "pw": toggled_programs.pw,
    "nwchem": toggled_programs.nwchem,
    "cp2k": toggled_programs.cp2k,
    **{f"hpcc_{part}": toggled_programs.hpcc(part) for part in toggled_programs.HPCC_PARTS},
}


@dataclass
class Instruction:
    at: int
    n_bytes: int
    traits: int
    code: bytes
    target: int = 0
    is_dead: bool = False

    @property
    def is_nop(self):
        rest = self.code.lstrip(b"\x66\x2e")
        return rest[:1] == b"\xcc" or rest == b"\x90" or rest[:2] == b"\x0f\x1f"

    @property
    def leaves(self):
        """The next instruction does not follow: a jump, a return, ud2."""
        rest = self.code.lstrip(b"\xf3\xf2\x3e")
        return (
            bool(self.traits & JUMPS)
            or rest[:1] in (b"\xc3", b"\xc2")
            or rest[:2] == b"\x0f\x0b"
            or (rest[:1] == b"\xff" and rest[1] >> 3 & 7 in (4, 5))
        )

    @property
    def is_place(self):
        return bool(self.traits & MOVES) and self.is_dead


def in_word(at, n, word):
    return at % word + n <= word


class Decoder:
    def __init__(self, folder):
        self.ffi, self.library = lab.load_library(folder)
        self.decoder, self.it = self.library.mc_decoder_new(), self.ffi.new("mc_instruction *")

    def decode(self, code, begin, end):
        """Instructions of a function, until one is unknown."""
        text, rows, at = code.text[begin - code.base : end - code.base], [], begin
        while at < end:
            rest = text[at - begin : at - begin + 16]
            if self.library.mc_decode(self.decoder, rest, len(rest), at, self.it) != 0:
                break
            row = Instruction(at, self.it.n_bytes, self.it.traits, rest[: self.it.n_bytes], self.it.target)
            if row.traits & FORKS:
                row.target = self._target(row)
            rows.append(row)
            at += row.n_bytes
        self._judge(rows)
        return rows

    def finds(self, text, base, address):
        found = self.ffi.new("uint64_t[1]")
        return self.library.mc_replaceable(self.decoder, text, len(text), base, address, 1, found) > 0

    def _target(self, row):
        size = 4 if row.code.lstrip(b"\x2e\x3e\xf2")[0] == 0x0F else 1
        return row.at + row.n_bytes + int.from_bytes(row.code[-size:], "little", signed=True)

    def _judge(self, rows):
        """Whether the flags behind an instruction are written before anything reads one."""
        is_dead = False
        for row in reversed(rows):
            if not row.traits & SPARES_FLAGS:
                is_dead = False
            elif row.traits & SETS_FLAGS:
                is_dead = True
            row.is_dead = is_dead


class Binary:
    """A file of code, its functions decoded when they are asked for."""

    def __init__(self, path, decoder):
        self.decoder = decoder
        self.segments = elf_functions.read_segments(path.read_bytes())
        self.codes = elf_functions.read_code(path)
        self.spans = [sorted(code.functions) for code in self.codes]
        self.known = {}

    def address(self, offset):
        for s in self.segments:
            if s.kind == elf_functions.PT_LOAD and s.offset <= offset < s.offset + s.size:
                return offset - s.offset + s.address
        return 0

    def is_found(self, address):
        """Whether the node agent would find a place from this sample."""
        for code in self.codes:
            if code.base <= address < code.base + len(code.text):
                base = max(code.base, address - BEFORE_BYTES)
                text = code.text[base - code.base : address + BEHIND_BYTES - code.base]
                return self.decoder.finds(text, base, address)
        return False

    def function(self, address):
        """Its instructions, and the padding near it: pairs of begin and end."""
        for code, spans in zip(self.codes, self.spans, strict=True):
            i = bisect.bisect_right(spans, (address, 1 << 64)) - 1
            if i >= 0 and spans[i][0] <= address < spans[i][1]:
                if spans[i] not in self.known:
                    self.known[spans[i]] = self._look(code, spans, i)
                return self.known[spans[i]]
        return None

    def _look(self, code, spans, i):
        rows = self.decoder.decode(code, *spans[i])
        inside = inner_padding(rows)
        between = []
        for j in range(max(0, i - 4), min(len(spans) - 1, i + 4)):
            here, following = spans[j][1], spans[j + 1][0]
            if here + JUMP_BYTES <= following <= here + 64:
                pad = self.decoder.decode(code, here, following)
                if pad and pad[-1].at + pad[-1].n_bytes == following and all(row.is_nop for row in pad):
                    between.append((here, following))
        return rows, between, inside


def inner_padding(rows):
    """NOPs behind what never goes on there, into which no jump of the function leads."""
    targets, found = {row.target for row in rows if row.target}, []
    for i, row in enumerate(rows[:-1]):
        if not row.leaves:
            continue
        n = i + 1
        while n < len(rows) and rows[n].is_nop and rows[n].at not in targets:
            n += 1
        end = rows[n].at if n < len(rows) else rows[-1].at + rows[-1].n_bytes
        if end - row.at - row.n_bytes >= JUMP_BYTES and (n == len(rows) or not rows[n].is_nop):
            found.append((row.at + row.n_bytes, end))
    return found


def is_in_reach(row, pads):
    for begin, end in pads:
        for at in range(begin, end - JUMP_BYTES + 1):
            if in_word(at, JUMP_BYTES, WORD_BYTES) and -128 <= at - row.at - SHORT_JUMP_BYTES <= 127:
                return True
    return False


def classify(function, address):
    """What the innermost loop around an address offers."""
    rows, between, inside = function
    loops = [r for r in rows if r.target and r.target <= address <= r.at]
    if not loops:
        return set()
    last = min(loops, key=lambda r: r.at - r.target)
    body = [r for r in rows if last.target <= r.at <= last.at]
    found = {"in_loop"}
    if any(
        r.is_place and r.n_bytes >= JUMP_BYTES and in_word(r.at, JUMP_BYTES, WORD_BYTES)
        for r in rows
        if any(loop.target <= r.at <= loop.at for loop in loops)
    ):
        found.add("around")
    for row in body:
        if not row.is_place:
            continue
        if row.n_bytes >= JUMP_BYTES:
            found |= {"anywhere"} | {f"aligned_{n}" for n in (8, 16) if in_word(row.at, JUMP_BYTES, n)}
        elif row.n_bytes >= SHORT_JUMP_BYTES and in_word(row.at, SHORT_JUMP_BYTES, WORD_BYTES):
            found |= {"pad_between", "pad_anywhere"} if is_in_reach(row, between) else set()
            found |= {"pad_anywhere"} if is_in_reach(row, inside) else set()
    if "aligned_16" in found:
        found |= {"pad_between", "pad_anywhere"}
    return found


def sample(program, sampler, folder):
    """Counts of (file, offset) of some seconds of a program."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in program.files:
        (folder / name).write_text(text)
    places = folder / "places"
    places.mkdir(exist_ok=True)
    extra = {"LD_PRELOAD": str(sampler), "PLACES_FOLDER": str(places), "OMP_NUM_THREADS": "1"}
    with open(folder / "output.txt", "wb") as out:
        running = subprocess.Popen(program.argv, cwd=folder, env=programs.environment(extra), stdout=out,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        time.sleep(SETTLE_S + SAMPLE_S)
        counts = read_samples(places, running.pid) if running.poll() is None else Counter()
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    return counts


def read_samples(places, pid):
    maps = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        if "x" in rights and path and path[0].startswith("/"):
            begin, end = (int(word, 16) for word in span.split("-"))
            maps.append((begin, end, int(offset, 16), path[0]))
    data = (places / str(pid)).read_bytes()
    taken = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    taken = [at for at in taken if at]
    counts = Counter()
    for at in taken[len(taken) // 3 :]:  # the rest is about to start
        for begin, end, offset, path in maps:
            if begin <= at < end and not WAITING.search(path):
                counts[path, at - begin + offset] += 1
    return counts


def shares(counts, decoder):
    """Of the samples in the program."""
    binaries, sums = {}, Counter()
    for (path, offset), n in counts.items():
        if path not in binaries:
            binaries[path] = Binary(Path(path), decoder)
        address = binaries[path].address(offset)
        function = binaries[path].function(address)
        for name in classify(function, address) if function else ():
            sums[name] += n
        sums["found"] += n * binaries[path].is_found(address)
    n_all = max(1, counts.total())
    return n_all, [100 * sums[name] / n_all for name in TITLES]


def main(words):
    names = words[0].split(",") if words else list(PROGRAMS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        decoder = Decoder(folder)
        launcher = programs.Launcher.find("mpirun.openmpi", programs.processors(1), n_ranks=1)
        sampler = folder / "sample_places.so"
        source = programs.CALLS / "sample_places.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(sampler), str(source)], check=True)
        rows = []
        for each in names:
            try:
                program = PROGRAMS[each](launcher, folder / each).endless
            except LookupError as missing:
                print(missing, file=sys.stderr)
                continue
            n, percent = shares(sample(program, sampler, folder / each), decoder)
            rows.append([each, n, *(f"{share:.0f}" for share in percent)])
            print(*rows[-1], flush=True, file=sys.stderr)
    print_table(["program", "samples", *TITLES.values()], rows)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Instructions of aarch64 that the rules admit, executed as they are and moved, in the emulator `unicorn`."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import cffi
import elf_functions
import objects
import relocation_lab as lab
import unicorn
from unicorn import arm64_const as a64

PAGE = 4096
CODE, STUB, TLS = 0x1000_0000, 0x1400_0000, 0x7000_0000_0000
SCRATCH, STACK = 0x2000_0000_0000, 0x3000_0000_0000
PLACE = CODE + PAGE // 2
COUNTER_OFFSETS = (16, 32760, 0x123458)
SAVED_BYTES = 16
CAPPED_FP = 0x300000
FREE_REGISTERS = [getattr(a64, f"UC_ARM64_REG_X{i}") for i in range(31)]
VECTORS = [getattr(a64, f"UC_ARM64_REG_Q{i}") for i in range(32)]
OTHERS = [a64.UC_ARM64_REG_NZCV, a64.UC_ARM64_REG_FPCR, a64.UC_ARM64_REG_FPSR]
REGISTERS = [*FREE_REGISTERS, *VECTORS, *OTHERS, a64.UC_ARM64_REG_SP]
SP = len(REGISTERS) - 1
FLAG_BITS = 0xF0000000


def load_library(folder: Path, csrc: Path = objects.CSRC) -> tuple[Any, Any]:
    """The product's functions for Python; they need no disassembler."""
    files = lab.sources.c_files(csrc, ("agent/relocation",))
    words = (*lab.OPTIMISED, "-fPIC", f"-I{csrc}")
    library = objects.program(
        folder / "libaarch64.so", files, words, folder / "objects", link=("-shared", "-ldl")
    )
    ffi = cffi.FFI()
    ffi.cdef(lab.declarations("aarch64_relocate", "aarch64_encoding"))
    return ffi, ffi.dlopen(str(library))


def admitted(ffi: Any, library: Any, path: Path) -> tuple[Counter[str], set[int]]:
    """Counts of a file's instructions, and the different words that the rules admit."""
    counts: Counter[str] = Counter()
    found: set[int] = set()
    patch = ffi.new("mc_patch_code *")
    for code in elf_functions.read_code(path, elf_functions.EM_AARCH64):
        text = ffi.from_buffer(code.text)
        for begin, end in code.functions:
            for address in range(begin, end - 3, 4):
                (word,) = struct.unpack_from("<I", code.text, address - code.base)
                counts["instructions"] += 1
                if (
                    library.mc_a64_relocate(
                        text, len(code.text), code.base, address, address + PAGE, 16, patch
                    )
                    == 0
                ):
                    counts["admitted"] += 1
                    found.add(word)
    counts["different"] = len(found)
    return counts, found


class Emulator:
    """A processor with code, a stub and memory that appears where it is used, equal in both runs."""

    def __init__(self, ffi: Any, library: Any, rng: random.Random) -> None:
        self.ffi, self.library, self.rng = ffi, library, rng
        self.counts: Counter[str] = Counter()
        self.pool = rng.randbytes(16 * PAGE)
        self.patch = ffi.new("mc_patch_code *")
        self._start_machine()

    def _start_machine(self) -> None:
        self.pages: set[int] = set()
        self.machine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self.machine.ctl_set_cpu_model(a64.UC_CPU_ARM64_MAX)
        for address in (CODE, STUB):
            self.machine.mem_map(address, PAGE)
        self.machine.reg_write(a64.UC_ARM64_REG_CPACR_EL1, CAPPED_FP)
        self.machine.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._appear)

    def _initial(self, page: int) -> bytes:
        offset = page // PAGE % 15 * PAGE + page // PAGE % 512 * 8
        return self.pool[offset : offset + PAGE]

    def _appear(self, machine: Any, _kind: int, address: int, size: int, _value: int, _data: Any) -> bool:
        for page in {address // PAGE * PAGE, (address + size - 1) // PAGE * PAGE}:
            if page not in self.pages:
                try:
                    machine.mem_map(page, PAGE)
                except unicorn.UcError:
                    return False
                machine.mem_write(page, self._initial(page))
                self.pages.add(page)
        return True

    def _state(self) -> list[int]:
        def value() -> int:
            kind = self.rng.randrange(4)
            if kind == 0:
                return self.rng.randrange(64)
            if kind == 1:
                return self.rng.getrandbits(46)
            return SCRATCH + 16 * self.rng.randrange(1024)

        free = [value() for _ in FREE_REGISTERS]
        vectors = [self.rng.getrandbits(128) for _ in VECTORS]
        return [
            *free,
            *vectors,
            self.rng.getrandbits(4) << 28,
            0,
            0,
            STACK + 64 * self.rng.randrange(1, 64),
        ]

    def _run(self, state: list[int], code: bytes, stub: bytes) -> tuple[Any, list[int], dict[int, bytes]]:
        machine, fault = self.machine, None
        for page in self.pages:
            machine.mem_write(page, self._initial(page))
        machine.mem_write(PLACE - 4, code)
        machine.mem_write(STUB, stub)
        machine.ctl_remove_cache(CODE, CODE + PAGE)
        machine.ctl_remove_cache(STUB, STUB + PAGE)
        machine.reg_write_batch(list(zip(REGISTERS, state, strict=True)))
        machine.reg_write(a64.UC_ARM64_REG_TPIDR_EL0, TLS)
        try:
            machine.emu_start(PLACE, PLACE + 4, count=32)
        except unicorn.UcError as error:
            fault = error.errno
        registers = list(machine.reg_read_batch([*REGISTERS, a64.UC_ARM64_REG_PC]))
        registers[SP - 3] &= FLAG_BITS
        return fault, registers, {page: bytes(machine.mem_read(page, PAGE)) for page in sorted(self.pages)}

    def _forms(self, word: int, counter_offset: int) -> tuple[bytes, bytes, bytes]:
        """The code around the place as it is, the same with the branch, and the stub."""
        code = bytearray(b"\x1f\x20\x03\xd5" * (PAGE // 4))
        struct.pack_into("<I", code, PLACE - CODE, word)
        patch = self.patch
        status = self.library.mc_a64_relocate(bytes(code), PAGE, CODE, PLACE, STUB, counter_offset, patch)
        assert status == 0, f"{word:08x}"
        changed = bytearray(code)
        at = patch.word_address - CODE
        changed[at : at + len(patch.after)] = bytes(patch.after)
        near = slice(PLACE - CODE - 4, PLACE - CODE + 8)
        return bytes(code[near]), bytes(changed[near]), bytes(self.ffi.buffer(patch.stub, patch.n_stub))

    def compare(self, word: int, n_states: int) -> None:
        """Count what both forms of an instruction did."""
        self.counts["instructions"] += 1
        if len(self.pages) > 12:
            self._start_machine()
        offset = self.rng.choice(COUNTER_OFFSETS)
        as_it_is, changed, stub = self._forms(word, offset)
        for _ in range(n_states):
            state = self._state()
            n_pages = -1
            while n_pages != len(self.pages):  # in the runs that count the same pages are there
                n_pages = len(self.pages)
                moved_fault, moved, moved_memory = self._run(state, changed, stub)
                fault, registers, memory = self._run(state, as_it_is, stub)
            self._judge(
                word,
                fault == moved_fault,
                fault,
                (registers, moved),
                (memory, moved_memory),
                state[SP],
                offset,
            )

    def _judge(
        self, word: int, is_alike: bool, fault: Any, registers: Any, memory: Any, sp: int, offset: int
    ) -> None:
        before, after = (
            self._patched(each, sp, offset, step) for each, step in zip(memory, (1, 0), strict=True)
        )
        if fault is not None:  # the program counter is that of the moved one
            registers = [each[:-1] for each in registers]
        if not is_alike or registers[0] != registers[1] or before != after:
            self.counts["difference"] += 1
            print(f"{word:08x}: faults alike {is_alike}, registers alike {registers[0] == registers[1]}, "
                  f"memory alike {before == after}", flush=True)  # fmt: skip
        elif fault is not None:
            self.counts["same_fault"] += 1
        else:
            self.counts["executed"] += 1

    def _patched(self, pages: dict[int, bytes], sp: int, offset: int, step: int) -> dict[int, bytes]:
        """Without what the stub saved; the counter of the run without a stub is one behind."""
        changed = {page: bytearray(data) for page, data in pages.items()}
        for at in range(sp - SAVED_BYTES, sp):
            changed[at // PAGE * PAGE][at % PAGE] = 0
        counter = TLS + offset
        page, at = counter // PAGE * PAGE, counter % PAGE
        (n,) = struct.unpack_from("<Q", changed[page], at)
        struct.pack_into("<Q", changed[page], at, (n + step) % 2**64)
        return {page: bytes(data) for page, data in changed.items()}

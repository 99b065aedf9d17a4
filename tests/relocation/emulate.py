"""Windows run in the emulator `unicorn`, as they are and relocated, from random states."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import relocation_lab as lab
import unicorn
from unicorn import x86_const as x86

PAGE = 4096
CODE, STUB, TLS, SCRATCH = 0x1000_0000, 0x1800_0000, 0x7000_0000_0000, 0x2000_0000_0000
FS_OFFSET = -64
FIVE_FLAGS = 0x8D4
N_STEPS_MAX = 1000
WINDOWS_PER_MACHINE = 8
GPR = [getattr(x86, f"UC_X86_REG_{name}") for name in (
    "RAX", "RCX", "RDX", "RBX", "RSP", "RBP", "RSI", "RDI",
    "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
)]  # fmt: skip
XMM = [getattr(x86, f"UC_X86_REG_XMM{i}") for i in range(16)]
REGISTERS = [*GPR, *XMM, x86.UC_X86_REG_MXCSR]
RSP = 4

STRING = re.compile(rb"[\xf2\xf3][\x40-\x4f]?[\xa4-\xa7\xaa-\xaf]")


class Emulator:
    """A processor with code, a stub and memory that appears where it is used, equal in both runs."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.ffi, self.library = lab.load_library(folder)
        self.decoder = self.library.mc_decoder_new()
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.pool = rng.randbytes(16 * PAGE)
        self.n_windows = 0
        self._start_machine()

    def _start_machine(self) -> None:
        self.pages: set[int] = set()
        self.machine = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
        for address in (CODE, STUB, TLS):
            self.machine.mem_map(address, PAGE)
        self.machine.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, self._appear)
        self.at_rest = self.machine.context_save()

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

    def boundaries(self, window: lab.Window) -> list[int]:
        """Where its instructions begin."""
        it, at, found = self.ffi.new("mc_instruction *"), 0, []
        while at < len(window.code):
            code = window.code[at:]
            if self.library.mc_decode(self.decoder, code, len(code), CODE + at, it) != 0:
                break
            found.append(at)
            at += it.n_bytes
        return found

    def is_known(self, window: lab.Window) -> bool:
        """Unicorn has no VEX and no EVEX, and repeated strings may take any time."""
        codes = [window.code[at:] for at in self.boundaries(window)]
        return all(code[0] not in (0xC4, 0xC5, 0x62) and not STRING.match(code) for code in codes)

    def _relocate(self, window: lab.Window, at: int) -> Any:
        code = bytearray(b"\xcc" * PAGE)
        code[at - CODE : at - CODE + len(window.code)] = window.code
        patch = self.ffi.new("mc_patch_code *")
        status = self.library.mc_relocate(self.decoder, bytes(code), PAGE, CODE, at, STUB, FS_OFFSET, patch)
        return patch if status == 0 else None

    def _state(self) -> list[int]:
        def value() -> int:
            kind = self.rng.randrange(4)
            if kind == 0:
                return self.rng.randrange(64)
            if kind == 1:
                return self.rng.getrandbits(46)
            return SCRATCH + 16 * self.rng.randrange(1024)

        gpr = [value() for _ in GPR]
        gpr[RSP] = SCRATCH + 64 * self.rng.randrange(64)
        return [*gpr, *(self.rng.getrandbits(128) for _ in XMM), 0x1F80]

    def _run(self, state: list[int], flags: int, at: int, end: int) -> tuple[Any, ...]:
        machine = self.machine
        for page in self.pages:
            machine.mem_write(page, self._initial(page))
        machine.context_restore(self.at_rest)  # x87 and MMX, of which no state is random
        machine.reg_write_batch(list(zip(REGISTERS, state, strict=True)))
        machine.reg_write(x86.UC_X86_REG_EFLAGS, flags)
        machine.reg_write(x86.UC_X86_REG_FS_BASE, TLS + PAGE // 2)
        fault = None
        try:
            machine.emu_start(at, end, count=N_STEPS_MAX)
        except unicorn.UcError as error:
            fault = error.errno
        after = tuple(machine.reg_read_batch(REGISTERS))
        memory = {page: bytes(machine.mem_read(page, PAGE)) for page in self.pages}
        memory = {page: data for page, data in memory.items() if data != self._initial(page)}
        return fault, after, memory, machine.reg_read(x86.UC_X86_REG_EFLAGS)

    def _counter(self) -> int:
        return int.from_bytes(self.machine.mem_read(TLS + PAGE // 2 + FS_OFFSET, 8), "little")

    def _put(self, address: int, data: bytes) -> None:
        self.machine.mem_write(address, data)
        self.machine.ctl_remove_cache(address, address + len(data))

    def compare(self, window: lab.Window, n_states: int) -> None:
        """Count the window as executed, as skipped, or as a difference."""
        at = CODE + 0x400 + window.remainder
        patch = self._relocate(window, at)
        if patch is None:
            self.counts["skipped_out_of_reach"] += 1
            return
        self.n_windows += 1
        if self.n_windows % WINDOWS_PER_MACHINE == 0:  # unicorn 2.1.4 crashes where memory is taken away
            self._start_machine()
        self._put(CODE, b"\xcc" * PAGE)
        self._put(at, window.code)
        before = bytes(self.machine.mem_read(patch.word_address, len(patch.before)))
        assert before == bytes(patch.before)
        self._put(STUB, bytes(patch.stub)[: patch.n_stub])
        outcomes = {self._compare_once(window, patch, at) for _ in range(n_states)}
        worst = next(name for name in ("difference", "executed", "only_faults") if name in outcomes)
        self.counts[worst] += 1
        if worst == "difference":
            print("differs in the emulator:", window.code.hex(" "))

    def _compare_once(self, window: lab.Window, patch: Any, at: int) -> str:
        state, flags = self._state(), 0x202 | self.rng.getrandbits(12) & (FIVE_FLAGS | 1)
        end = at + len(window.code)
        n_before = self._counter()
        self._put(patch.word_address, bytes(patch.before))
        # The first one makes the memory appear.
        self._run(state, flags, at, end)
        bare = self._run(state, flags, at, end)
        n_bare = self._counter()
        self._put(patch.word_address, bytes(patch.after))
        moved = self._run(state, flags, at, end)
        seen = 0xFFFF if bare[0] is None else 0xFFFF & ~FIVE_FLAGS
        is_equal = bare[:3] == moved[:3] and bare[3] & seen == moved[3] & seen
        if not is_equal or n_bare != n_before or self._counter() != n_bare + 1:
            return "difference"
        return "executed" if bare[0] is None else "only_faults"

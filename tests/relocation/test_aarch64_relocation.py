"""Instructions of aarch64 that a branch replaces: the rules, and a sample of aarch64_proof.py."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path

import objects
import pytest

pytest.importorskip("unicorn")
pytest.importorskip("capstone")

import aarch64_lab
import aarch64_proof
import capstone

SEED, N_EMULATED = 1, 1000
FORKS = 2
"""MC_FORKS of decoder.h."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


@pytest.fixture(scope="module")
def arm_library() -> Path:
    """Debian's C library for aarch64, which its cross compiler brings."""
    found = Path("/usr/aarch64-linux-gnu/lib/libc.so.6")
    if not found.exists():
        pytest.skip("no libraries for aarch64 here")
    return found


def test_moved_instructions_of_aarch64_do_in_an_emulator_what_they_did(
    folder: Path, arm_library: Path
) -> None:
    ffi, library = aarch64_lab.load_library(folder)
    counts, words = aarch64_lab.admitted(ffi, library, arm_library)
    assert counts["admitted"] > 0.5 * counts["instructions"] > 50_000
    looked = aarch64_proof.look(words)
    assert looked["refused"] == 0
    assert looked["agreed"] > 0.99 * len(words)
    rng = random.Random(SEED)
    machine = aarch64_lab.Emulator(ffi, library, rng)
    for word in rng.sample(sorted(words), N_EMULATED):
        machine.compare(word, 1)
    assert machine.counts["difference"] == 0
    assert machine.counts["executed"] > 0.9 * N_EMULATED


# Words that a program may hold, and that must stay where they are.
STAY = {
    "b": 0x14000001, "bl": 0x94000001, "b.eq": 0x54000020, "cbz": 0xB4000020, "tbz": 0x36000020,
    "ret": 0xD65F03C0, "br": 0xD61F0000, "adr": 0x10000000, "adrp": 0x90000000, "ldr literal": 0x58000040,
    "ldr d literal": 0x5C000040, "prfm": 0xF9800000, "add sp": 0x910043FF, "mov from sp": 0x910003FD,
    "cmp sp": 0xF10043FF, "and sp": 0x927CEC1F, "stp sp!": 0xA9BF7BFD, "ldp sp post": 0xA8C17BFD,
    "str sp!": 0xF81F0FE0, "st1 sp post": 0x4C9F73E0, "ldxr": 0xC85F7C00, "stxr": 0xC8017C00,
    "ldaxp": 0xC87F8400, "clrex": 0xD5033F5F, "svc": 0xD4000001, "brk": 0xD4200000, "mrs": 0xD53BD040,
    "msr": 0xD51B4400, "dmb": 0xD5033BBF, "isb": 0xD5033FDF, "nop": 0xD503201F, "paciasp": 0xD503233F,
    "bti": 0xD503245F, "pacia": 0xDAC10000, "ldraa": 0xF8200400, "udf": 0,
    "madd behind a load (erratum 835769)": 0x9B020C20, "ldtr": 0xF8400800, "addvl": 0x043F503F,
    "movprfx": 0x0420BC00, "fadd of SVE": 0x65C00000, "smstart": 0xD503477F, "cpyfp": 0x19000400,
    "irg": 0x9AC01000,
}  # fmt: skip
MOVE = {
    "add": 0x91000421, "ldr": 0xF9400020, "str from sp": 0xF90007E0, "ldp from sp": 0xA9407BFD,
    "ldr x16": 0xF9400210, "fmadd": 0x1F420C20, "fmla of vectors": 0x4E62CC20, "ld1 post": 0x4CDF7000,
    "ldadd": 0xF8200020, "cas": 0xC8A07C20, "ldar": 0xC8DFFC00, "stlr": 0xC89FFC00, "csel": 0x9A820020,
    "cmp": 0xEB02003F, "mul": 0x9B027C20,
}  # fmt: skip


def test_rules_of_aarch64(folder: Path) -> None:
    _, library = aarch64_lab.load_library(folder)
    for name, word in STAY.items():
        assert not library.mc_a64_traits(word) & library.MC_MOVES, name
    for name, word in MOVE.items():
        assert library.mc_a64_traits(word) & library.MC_MOVES, name


def test_where_conditional_jumps_of_aarch64_lead(folder: Path) -> None:
    """As Capstone says."""
    _, library = aarch64_lab.load_library(folder)
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    decoder.detail = True
    rng = random.Random(1)
    kinds = {0x54000000: 0x00FFFFEF, 0x34000000: 0x81FFFFFF, 0x36000000: 0x81FFFFFF}
    for value, free in kinds.items():
        for _ in range(200):
            word = value | rng.getrandbits(32) & free
            (instruction,) = decoder.disasm(struct.pack("<I", word), 0x40000000)
            target = instruction.operands[-1].imm
            assert library.mc_a64_fork_bytes(word) == target - 0x40000000, hex(word)
            assert library.mc_a64_traits(word) & FORKS, hex(word)


def test_nothing_near_exclusives_of_aarch64_is_replaced(folder: Path) -> None:
    ffi, library = aarch64_lab.load_library(folder)
    patch, n_words, i_exclusive = ffi.new("mc_patch_code *"), 1024, 512
    words = [MOVE["add"]] * n_words
    words[i_exclusive] = STAY["stxr"]
    code = struct.pack(f"<{n_words}I", *words)

    def is_replaceable(i_word: int) -> bool:
        address = 0x1000 + 4 * i_word
        return library.mc_a64_relocate(code, len(code), 0x1000, address, 0x9000, 16, patch) == 0

    context = library.MC_CONTEXT_BYTES // 4
    found = [i for i in range(n_words) if is_replaceable(i)]
    assert found == [*range(i_exclusive - context + 1), *range(i_exclusive + context + 1, n_words)]


MISTAKES = {
    "the stack pointer is left where it is": (
        "RESTORE = (int32_t)0xa8c147f0",
        "RESTORE = (int32_t)0xa94047f0",
    ),
    "flags change": ("ADD_ONE = (int32_t)0x91000631", "ADD_ONE = (int32_t)0xb1000631"),
    "addresses that count from the instruction move": (
        "{0x1f000000, 0x10000000, PASSES",
        "{0x1f000000, 0x10000000, MOVES",
    ),
    "the stub ends elsewhere": ("out->address + MC_A64_BYTES", "out->address + 2 * MC_A64_BYTES"),
}


@pytest.mark.parametrize("title", MISTAKES)
def test_a_mistake_on_aarch64_would_be_found(tmp_path: Path, arm_library: Path, title: str) -> None:
    csrc = tmp_path / "csrc"
    for name in ("common", "agent/relocation"):
        shutil.copytree(objects.CSRC / name, csrc / name)
    right, wrong = MISTAKES[title]
    files = [file for file in (csrc / "agent/relocation").glob("aarch64_*.c") if right in file.read_text()]
    assert len(files) == 1, "the file reads otherwise now"
    files[0].write_text(files[0].read_text().replace(right, wrong, 1))
    ffi, library = aarch64_lab.load_library(tmp_path, csrc)
    words = aarch64_lab.admitted(ffi, library, arm_library)[1]
    rng = random.Random(SEED)
    machine = aarch64_lab.Emulator(ffi, library, rng)
    for word in rng.sample(sorted(words), N_EMULATED // 4):
        machine.compare(word, 1)
    assert machine.counts["difference"] > 0

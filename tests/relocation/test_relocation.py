"""Instructions that are replaced by a jump: the rules, and a sample of what relocation_proof.py runs."""

from __future__ import annotations

import itertools
import platform
import shutil
import subprocess
from pathlib import Path

import elf_functions
import objects
import once
import pytest
import relocation_lab as lab

TESTS = Path(__file__).resolve().parents[1] / "c/agent"
LOOPS = objects.of_csrc("agent/count/loops.c")
RULES = TESTS / "test_relocate.c"
N_STATES, SEED, N_WINDOWS, N_EMULATED = 2, 1, 20_000, 500

x86_only = pytest.mark.skipif(platform.machine() != "x86_64", reason="places are found on x86-64 only")
needs_capstone = pytest.mark.skipif(lab.capstone() is None, reason="no wheel capstone here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("relocation")


@x86_only
@needs_capstone
@pytest.mark.parametrize("name", ["test_relocate", "test_polling", "test_loops"])
def test_rules(folder: Path, name: str) -> None:
    program = lab.build(name, folder, objects.SANITIZED, [TESTS / f"{name}.c", *LOOPS])
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_without_capstone_nothing_is_replaceable(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared = once.folder(tmp_path_factory) / "objects"
    program = objects.program(tmp_path / "bare", [*lab.COUNT, RULES], objects.SANITIZED, shared)
    assert subprocess.run([program], timeout=60, check=False).returncode == lab.CANNOT


@pytest.fixture(scope="module")
def windows(folder: Path) -> bytes:
    """Of the C library and its neighbours, which every system has."""
    finder = lab.build_finder(folder)
    found = b""
    for path in mapped_libraries():
        counts, some = lab.find_windows(finder, path, 50_000)
        assert counts["admitted"] <= min(counts["aligned"], counts["movable"], counts["flags_dead"])
        found += some
    assert len(found) > 10_000
    return found


def mapped_libraries() -> list[Path]:
    names = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "r-xp" in line}
    wanted = ("libc.so", "libm.so", "libstdc++", "_multiarray_umath", "libcrypto")
    return sorted(Path(name) for name in names if any(part in name for part in wanted))


def run_windows(runner: Path, windows: bytes) -> tuple[dict[str, int], str]:
    words = [str(runner), str(N_STATES), str(SEED), str(N_WINDOWS)]
    done = subprocess.run(words, input=windows, capture_output=True, timeout=250, check=False)
    if done.returncode == 3:
        pytest.skip("a processor without AVX2, or addresses that others have")
    assert done.returncode in (0, 1), done.stderr
    return lab.parse_counts(done.stdout), done.stderr.decode()


@x86_only
@needs_capstone
def test_relocated_code_does_on_this_processor_what_it_did(folder: Path, windows: bytes) -> None:
    counts, told = run_windows(lab.build_runner(folder), windows)
    assert counts["differences"] == 0, told
    assert counts["executed"] > 0.9 * counts["distinct"] > 1000
    assert counts["rip_relative"] > 100


@x86_only
@needs_capstone
def test_relocated_code_does_in_an_emulator_what_it_did(folder: Path, windows: bytes) -> None:
    pytest.importorskip("unicorn")
    import random

    import emulate

    rng = random.Random(SEED)
    machine = emulate.Emulator(folder, rng)
    known = [window for window in lab.parse_windows(windows) if machine.is_known(window)]
    for window in rng.sample(known, N_EMULATED):
        machine.compare(window, N_STATES)
    assert machine.counts["difference"] == 0
    assert machine.counts["executed"] > 0.9 * N_EMULATED


MISTAKES = {
    "operands move along": [("relocate.c", "if (!instruction->rip_at)", "if (1)")],
    "an immediate is forgotten": [
        (
            "relocate.c",
            "address + instruction->n_bytes, target)",
            "address + instruction->rip_at + 4u, target)",
        )
    ],
    "a move writes all flags": [
        ("instructions.h", "INTEGER(MOV)", "KILLER(MOV)"),
        ("encoding.c", "    case 0x84: /* test */\n", "    case 0x89:\n    case 0x8b:\n    case 0x84:\n"),
    ],
    "Capstone is believed": [("encoding.c", "return encoding->opcode == 0x2e ||", "return 1 ||")],
}


@x86_only
@needs_capstone
@pytest.mark.parametrize("title", MISTAKES)
def test_a_mistake_would_be_found(tmp_path: Path, title: str) -> None:
    csrc = tmp_path / "csrc"
    for folder in ("common", "agent/relocation"):
        shutil.copytree(objects.CSRC / folder, csrc / folder)
    for name, right, wrong in MISTAKES[title]:
        file = csrc / "agent/relocation" / name
        text = file.read_text()
        assert right in text, f"{name} reads otherwise now"
        file.write_text(text.replace(right, wrong, 1))
    finder, runner = lab.build_finder(tmp_path, csrc), lab.build_runner(tmp_path, csrc)
    found = b"".join(lab.find_windows(finder, path, 50_000)[1] for path in mapped_libraries())
    counts, _ = run_windows(runner, found)
    assert counts["differences"] > 0


@x86_only
@needs_capstone
@pytest.mark.skipif(shutil.which("objdump") is None, reason="no objdump here")
def test_instructions_begin_where_another_decoder_says(folder: Path) -> None:
    """Of those that a walk passes: what it does not know ends it."""
    ffi, library = lab.load_library(folder)
    decoder, it = library.mc_decoder_new(), ffi.new("mc_instruction *")
    n_known = n_all = 0
    for path in mapped_libraries():
        code = elf_functions.read_code(path)[0]
        for begin, end in code.functions[:: max(1, len(code.functions) // 40)]:
            theirs = lab.boundaries_by_objdump(path, begin, end)
            text = code.text[begin - code.base : end - code.base]
            for at, following in itertools.pairwise(theirs):
                rest = text[at - begin :]
                status = library.mc_decode(decoder, rest, len(rest), at, it)
                n_all += 1
                if status != 0 or not it.traits:
                    continue
                n_known += 1
                assert at + it.n_bytes == following, f"{path} {at:x}"
    library.mc_decoder_free(decoder)
    assert n_known > 0.7 * n_all > 1000

"""C files that make system calls younger than the headers that they may be compiled with."""

import subprocess
from pathlib import Path

import objects
import pytest

from mpicoloc import config

CSRC = Path(__file__).resolve().parents[3] / "csrc"
YOUNG = ("SYS_pidfd_open", "SYS_close_range")


def test_all_such_files_are_tried():
    makers = {
        str(path.relative_to(CSRC))
        for path in CSRC.rglob("*.c")
        if any(name in path.read_text(encoding="utf-8") for name in YOUNG)
    }
    assert makers == {"keeper/keeper.c", "spank/notes.c"}


@pytest.mark.parametrize("source", ["keeper/keeper.c", "spank/notes.c"])
def test_system_calls_that_the_headers_lack(source, tmp_path):
    header = tmp_path / "sys" / "syscall.h"
    header.parent.mkdir()
    header.write_text("#include_next <sys/syscall.h>\n" + "".join(f"#undef {name}\n" for name in YOUNG))
    (tmp_path / "options_gen.h").write_text(config.c_table())
    words = [*objects.compiler(), "-std=gnu11", f"-I{tmp_path}", f"-I{CSRC}", "-fsyntax-only", CSRC / source]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr

"""Sources that use no MPI are compiled once for all libraries, the others once for each MPI."""

import ctypes
from collections import Counter
from pathlib import Path

import pytest

from mpicoloc.pmpi import build_shim

SOURCES = {
    "plain.c": '#include "plain.h"\nint plain(void) { return PLAIN; }\n',
    "plain.h": "#define PLAIN 1\n",
    "direct.c": "#include <mpi.h>\nint direct(void) { return VENDOR; }\n",
    "deep.c": '#include "deep.h"\nint deep(void) { return VENDOR; }\n',
    "deep.h": '#include "deeper.h"\n',
    "deeper.h": "#include <mpi.h>\n",
}
VENDORS = {"one": 1, "two": 2}


@pytest.fixture
def build(tmp_path):
    """Build the library of a vendor; returns what its functions say and what was compiled, by file."""
    (sources := tmp_path / "csrc").mkdir()
    for name, text in SOURCES.items():
        (sources / name).write_text(text)
    log, compiler = tmp_path / "log", tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\necho "$*" >>{log}\nexec cc "$@"\n')
    compiler.chmod(0o755)

    def build(vendor, *flags):
        (include := tmp_path / vendor).mkdir(exist_ok=True)
        (include / "mpi.h").write_text(f"#define VENDOR {VENDORS[vendor]}\n")
        log.write_text("")
        files, out = sorted(sources.glob("*.c")), tmp_path / f"lib{vendor}-{len(list(tmp_path.iterdir()))}.so"
        words = ["-fPIC", "-shared", *flags, f"-I{sources}", f"-I{include}"]
        build_shim.compile_and_link([str(compiler)], words, files, out, [], tmp_path / "kept")
        library = ctypes.CDLL(str(out))
        compiled = Counter(
            Path(word).stem
            for line in log.read_text().splitlines()
            for word in line.split()
            if word[-2:] == ".c"
        )
        return [getattr(library, path.stem)() for path in files], compiled

    build.sources = sources
    return build


def test_what_knows_no_mpi_is_compiled_once(build):
    assert build("one") == ([1, 1, 1], {"deep": 1, "direct": 1, "plain": 1})
    assert build("two") == ([2, 2, 1], {"deep": 1, "direct": 1})


def test_other_flags_and_changed_headers_are_compiled_again(build):
    build("one")
    assert build("one", "-O1")[1]["plain"] == 1
    (build.sources / "plain.h").write_text("#define PLAIN 7\n")
    assert build("one") == ([1, 1, 7], {"deep": 1, "direct": 1, "plain": 1})

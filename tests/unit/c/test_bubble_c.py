"""The memory hog under the sanitizers: addresses, undefined behaviour, leaks."""

from __future__ import annotations

import objects
from c_tests import build, run

from mpicoloc.pmpi import sources

LIBRARY = tuple(path for path in sources.c_files(objects.CSRC, sources.BUBBLE) if path.name != "main.c")


def test_the_bubble_keeps_its_limits_and_ends_when_told(tmp_path_factory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    run(build(tmp_path_factory, "test_bubble", LIBRARY, objects.SANITIZED), tmp_path)

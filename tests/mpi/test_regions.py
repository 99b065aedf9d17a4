"""MPI_Pcontrol: the application's own units of work and named regions, in three languages."""

import sys
from pathlib import Path

import pytest
import shimlab

from mpicoloc import regions
from mpicoloc.pmpi import contract

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)


def _regions(segment):
    rows = segment["lanes"][0]["head"]["regions"]
    return {row["name"].decode(): int(row["n"]) for row in rows if row["n"]}


def test_header(family, shm_dir):
    program = family.compile("regions.c")
    assert shimlab.launch(family, 2, program).code == 0
    assert shimlab.launch(family, 2, program, preload=family.shim).code == 0
    found = shimlab.segments(shm_dir)
    assert sorted(found) == [0, 1]
    for segment in found.values():
        assert _regions(segment) == {"solve": 1, "exchange": 2}
        assert shimlab.counter(segment, "n_units") == 7
        assert shimlab.counts(segment, family.shim)["Pcontrol"] == 10
        rows = {row["name"]: row for row in segment["lanes"][0]["head"]["regions"]}
        solve, exchange = rows[b"solve"], rows[b"exchange"]
        assert solve["time_ns"] >= exchange["time_ns"] >= exchange["mpi_ns"] > 0


@pytest.mark.parametrize("style", shimlab.FORTRAN_STYLES)
def test_fortran_has_units(family, shm_dir, style):
    program = family.compile("regions.F90", shimlab.FORTRAN_STYLES[style])
    assert shimlab.launch(family, 2, program, preload=family.shim).code == 0
    for segment in shimlab.segments(shm_dir).values():
        assert shimlab.counter(segment, "n_units") == 2


def test_python(make_mpi, shm_dir):
    family = make_mpi("own")
    command = (sys.executable, shimlab.source_file("regions.py"))
    assert shimlab.launch(family, 2, *command).code == 0
    assert shimlab.launch(family, 2, *command, preload=family.shim).code == 0
    found = shimlab.segments(shm_dir)
    assert sorted(found) == [0, 1]
    for segment in found.values():
        assert _regions(segment) == {"step": 4}
        assert shimlab.counter(segment, "n_units") == 8


def test_without_the_library_nothing_happens():
    with regions.region("anything"):
        regions.units()


def test_levels_are_those_of_the_contract():
    text = (Path(shimlab.paths.include_dir()) / "mpicoloc_app.h").read_text()
    for name in ("UNIT", "UNITS", "BEGIN", "END"):
        level = getattr(contract, f"MC_PCONTROL_{name}")
        assert f"MPICOLOC_{name} = {level:#x}" in text
        assert getattr(regions, name, level) == level

"""Every function of mpi.h that moves data or waits for others has a case, in C and in Fortran."""

import re

import conf_lab
import pytest

# Functions without a case, and why; patterns of names without MPI_.
LOCAL = {
    r"(Type|Group|Info|Op|Errhandler|Keyval|Attr)_\w+|Address|Pack\w*|Unpack\w*|(Add_)?[eE]rror_\w+": "local",
    r"(Comm|Win|File|Session)_(create|free|call|get|set)_(errhandler|keyval|attr|name|info)": "local",
    r"\w+_delete_attr": "local",
    r"Get_(address|count|count_c|elements|elements_c|elements_x|processor_name)|Status_\w+": "local",
    r"Remove_error_\w+|Session_get_(nth_pset|pset_info)": "local",
    r"Query_thread|Is_thread_main|Initialized|Finalized|Comm_get_parent|Pcontrol": "local",
    r"Init|Init_thread|Finalize|Abort": "the life of a program: test_wrappers.py, tests/e2e",
    r"(Publish|Unpublish|Lookup)_name": "need a name server beside the job",
    r"Comm_join": "needs a socket that the application made",
    r"Comm_(spawn\w*|accept|connect)|(Open|Close)_port": "test_spawn.py",
    r"Grequest_\w+|Register_datarep(_c)?": "call back into the application and move nothing",
    r"MPIX_\w+": "extensions of one library: test_world.py",
    r"Session_(attach|detach|flush|iflush)_buffer(_c)?|Comm_i?flush_buffer": "no library here does it",
}
# Cases in C only.
NO_FORTRAN = {
    r"\w+_c": "mpif.h and use mpi have no large counts; mpi_f08 has them where its library has",
    r"Alloc_mem|Free_mem": "their pointers differ in every Fortran",
    r"Comm_\w*_buffer": "no Fortran library here has them",
}


def _without(names, patterns):
    return sorted(name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns))


def _covered(language):
    found = (case.functions for case in conf_lab.all_cases() if language in case.languages)
    return frozenset().union(*found)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", "abi", "own", "openmpi5"])
def test_every_function_of_the_header_has_a_case(make_mpi, mpi):
    library = conf_lab.library(make_mpi(mpi))
    wrapped = {name for name in library.prototypes if library.is_wrapped(name)}
    assert not _without(wrapped - _covered("c"), LOCAL)


def test_every_case_of_c_is_one_of_fortran():
    for language in ("mpif_h", "use_mpi", "use_mpi_f08"):
        assert not _without(_covered("c") - _covered(language), NO_FORTRAN)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", "abi", "own", "openmpi5"])
def test_every_function_with_a_case_is_called(make_mpi, mpi):
    library = conf_lab.library(make_mpi(mpi))
    run = frozenset().union(*(case.functions for case in library.cases(conf_lab.all_cases(), "c")))
    assert not (_covered("c") & library.prototypes.keys()) - run


def test_no_excuse_is_idle(make_mpi):
    names = set()
    for mpi in ("openmpi", "mpich", "own"):
        names |= conf_lab.library(make_mpi(mpi)).prototypes.keys()
    for pattern in LOCAL:
        assert any(re.fullmatch(pattern, name) for name in names), pattern

"""Jobs in which only some of the ranks have the library preloaded run as without it, and say so once."""

import os
import re
import subprocess

import pytest
import shimlab

pytestmark = pytest.mark.timeout(2 * shimlab.TIME_LIMIT_S)


# Without them a rank cannot know how many the launcher started on this node, as on another node.
SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def launch_in_parts(family, program, *parts):
    """Run `program` with the number of ranks and the library (or None) of each part."""
    words = []
    for n_ranks, shim in parts:
        prefix = ["env", f"LD_PRELOAD={shim}"] if shim else []
        words += [":", "-n", n_ranks, *prefix, program, "seven", "0"]
    return shimlab.run([*family.mpirun, *words[1:]])


def with_fault(family, fault, program):
    """Words that run the program with `faults.c` behind the library."""
    faults = family.compile_library("faults.c")
    return ["sh", "-c", f"FAULT={fault} LD_PRELOAD=$LD_PRELOAD:{faults} exec {program} seven 0"]


def test_a_rank_that_cannot_make_its_file_goes_on_with_the_others(family, shm_dir):
    """The others miss it and go on without the library; it must not wait for them in a collective call."""
    program = family.compile("../../e2e/programs/life.c")
    bare = shimlab.launch(family, 3, program, "seven", "0")
    done = shimlab.launch(family, 3, *with_fault(family, "file", program), preload=family.shim)
    assert (done.lines, done.code) == (bare.lines, bare.code)
    said = [line for line in done.stderr.splitlines() if "mpicoloc:" in line]
    assert any("a rank cannot make its file in the shared-memory folder" in line for line in said)
    assert any("preloaded in 2 of the 3 ranks" in line for line in said)
    assert list(shm_dir.iterdir()) == []


FORGES = """
until there=$(ls {folder}/*.here 2>/dev/null | head -n 1) && [ -n "$there" ]; do sleep 0.02; done
: >{folder}/other && chown {other} {folder}/other && mv {folder}/other "${{there%.*.here}}.$$.here"
exec {program} seven 0
"""
"""Of a rank without the library, in whose name another user leaves a file."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a file of another user")
def test_a_file_of_another_user_is_no_rank(family, shm_dir, other_uid=54321):
    """Ranks that believed it would wait in MPI_Init for one that is not there."""
    program = family.compile("../../e2e/programs/life.c")
    forges = FORGES.format(folder=shm_dir, other=other_uid, program=program)
    words = ["-n", 1, "sh", "-c", forges, ":", "-n", 2, "env", f"LD_PRELOAD={family.shim}"]
    done = shimlab.run([*family.mpirun, *words, program, "seven", "0"])
    bare = shimlab.launch(family, 3, program, "seven", "0")
    assert (done.lines, done.code) == (bare.lines, bare.code)
    assert "preloaded in 2 of the 3 ranks of this node" in done.stderr
    (forged,) = shm_dir.iterdir()
    assert forged.stat().st_uid == other_uid


def test_who_waits_long_looks_rarely(family, shm_dir):
    """A look costs as much as the folder has files, and every rank of the node looks."""
    program = family.compile("../../e2e/programs/life.c")
    words = ["-n", 1, program, "seven", "0", ":", "-n", 2, "env", f"LD_PRELOAD={family.shim}"]
    done = shimlab.run([*family.mpirun, *words, *with_fault(family, "count", program)])
    n_looks = len(re.findall(r"(?m)^look$", done.stderr))
    assert 4 < n_looks < 2 * 120, "5,000 if both looked every 2 ms for 5 s"


def test_a_cancelled_send_ends_as_without_the_library(make_mpi, shm_dir):
    """MPICH 5.0.2 reads there what a request was used for before: by us, if we made one in MPI_Init.

    It crashes, or aborts, whichever rank is first.
    """
    family = make_mpi("own")
    program = family.compile("cancelled_send.c")
    bare = shimlab.launch(family, 2, program)
    done = shimlab.launch(family, 2, program, preload=family.shim)
    assert (done.lines, done.code == 0) == (bare.lines, bare.code == 0)


def test_a_job_with_the_library_in_some_ranks_only(family, shm_dir):
    program = family.compile("../../e2e/programs/life.c")
    bare = launch_in_parts(family, program, (1, None), (2, None))
    done = launch_in_parts(family, program, (1, None), (2, family.shim))
    assert (done.lines, done.code) == (bare.lines, bare.code)
    said = [line for line in done.stderr.splitlines() if "mpicoloc:" in line]
    assert len(said) == 1 and "preloaded in 2 of the 3 ranks of this node" in said[0]
    assert list(shm_dir.iterdir()) == []


def test_a_job_with_the_library_in_all_ranks_of_two_parts(family, shm_dir):
    program = family.compile("../../e2e/programs/life.c")
    done = launch_in_parts(family, program, (1, family.shim), (2, family.shim))
    assert "mpicoloc" not in done.stderr
    assert sorted(shimlab.segments(shm_dir)) == [0, 1, 2]
    assert not list(shm_dir.glob("*.here"))


def test_a_job_without_the_library_on_other_nodes_is_told_why_it_waits(family, shm_dir):
    program = family.compile("../../e2e/programs/life.c")
    hidden = [word for name in SIZES for word in ("-u", name)]
    words = ["-n", 1, "env", *hidden, f"LD_PRELOAD={family.shim}", program, ":", "-n", 1, program]
    with subprocess.Popen(
        [str(word) for word in [*family.mpirun, *words]], stderr=subprocess.PIPE, text=True
    ) as job:
        line = next((line for line in job.stderr if "mpicoloc" in line), "")
        job.terminate()
        try:
            job.wait(20)
        except subprocess.TimeoutExpired:
            job.kill()
    assert "waits for ranks without LD_PRELOAD" in line

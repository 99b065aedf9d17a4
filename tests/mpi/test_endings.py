"""Jobs inside jobs, and programs that end in their own way: nothing differs from the bare run."""

import shlex
from dataclasses import replace

import pytest
import reallab

pytestmark = [
    pytest.mark.timeout(3 * reallab.LIMIT_S),
    pytest.mark.parametrize("mpi", ["openmpi", "mpich", "own"], indirect=True),
]

HUNG_S = 30  # of what the bare program does in a second: some libraries hang in what they cannot do

# Open MPI's mpirun takes itself for a rank where it finds the variables of one.
CLEAN = (
    "for name in $(env | sed -n 's/^\\(\\(OMPI\\|PMIX\\|ORTE\\|PMI\\|HYDI\\)_[A-Za-z0-9_]*\\)=.*/\\1/p'); do "
)
CLEAN += "case $name in *ALLOW_RUN*) ;; *) unset $name;; esac; done; "


def inner_job(mpi, program):
    return CLEAN + shlex.join([*mpi.mpirun, "-n", "2", program, "seven", "0.1"]) + " >&2"


@pytest.mark.parametrize("way", reallab.WAYS)
def test_a_job_that_a_rank_starts_is_a_job_of_its_own(mpi, way, shm_dir, tmp_path):
    outer = mpi.compile("nested.c")
    inner = mpi.compile("../../e2e/programs/life.c")
    done = reallab.same(mpi, way, 2, outer, inner_job(mpi, inner), folder=tmp_path)
    assert "rank 0 of 2: the other job gave 1792" in done.lines
    profiles = {path.name: reallab.profile(path) for path in tmp_path.glob("out*.h5")}
    assert len(profiles) == 2
    nested = next(profile for name, profile in profiles.items() if name != "out.h5")
    for profile in profiles.values():
        assert not profile.partial
        assert profile.job.n_ranks == 2
    assert "nested" in profiles["out.h5"].job.command
    assert "life" in nested.job.command
    assert profiles["out.h5"].job.id == "job" != nested.job.id


@pytest.mark.parametrize("way", reallab.WAYS)
def test_ranks_that_are_shell_scripts_with_a_job_inside(mpi, way, shm_dir, tmp_path):
    """The ranks themselves never use MPI: each of their two jobs has its own profile."""
    inner = mpi.compile("../../e2e/programs/life.c")
    script = inner_job(mpi, inner) + '; echo "rank $?"'
    if way == "wrap":
        # wrap looks for MPI in what it starts, and for a script that knows that it is a rank
        script = f": {inner} $PMI_RANK; {script}"
    done = reallab.same(mpi, way, 2, "sh", "-c", script, folder=tmp_path)
    assert done.lines == ["rank 7", "rank 7"]


@pytest.mark.parametrize("way", reallab.WAYS)
def test_ranks_started_by_a_shell_are_the_jobs_own(mpi, way, shm_dir, tmp_path):
    program = mpi.compile("../../e2e/programs/life.c")
    done = reallab.launch(mpi, way, 2, "sh", "-c", f"{program} seven 0.1; exit $?", folder=tmp_path)
    # Hydra kills the other rank once one has ended with an error, and on a busy machine tells that instead.
    assert done.code == 7 or (done.code == 9 and mpi.abi != "openmpi"), done.stderr
    profile = reallab.profile(tmp_path / "out.h5")
    assert (profile.partial, profile.job.n_ranks, profile.job.mode) == (False, 2, way)


def spawning(mpi, folder):
    """The program that spawns, and what it does without mpicoloc."""
    program = mpi.compile("spawn.c")
    bare = reallab.bare(mpi, 2, program, folder=folder, limit_s=HUNG_S)
    if bare.code != 0:
        pytest.skip("this MPI library cannot spawn here, with and without mpicoloc")
    return program, bare


@pytest.mark.parametrize("way", reallab.WAYS)
def test_parents_and_spawned_children_see_the_same(mpi, way, shm_dir, tmp_path):
    program, bare = spawning(mpi, tmp_path)
    done = reallab.launch(mpi, way, 2, program, folder=tmp_path)
    assert (done.lines, done.code) == (bare.lines, bare.code), done.stderr
    assert sum("child: others 2 all 4 sum 4" in line for line in bare.lines) == 2
    assert reallab.profile(tmp_path / "out.h5").job.n_ranks == 2


def test_spawned_children_with_the_library_are_a_job_of_their_own(mpi, monkeypatch, shm_dir, tmp_path):
    """Launchers give them the environment of mpirun."""
    program, bare = spawning(mpi, tmp_path)
    if mpi.abi == "openmpi" and mpi.version >= (6,):
        pytest.skip("its mpirun gives spawned children no variables of -x")
    shim = mpi.shim
    given = ["-x", f"LD_PRELOAD={shim}"] if mpi.abi == "openmpi" else ["-genv", "LD_PRELOAD", shim]
    exporting = replace(mpi, mpirun=(*mpi.mpirun, *given))
    done = reallab.launch(exporting, None, 2, program, folder=tmp_path)
    assert (done.lines, done.code) == (bare.lines, bare.code), done.stderr
    profiles = {path.name: reallab.profile(path) for path in tmp_path.glob("out*.h5")}
    assert any("-spawn-" in name for name in profiles)
    assert [profile.job.n_ranks for profile in profiles.values()] == [2, 2]
    assert len({profile.job.id for profile in profiles.values()}) == 2

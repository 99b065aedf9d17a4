"""`mpicoloc run` as a user meets it: the right mpirun, where the profile is, the command to go on with."""

import os
import re
import shlex
import subprocess
import sys

import jobs
import pytest

import mpicoloc
from mpicoloc.profile import hdf5

MPICOLOC = [sys.executable, "-m", "mpicoloc"]


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request, tmp_path):
    (tmp_path / "bin").mkdir()
    return jobs.need_mpi(request.param, tmp_path / "bin")


def call(command, folder, **env):
    env = {**os.environ, **env}
    limits = {"timeout": jobs.LIMIT_S, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, **limits)


def own_lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("mpicoloc")]


@pytest.mark.parametrize("words", ["sh -c bin/life seven 0.2", "job.sh", "sh -c cd bin && ./life seven 0.2"])
def test_a_shell_is_started_by_the_mpirun_of_its_program(mpi, tmp_path, shm_dir, words):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n# runs the program\ncd bin || exit\nexec ./life seven 0.2\n")
    script.chmod(0o755)
    command = ["sh", "-c", words.removeprefix("sh -c ")] if " " in words else [f"./{words}"]
    done = call([*MPICOLOC, "run", "-n", "2", *command], tmp_path)
    assert done.returncode == 7, done.stderr
    assert "computed with 2 ranks" in done.stdout
    [line] = own_lines(done)
    profile = re.fullmatch(r"mpicoloc: profile (.*\.h5)", line)[1]
    assert os.path.dirname(profile) == str(tmp_path) and hdf5.read(profile).job.n_ranks == 2
    jobs.assert_nothing_left(shm_dir)


def test_where_the_profile_is_can_be_kept_back(mpi, tmp_path):
    done = call([*MPICOLOC, "run", "-q", "-n", "2", mpi.program, "seven", "0.1"], tmp_path)
    assert done.returncode == 7 and own_lines(done) == []
    assert len(list(tmp_path.glob("mpicoloc-*.h5"))) == 1


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [(None, 2, "topology 'tree.yaml' cannot be read"), ("levels: many\n", 3, "tree.yaml")],
)
def test_a_topology_that_cannot_be_read_is_told_before_the_job_starts(mpi, tmp_path, text, code, reason):
    if text is not None:
        (tmp_path / "tree.yaml").write_text(text)
    done = call([*MPICOLOC, "run", "--topology", "tree.yaml", "-n", "2", mpi.program, "seven"], tmp_path)
    assert done.returncode == code and reason in done.stderr
    assert not done.stdout and not list(tmp_path.glob("*.h5"))


def test_two_jobs_with_one_name_for_their_profiles_keep_both(mpi, tmp_path, shm_dir):
    """Each names its own. A file of an earlier job is replaced."""
    command = [*MPICOLOC, "run", "-n", "1", "--trace", "all", "--out", "same.h5", mpi.program, "seven"]
    pipes = {"stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    both = [subprocess.Popen([*command, f"{s}"], **pipes) for s in (2.0, 2.5)]
    lines = [other.communicate(timeout=jobs.LIMIT_S)[1] for other in both]
    named = [re.search(r"^mpicoloc: .*(?:profile|it is in) (\S*\.h5)$", line, re.M)[1] for line in lines]
    assert sorted(named) == sorted(map(str, tmp_path.glob("*.h5"))) and len(set(named)) == 2, lines
    ids = [hdf5.read(path).job.id for path in named]
    names = ["same.h5", *(f"same-{job_id}.h5" for job_id in ids)]
    assert {f"{tmp_path}/{name}" for name in names} > {*named} > {f"{tmp_path}/same.h5"}, lines
    assert ids[0] != ids[1] and all(mpicoloc.open(path).trace.n_events for path in named)
    assert call([*command, "0.1"], tmp_path).returncode == 7
    assert len(list(tmp_path.glob("*.h5"))) == 2 and hdf5.read(tmp_path / "same.h5").job.id not in ids
    jobs.assert_nothing_left(shm_dir)


def test_the_wrong_mpirun_is_told_with_what_helps(mpi, tmp_path):
    """No word of the shell's text names the program, so the mpirun that was given decides."""
    other = next((jobs.commands(name) for name in ("mpich", "openmpi") if name != mpi.name), None)
    if other is None:
        pytest.skip("one MPI here")
    text = "cd bin; a=life; ./$a seven 0.1"
    done = call([*MPICOLOC, "run", "--mpirun", other[1], "-n", "2", "sh", "-c", text], tmp_path)
    [advice] = [line for line in own_lines(done) if "another MPI" in line]
    assert "`mpicoloc run --mpirun PATH ...`" in advice and "./life uses /" in advice
    done = call([*MPICOLOC, "run", "--mpirun", mpi.mpirun, "-n", "2", "sh", "-c", text], tmp_path)
    assert done.returncode == 7 and "computed with 2 ranks" in done.stdout


def test_the_command_that_is_shown_works_as_it_stands(mpi, tmp_path, shm_dir):
    """Also where all processors have a rank, which is why a command without its flags fails."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    bound = ["taskset", "-c", ",".join(map(str, cores))]
    options = ["--job-id", "a b", "--out", "shown.h5"]
    asked = [*MPICOLOC, "run", "--show-command", *options, "-n", str(len(cores)), "--mpirun", mpi.mpirun]
    shown = call([*asked, mpi.program, "seven", "0.2"], tmp_path)
    assert shown.returncode == 0 and shown.stderr == "" and shown.stdout.count("\n") == 1
    assert list(tmp_path.glob("*.h5")) == []
    words = shlex.split(shown.stdout)
    assert words[0] == mpi.mpirun and "mpicoloc.wrap" in words
    done = call([*bound, "sh", "-c", shown.stdout], tmp_path)
    assert done.returncode == 7, done.stderr
    profile = hdf5.read(tmp_path / "shown.h5")
    assert profile.job.n_ranks == len(cores) and profile.job.id == "a b"
    jobs.assert_nothing_left(shm_dir)

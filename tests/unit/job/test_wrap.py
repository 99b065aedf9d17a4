"""Program, arguments and environment of each rank under every launcher, before any MPI call."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import objects
import pytest

from mpicoloc import config
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.job import target, wrap

OPEN_MPI_4 = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
              "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1", "PMIX_NAMESPACE": "1896873985",
              "OMPI_MCA_ess_base_jobid": "1896873985"}  # fmt: skip
OPEN_MPI_5 = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "3", "PMIX_RANK": "1",
              "PMIX_NAMESPACE": "prterun-vm-10047@1"}  # fmt: skip
OPEN_MPI_6 = {**OPEN_MPI_5, "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_NODE_RANK": "2",
              "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}  # fmt: skip
HYDRA = {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3", "PMI_RANK": "1", "PMI_SIZE": "3", "PMI_FD": "6"}
SLURM = {"SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2),3", "SLURM_NODEID": "2",
         "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "PMIX_RANK": "5"}  # fmt: skip
MVAPICH = {"MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "3"}
LAST = {
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
    "MV2_COMM_WORLD_LOCAL_RANK",
}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (OPEN_MPI_4, ("Open MPI", 1, 3, "openmpi")),
        (OPEN_MPI_5, ("Open MPI", 1, 3, "openmpi")),
        (OPEN_MPI_6, ("Open MPI", 1, 3, "openmpi")),
        (HYDRA, ("Hydra", 1, 3, "mpich")),
        (MVAPICH, ("MVAPICH", 1, 3, "mpich")),
        (SLURM, ("Slurm", 1, 3, None)),
        ({**HYDRA, "SLURM_LOCALID": "0", "SLURM_JOB_ID": "77"}, ("Hydra", 1, 3, "mpich")),
        ({"SLURM_LOCALID": "0", "SLURM_JOB_ID": "77"}, (None, 0, 1, None)),
        ({"PMIX_RANK": "0"}, ("PMIx", 0, 1, None)),
        ({}, (None, 0, 1, None)),
    ],
    ids=["openmpi4", "openmpi5", "openmpi6", "hydra", "mvapich", "slurm", "hydra in a batch job",
         "batch script", "pmix", "none"],
)  # fmt: skip
def test_place(env, expected):
    assert wrap.place_of(env) == expected


def test_on_one_node_ranks_have_the_numbers_of_the_world(app):
    plan = wrap.plan(app, {}, OPEN_MPI_6, wrap.place_of(OPEN_MPI_6))
    names = ("LOCAL_RANK", "NODE_RANK", "LOCAL_SIZE", "SIZE")
    assert [plan.env[f"OMPI_COMM_WORLD_{name}"] for name in names] == ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    "env",
    [{**HYDRA, "MPI_LOCALRANKID": "x"}, {**HYDRA, "MPI_LOCALRANKID": "3"},
     {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "many"}],
)  # fmt: skip
def test_nonsense_of_a_launcher_is_refused(env):
    with pytest.raises(UsageError):
        wrap.place_of(env)


@pytest.mark.parametrize("env", [OPEN_MPI_4, OPEN_MPI_5, SLURM, HYDRA])
def test_ranks_of_a_job_agree_on_a_key_fit_for_a_file_name(env):
    keys = {wrap.key({**env, **{name: str(i) for name in LAST & env.keys()}}) for i in range(3)}
    assert len(keys) == 1
    key = keys.pop()
    assert 0 < len(key) < 64 and "/" not in key and key == key.strip()


def test_jobs_differ_in_their_key():
    other = {**OPEN_MPI_5, "PMIX_NAMESPACE": "prterun-vm-10048@1"}
    assert wrap.key(OPEN_MPI_5) != wrap.key(other)


def test_a_job_inside_another_does_not_take_its_key():
    assert wrap.key({**OPEN_MPI_5, "MPICOLOC_KEY": "given"}) == "given"
    assert wrap.key({**OPEN_MPI_5, "MPICOLOC_KEY": "given", "MPICOLOC_WRAPPED": "1"}) != "given"


@pytest.fixture
def app(monkeypatch):
    """An application of Open MPI, without one installed."""
    found = target.Target("/opt/app", "openmpi", "/opt/mpi/lib/libmpi.so.40", "/lib/libmpicoloc-openmpi.so")
    monkeypatch.setattr(target, "find", lambda *_: found)
    return ["app", "-x"]


def plan_of(app, env, rank, **more):
    names = {name: str(rank) for name in LAST & env.keys()}
    env = {**env, **names, **more}
    return wrap.plan(app, {}, env, wrap.place_of(env))


@pytest.mark.parametrize("env", [OPEN_MPI_4, OPEN_MPI_5, HYDRA, SLURM, MVAPICH])
def test_the_last_rank_of_a_node_coordinates(app, env):
    for rank in (0, 1):
        plan = plan_of(app, env, rank, LD_PRELOAD="/lib/other.so")
        assert (plan.file, plan.argv) == ("/opt/app", app)
        assert plan.env["LD_PRELOAD"] == "/lib/libmpicoloc-openmpi.so:/lib/other.so"
        assert plan.env[config.WRAPPED_ENV] == plan.env[config.COORDINATOR_ENV] == "1"
        assert plan.env[config.PYTHON_ENV] == sys.executable
        assert plan.note is None
    last = plan_of(app, env, 2, LD_PRELOAD="/lib/other.so")
    assert last.is_coordinator and last.file == sys.executable
    assert last.argv[-1] == "mpicoloc.job.coordinator"
    assert "LD_PRELOAD" not in last.env
    assert last.env["MPI4PY_LIBMPI"] == "/opt/mpi/lib/libmpi.so.40"
    assert "MPI4PY_MPIABI" not in last.env, "mpi4py would then not load the library named by its path"
    assert last.env[config.KEY_ENV] == plan.env[config.KEY_ENV]
    assert last.env["OPENBLAS_NUM_THREADS"] == "1" and "OPENBLAS_NUM_THREADS" not in plan.env


def test_the_coordinator_finds_mpich_under_the_name_that_mpi4py_asks_for(monkeypatch, tmp_path):
    library = tmp_path / "libmpich.so.12"
    library.write_text("")
    monkeypatch.setattr(
        target, "find", lambda *_: target.Target("/opt/app", "mpich", str(library), "/lib/s.so")
    )
    for _ in range(2):
        env = plan_of(["app"], HYDRA, 2, LD_LIBRARY_PATH="/opt/lib").env
        alias = env["MPI4PY_LIBMPI"]
        assert os.path.basename(alias) == "libmpi.so.12" and os.path.samefile(alias, library)
        assert env["LD_LIBRARY_PATH"] == f"{os.path.dirname(alias)}:/opt/lib"
    assert "LD_LIBRARY_PATH" not in plan_of(["app"], HYDRA, 0).env


def test_one_rank_on_a_node_runs_without_a_coordinator_and_says_so(app):
    plan = plan_of(app, {**HYDRA, "MPI_LOCALNRANKS": "1"}, 0)
    assert plan.file == "/opt/app" and "too few for a coordinator" in plan.note
    assert plan.env[config.WRAPPED_ENV] == "1"  # other nodes may have one
    assert config.COORDINATOR_ENV not in plan.env


def test_without_a_launcher_the_application_is_a_singleton(app):
    plan = plan_of(app, {}, 0)
    assert plan.file == "/opt/app" and plan.note is None
    assert config.WRAPPED_ENV not in plan.env and config.KEY_ENV not in plan.env


def test_the_coordinator_alone_does_not_make_open_mpi_yield(app):
    n_cores = os.cpu_count()
    env = {**OPEN_MPI_4, "OMPI_MCA_mpi_oversubscribe": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": str(n_cores + 1)}
    assert plan_of(app, env, 0).env["OMPI_MCA_mpi_oversubscribe"] == "0"
    env["OMPI_COMM_WORLD_LOCAL_SIZE"] = str(n_cores + 2)
    assert plan_of(app, env, 0).env["OMPI_MCA_mpi_oversubscribe"] == "1"


@pytest.mark.parametrize(
    ("argv", "env", "app"),
    [
        (["lmp", "-in", "x"], {}, ["lmp", "-in", "x"]),
        (["--", "-odd"], {}, ["-odd"]),
        (["--trace=all", "lmp"], {"MPICOLOC_TRACE": "all"}, ["lmp"]),
        (["--trace", "lmp"], {"MPICOLOC_TRACE": str(config.TRACE_EVENTS)}, ["lmp"]),
        (["--trace=9", "--meter", "burst", "lmp", "--out", "x"],
         {"MPICOLOC_TRACE": "9", "MPICOLOC_METER": "burst"}, ["lmp", "--out", "x"]),
        (["--help"], {}, []),
    ],
)  # fmt: skip
def test_options_end_where_the_application_begins(argv, env, app):
    assert wrap.parse(argv) == (env, app)


@pytest.mark.parametrize(
    "argv", [[], ["--"], ["--meter"], ["--meter", "sundial", "lmp"], ["--metre=ipc", "lmp"]]
)
def test_a_wrong_call_is_refused(argv):
    with pytest.raises(UsageError):
        wrap.parse(argv)


def test_the_wrong_launcher_is_named(tmp_path, monkeypatch):
    program = objects.linked(tmp_path / "of", "libmpi.so.40")
    with pytest.raises(UsageError, match="start it with the mpirun of Open MPI"):
        target.find([str(program)], {}, "mpich")
    monkeypatch.setattr(target.pmpi_paths, "find_shim", lambda abi: None)
    with pytest.raises(EnvironmentFault, match="mpicoloc build --mpicc"):
        target.find([str(program)], {}, "openmpi")


OPEN_MPI, OTHER_MPI = "ompi_mpi_comm_world", "MPIR_Process"


@pytest.mark.parametrize(
    ("library", "taken", "unshared"),
    [
        ([OPEN_MPI], "MPI_Psend_init", "uses partitioned communication"),
        ([OPEN_MPI], "mpi_precv_init_f08_", "uses partitioned communication"),
        ([OPEN_MPI], "PMPI_Session_init", "uses sessions"),
        ([OPEN_MPI, "PMPI_Send_c", "MPI_Send_c"], "MPI_Send", ""),
        ([OTHER_MPI, "MPI_Send_c"], "MPI_Psend_init", ""),
    ],
)
def test_why_no_coordinator_may_be_in_a_programs_world(tmp_path, library, taken, unshared):
    program = objects.linked(tmp_path / "of", "libmpi.so.40", library, [taken])
    found = target.find([str(program)], {}, "openmpi").unshared
    assert found.startswith(unshared) and bool(found) == bool(unshared)


@pytest.mark.parametrize(
    ("library", "abi"),
    [([OPEN_MPI], "openmpi"), ([OPEN_MPI, "MPI_Send_c"], "openmpi6"), ([OTHER_MPI, "MPI_Send_c"], "mpich")],
)
def test_an_open_mpi_with_large_counts_has_a_library_of_its_own(tmp_path, library, abi):
    soname = "libmpi.so.12" if abi == "mpich" else "libmpi.so.40"
    program = objects.linked(tmp_path / "of", soname, library, ["MPI_Send"])
    assert os.path.basename(target.find([str(program)], {}).shim) == f"libmpicoloc-{abi}.so"


def test_a_library_of_the_program_counts_and_the_extension_of_mpi4py_does_not(tmp_path):
    made = objects.linked(tmp_path / "of", "libmpi.so.40", [OPEN_MPI], ["MPI_Session_init"])
    (tmp_path / "m.c").write_text("extern int MPI_Session_init; int m(void) { return MPI_Session_init; }")
    library, program = tmp_path / "libsolver.so", tmp_path / "solve"
    mpi = [made.parent / "libmpi.so.40", f"-Wl,-rpath,{made.parent}:{tmp_path}"]
    (tmp_path / "p.c").write_text("int m(void), MPI_Init(void); int main(void) { return m() + MPI_Init(); }")
    for words in (["-shared", "-fPIC", "m.c", "-o", library], ["p.c", library, "-o", program]):
        subprocess.run(["cc", *words, *mpi], cwd=tmp_path, check=True, timeout=60)
    assert target.find([str(program)], {}, "openmpi").unshared.startswith("uses sessions")

    python = tmp_path / "bin/python3"
    packages = tmp_path / "lib/python3.11/site-packages/mpi4py"
    for folder in (python.parent, packages):
        folder.mkdir(parents=True)
    python.symlink_to("/bin/true")
    library.rename(packages / "MPI.cpython-311.so")
    assert target.find([str(python)], {}, "openmpi")[1:3] == ("openmpi", str(made.parent / "libmpi.so.40"))
    assert target.find([str(python)], {}, "openmpi").unshared == ""


def test_such_a_program_is_refused_with_what_works(app, monkeypatch):
    found = target.find(app, {}, "openmpi")._replace(unshared="uses sessions")
    monkeypatch.setattr(target, "find", lambda *_: found)
    with pytest.raises(UsageError, match=r"app uses sessions: .*LD_PRELOAD=\$\(mpicoloc preload APP\)"):
        plan_of(app, OPEN_MPI_5, 0)


SCRIPT = """#!/bin/sh
# not other/app
test -d results && $FOLDER/app 3
"""


@pytest.mark.parametrize("soname", ["libmpi.so.12", "libmpi.so.40"])
@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "sleep 0; exec mine/app 3"],
        ["sh", "-c", "mine/app"],
        ["bash", "-c", "if test 1 = 1; then '{}/mine/app'; fi"],
        ["sh", "-c", "cd mine && ./app"],
        ["sh", "job.sh"],
        ["./job.sh"],
        ["env", "X=1", "sh", "-c", "mine/app 3"],
        ["timeout", "9", "./job.sh"],
    ],
    ids=" ".join,
)
def test_a_shell_has_the_mpi_of_the_program_that_it_starts(tmp_path, monkeypatch, soname, argv):
    library = objects.linked(tmp_path / "mine", soname).parent / soname
    other = {"libmpi.so.12": "libmpi.so.40", "libmpi.so.40": "libmpi.so.12"}[soname]
    objects.linked(tmp_path / "other", other)
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "job.sh").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDER", str(tmp_path / "mine"))
    argv, env = [word.replace("{}", str(tmp_path)) for word in argv], dict(os.environ)
    assert target.find(argv, env).libmpi == str(library)
    families = {"libmpi.so.12": "mpich", "libmpi.so.40": "openmpi"}
    assert target.find(argv, env, families[soname]).libmpi == str(library)
    assert target.find(argv, env, families[other]).abi == families[other]  # the launcher's


@pytest.mark.timeout(60)
@pytest.mark.parametrize("argv", ["./job.sh", "sh job.sh", "sh -e job.sh", "env sh job.sh"])
def test_an_argument_that_is_a_pipe_keeps_nobody_waiting_and_its_content(tmp_path, monkeypatch, argv):
    library = objects.linked(tmp_path / "mine", "libmpi.so.12").parent / "libmpi.so.12"
    (tmp_path / "job.sh").write_text(SCRIPT)
    (tmp_path / "job.sh").chmod(0o700)
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDER", "mine")
    # Whoever writes into a pipe must go on waiting for the application.
    writer = subprocess.Popen(["sh", "-c", "echo data > fifo"])
    try:
        assert target.find([*argv.split(), "fifo"], dict(os.environ)).libmpi == str(library)
        assert writer.poll() is None
        assert subprocess.run(["cat", "fifo"], capture_output=True, timeout=30).stdout == b"data\n"
        assert writer.wait(30) == 0
    finally:
        writer.kill()


FIND = """
import os, sys
from mpicoloc.job import target
target.find(sys.argv[1:], dict(os.environ), "mpich")
print(sys.stdin.read())
"""


def test_the_standard_input_is_left_to_the_application(tmp_path):
    objects.linked(tmp_path / "mine", "libmpi.so.12")
    (tmp_path / "job.sh").write_text("mine/app\n")
    for argv in (["bash", "/dev/stdin"], ["bash", "job.sh", "/dev/stdin"], ["env", "bash", "/dev/fd/0"]):
        command = [sys.executable, "-c", FIND, *argv]
        found = subprocess.run(
            command, cwd=tmp_path, input="data", capture_output=True, text=True, timeout=60, check=False
        )
        assert (found.stdout, found.stderr) == ("data\n", "")


def test_of_a_shell_only_the_script_is_read(tmp_path, monkeypatch):
    objects.linked(tmp_path / "mine", "libmpi.so.12")
    library = objects.linked(tmp_path / "other", "libmpi.so.40").parent / "libmpi.so.40"
    (tmp_path / "job.sh").write_text("echo $1\n")
    (tmp_path / "input").write_text("mine/app\n")
    (tmp_path / "run.sh").write_text("set -e; other/app < $1\n")
    monkeypatch.chdir(tmp_path)
    for argv in (["-euo", "pipefail", "run.sh", "input"], ["--rcfile", "input", "run.sh"],
                 ["job.sh", "other/app", "input"], ["-c", "other/app", "input"]):  # fmt: skip
        assert target.find(["bash", *argv], dict(os.environ)).libmpi == str(library), argv


def test_a_full_disk_below_standard_error_keeps_the_exit_code():
    with open("/dev/full", "w") as full:
        assert wrapped(["/no/such/program"], capture_output=False, stderr=full).returncode == 2
        # A misspelt variable is told of before the application begins.
        env = {"MPICOLOC_TRACED": "1"}
        script = "import os; os._exit(7)"
        done = wrapped([sys.executable, "-c", script], env, capture_output=False, stderr=full)
        assert done.returncode == 7


def wrapped(argv, env=None, capture_output=True, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "mpicoloc.wrap", *argv],
        capture_output=capture_output,
        text=True,
        timeout=30,
        env={**os.environ, **(env or {})},
        check=False,
        **kwargs,
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/no/such/program"], "no program"),
        (["no-such-program"], "in PATH"),
        (["/bin/ls"], "links no MPI"),
        (["--bogus", "lmp"], "unknown option --bogus"),
        ([], "no application"),
    ],
)
def test_a_failure_before_the_application_is_one_line(argv, words):
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda rank: wrapped(argv, {**HYDRA, "MPI_LOCALRANKID": rank}), "012"))
    assert [(result.returncode, result.stdout) for result in results] == [(2, "")] * 3
    assert [len(result.stderr.splitlines()) for result in results] == [1, 0, 0]
    assert words in results[0].stderr


def test_a_relative_application_is_the_one_of_the_working_directory(tmp_path):
    (tmp_path / "ls").write_text("no program")
    (tmp_path / "ls").chmod(0o755)
    result = wrapped(["./ls"], cwd=tmp_path)
    assert result.returncode == 2 and "#!" in result.stderr


def test_help_shows_every_option():
    result = wrapped(["--help"])
    assert result.returncode == 0
    assert all(option.flag in result.stdout for option in config.OPTIONS)


STARTS = [
    "mpirun -n 2 ./a", "timeout -k 5 60 mpirun x", "nice -n 5 mpirun x", "stdbuf -oL mpirun x",
    "time -p mpirun x",
    "env -u X Y=1 mpirun x", "while mpirun x; do :; done", "A='x y' srun x", "2>/dev/null mpirun x",
    "echo $# && mpirun x", "if [ $# = 2 ]; then mpirun x; fi", "x=$(mpirun -n 2 a)", "`mpirun x`",
    "cd a && exec /usr/bin/mpirun.openmpi x", "./a\\\n b\nmpiexec.hydra x", "# it's\nmpirun x",
    "cat <<E\nit's\nE\nmpirun x",
]  # fmt: skip
DO_NOT = [
    "echo 'usage: x; mpirun -n 2 ./a'", "cat <<E\nmpirun -n 2\nE\n./a", "cat <<-'E'\n\tmpirun x\n\tE\n./a",
    "./a # mpirun x", "echo mpirun", "which mpirun", "./a --launcher mpirun", "timeout 5 ./a mpirun",
    "mpirun=a; ./a", "exec ./a 'mpirun",
]  # fmt: skip


@pytest.mark.parametrize("text", STARTS + DO_NOT)
def test_scripts_that_start_ranks_are_told_from_those_that_do_not(text):
    assert (target._launcher_of(text) is not None) == (text in STARTS)


@pytest.mark.parametrize("words", [["-c"], ["-lc"], ["-e", "-c"], ["--norc", "-ec"]])
def test_commands_of_a_shell_are_looked_at(words):
    with pytest.raises(UsageError, match="starts mpirun itself"):
        target.refuse_launcher("/bin/sh", ["sh", *words, "mpirun -n 2 ./a"], {})
    target.refuse_launcher("/bin/sh", ["sh", *words, "test -n $PMI_RANK || mpirun ./a"], {})

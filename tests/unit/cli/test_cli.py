"""The command line: every wrong call is one clear line with remedy and exit code, no traceback."""

import os
import re
import subprocess
import sys

import pytest
from objects import linked

from mpicoloc import config
from mpicoloc.cli import main as cli


def mpicoloc(*argv, **kwargs):
    kwargs = {"capture_output": True, "text": True, "timeout": 60, "check": False, **kwargs}
    return subprocess.run([sys.executable, "-m", "mpicoloc", *map(str, argv)], **kwargs)


WRONG = [
    (["--bogus"], 2, "--bogus"),
    (["rnu"], 2, "did you mean run"),
    (["run", "--bogus", "-n", "2", "lmp"], 2, "--bogus"),
    (["run", "--shutter-perod", "1", "-n", "2", "lmp"], 2, "did you mean --shutter-period"),
    (["run", "lmp"], 2, "-n N is missing"),
    (["run", "-n", "2"], 2, "no application"),
    (["run", "-n", "2", "--"], 2, "no application"),
    (["run", "-n", "0", "lmp"], 2, "-n/-np must be"),
    (["run", "-n", "two", "lmp"], 2, "-n/-np must be"),
    (["run", "-n"], 2, "expected one argument"),
    (["run", "-n", "2", "/no/such/program"], 2, "no program"),
    (["run", "-n", "2", "no-such-program"], 2, "in PATH"),
    (["run", "-n", "2", "/bin/ls"], 2, "links no MPI"),
    (["run", "-n", "2", "/etc/passwd"], 2, "chmod +x"),
    (["run", "-n", "2", "/tmp"], 2, "folder"),
    (["run", "-n", "2", "--mpirun", "/no/mpirun", sys.executable], 2, "no program"),
    (["run", "-n", "2", "--mpirun", "/bin/true", sys.executable], 2, "not an mpirun"),
    (["run", "-n", "2", "--meter", "sundial", "lmp"], 2, "auto, ipc, burst, count, none"),
    (["run", "-n", "2", "--rate-su", "-3", "lmp"], 2, "--rate-su must be"),
    (["run", "-n", "2", "--pricing", "barter", "lmp"], 2, "--pricing must be one of fair, runtime"),
    (["run", "-n", "2", "--shutter-period-s", "x", "lmp"], 2, "--shutter-period-s must be a number"),
    (["run", "-n", "2", "--trace", "lots"], 2, "--trace must be a whole number or all, got 'lots'"),
    (["run", "-n", "2", "--trace", "lots", "lmp"], 2, "--trace must be a whole number or all, got 'lots'"),
    (["run", "-n", "2", "--trace=lots", "lmp"], 2, "--trace must be a whole number or all, got 'lots'"),
    (["ledger", "open", "x", "--bogus"], 2, "see `mpicoloc ledger open --help`"),
    (["ledger", "open", "x", "--grnt", "5"], 2, "did you mean --grant?"),
    (["lab", "up", "--rat=1Gbit"], 2, "did you mean --rate?); see `mpicoloc lab up --help`"),
    (["export", "p.h5", "--out", "x"], 2, "--format is missing"),
    (["preload", "/no/such/program"], 2, "no program"),
    (["preload", "/bin/ls"], 2, "links no MPI"),
    (["preload", "--bogus"], 2, "--bogus"),
    (["build"], 2, "--mpicc"),
    (["build", "--mpicc", "/no/mpicc"], 2, "no program"),
    (["build", "--mpicc", "cc"], 4, "is it an MPI compiler"),
    (["check", "extra"], 2, "extra"),
    (["show"], 2, "FILE"),
    (["show", "/no/such/profile.h5"], 3, "/no/such/profile.h5"),
]


@pytest.mark.parametrize(("argv", "code", "words"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_a_wrong_call_is_one_line(argv, code, words, capsys):
    assert_one_line(subprocess.CompletedProcess(argv, cli.main(argv), *capsys.readouterr()), code, words)


def assert_one_line(result, code, words):
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("mpicoloc: ") and words.lower() in result.stderr.lower()
    assert result.returncode == code


def test_unknown_mpi_names_the_remedy(tmp_path):
    app = linked(tmp_path / "of", "libmpi.so.40")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # An installation whose library for that MPI is missing.
    code = "import mpicoloc.pmpi.paths as p\np.find_shim = lambda abi: None\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    for argv in (["preload", app], ["run", "-n", "1", app]):
        assert_one_line(mpicoloc(*argv, env=env), 4, "mpicoloc build --mpicc")


@pytest.mark.parametrize("where", ["missing/p.h5", ".", "/proc/p.h5", "read-only/p.h5"])
def test_unusable_output_path_is_refused_before_the_job(tmp_path, where):
    (tmp_path / "read-only").mkdir(mode=0o500)
    if where.startswith("read-only") and os.getuid() == 0:
        where = "/sys/p.h5"  # root may write into any folder of a disk
    argv = ["run", "-n", "1", "--out", tmp_path / where, sys.executable, "-c", "print('ran')"]
    assert_one_line(mpicoloc(*argv), 4, "--out")


@pytest.mark.parametrize(("name", "value"), [("MPICOLOC_METER", "sundial"), ("MPICOLOC_PRICING", "barter")])
def test_a_bad_variable_is_refused(name, value):
    env = {**os.environ, name: value}
    assert_one_line(mpicoloc("run", "-n", "1", sys.executable, env=env), 2, name)
    command = [sys.executable, "-m", "mpicoloc.wrap", sys.executable]
    wrapped = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert_one_line(wrapped, 2, name)


def test_a_pricing_of_the_sites_own_is_accepted(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "from mpicoloc.bill import pricings\n"
        "pricings.register('half', lambda rate_su, *times_s: rate_su / 2)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert_one_line(mpicoloc("run", "-n", "1", "--pricing", "half", "/bin/ls", env=env), 2, "links no MPI")


def test_help_of_run_shows_every_option_with_its_unit_and_values():
    shown = cli.build_parser("run")[1].format_help()
    for option in config.OPTIONS:
        assert re.search(rf"{option.flag} {re.escape(option.metavar)}\s", shown) and option.env in shown
    for words in ("--meter auto|ipc|burst|count|none", "--trace N|all", "--shutter-period-s SECONDS"):
        assert words in shown
    assert "default 0.2 s;" in shown
    first, advanced = shown.split("\nadvanced:\n")
    flags = re.findall(r"(?m)^  (--?[a-z-]+)", first)
    assert flags == ["-h", "-n", "--out", "--job-id", "--trace", "--meter", "-q", "-v"]
    assert "--mpirun-arg" in advanced and "--topology" in advanced


def test_no_verb_shows_the_verbs():
    import mpicoloc as package

    result = mpicoloc()
    assert result.returncode == 0 and all(verb in result.stdout for verb in cli.VERBS)
    assert mpicoloc("--version").stdout == f"mpicoloc {package.__version__}\n"


def into_closed_pipe(*argv, stderr=subprocess.PIPE):
    """The command, with a standard output whose reader has gone before it begins."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return mpicoloc(*argv, capture_output=False, stdout=writer, stderr=stderr or writer)
    finally:
        os.close(writer)


@pytest.mark.parametrize("argv", [["--help"], ["--version"], [], *([verb, "--help"] for verb in cli.VERBS)],
                         ids=" ".join)  # fmt: skip
def test_a_closed_pipe_is_no_error(argv):
    result = into_closed_pipe(*argv)
    assert result.stderr == "" and result.returncode == 0


def test_a_closed_pipe_hides_no_error():
    assert into_closed_pipe("show", "/no/such/profile.h5", stderr=None).returncode == 3
    result = into_closed_pipe("show", "/no/such/profile.h5")
    assert result.returncode == 3 and len(result.stderr.splitlines()) == 1


def test_results_that_cannot_be_written_are_an_error():
    env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        result = mpicoloc("--version", env=env, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert result.returncode == 4
    assert result.stderr == "mpicoloc: the operating system reported an error: No space left on device\n"


def test_notes_that_cannot_be_written_cost_no_exit_code():
    env = {**os.environ, "MPICOLOC_TRACED": "1"}  # told in a note
    with open("/dev/full", "w") as full:
        for argv, code in ((("show", "/no/such/profile.h5"), 3), (("show",), 2), (("network", "--help"), 0)):
            result = mpicoloc(*argv, env=env, capture_output=False, stdout=subprocess.DEVNULL, stderr=full)
            assert result.returncode == code, argv


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MPICOLOC_TRCE", "MPICOLOC_TRCE is not an option and is ignored: did you mean MPICOLOC_TRACE?"),
        ("MPICOLOC_SHUTTER_DUTY", "did you mean MPICOLOC_SHUTTER_DUTY_FRAC?"),
        ("MPICOLOC_LEDGR", "did you mean MPICOLOC_LEDGER?"),
    ],
)
def test_a_misspelt_variable_is_told(name, words, tmp_path):
    env = {**os.environ, name: "1"}
    shown = mpicoloc("preload", sys.executable, env=env)
    assert shown.returncode == 0 and shown.stdout.endswith(".so\n")
    assert shown.stderr.startswith("mpicoloc: ") and words in shown.stderr
    assert len(shown.stderr.splitlines()) == 1
    assert mpicoloc("-q", "preload", sys.executable, env=env).stderr == ""
    assert words in mpicoloc("check", env=env).stdout
    command = [sys.executable, "-m", "mpicoloc.wrap", sys.executable, "-c", "print('ran')"]
    for rank, n in (("0", 1), ("1", 0)):
        place = {"MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": "3"}
        wrapped = subprocess.run(command, env={**env, **place}, capture_output=True, text=True, timeout=60)
        assert wrapped.stdout == "ran\n" and wrapped.stderr.count(words) == n


def test_a_sites_own_variable_is_not_told():
    env = {**os.environ, "MPICOLOC_ROOT": "/opt/mpicoloc", "MPICOLOC_VERSION": "1"}
    assert mpicoloc("preload", sys.executable, env=env).stderr == ""
    assert "unknown variables: MPICOLOC_ROOT" in mpicoloc("check", env=env).stdout


def test_options_end_where_the_application_begins():
    from mpicoloc.job import run

    parser = cli.build_parser("run")[0]
    argv = run.prepare_argv(["-n", "2", "--trace", "env", "-in", "x", "--trace", "-n", "9", "--bogus"])
    args = parser.parse_args(["run", *argv])
    assert args.n_ranks == 2 and args.trace == str(config.TRACE_EVENTS)
    assert args.app == ["env", "-in", "x", "--trace", "-n", "9", "--bogus"]


def test_trace_takes_a_number_and_the_word_all():
    from mpicoloc.job import flags as job_flags, run

    for words in (["--trace", "all"], ["--trace=all"]):
        assert job_flags.split_own([*words, "-n", "2", "all", "all"], ["-n"]) == len(words) + 2
        assert run.prepare_argv([*words, "-n", "2", "all"]) == ["--trace=all", "-n", "2", "all"]
    for words in (["--trace", "500"], ["--trace=500"]):
        assert run.prepare_argv([*words, "-n", "2", "lmp", "7"]) == ["--trace=500", "-n", "2", "lmp", "7"]

"""`mpicoloc bubble` as a user meets it: results, refusals, and that no bubble stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import bubbled_jobs
import jobs
import processes
import pytest

from mpicoloc.bubble.shutters import why_none
from mpicoloc.cli import main
from mpicoloc.core.profile import VERDICTS

MPICOLOC = [sys.executable, "-m", "mpicoloc", "bubble"]
LIMIT_S = 120
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")


NOT_QUIET = ("is too short for a score on this machine", "counts gave no curve", "turns were measured")
"""Parts of the error messages that a busy machine causes."""


def result_of(done):
    """Parsed output; skips the test, with the error as the reason, if the machine was too busy."""
    if done.returncode == 3 and any(text in done.stderr for text in NOT_QUIET):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(*words):
    return subprocess.run(
        [*MPICOLOC, *words], capture_output=True, text=True, check=False, timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def hogs_of(parent):
    """Memory hogs that this process, or whoever came from it, has started."""
    found = processes.matching(lambda one: processes.comm(one).startswith("mpicoloc-bubble"))
    return [pid for pid in filter(processes.is_running, found) if processes.stat(pid)[1] == str(parent)]


@pytest.fixture
def bubble(calibrated):
    """A bubble that presses, and its memory hogs."""
    job = subprocess.Popen([*MPICOLOC, "run", "--level", "3.5"], stdin=subprocess.DEVNULL)
    try:
        jobs.wait_until(lambda: hogs_of(job.pid), "a bubble that runs", LIMIT_S)
        yield job, hogs_of(job.pid)
    finally:
        job.kill()
        job.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_bubble_ends_with_who_started_it(bubble, number):
    job, hogs = bubble
    job.send_signal(number)
    assert job.wait(LIMIT_S) != 0
    jobs.wait_until(lambda: not any(map(processes.is_running, hogs)), "the end of the bubble", LIMIT_S)


def test_a_bubble_that_is_killed_is_told(bubble):
    job, hogs = bubble
    os.kill(hogs[0], signal.SIGKILL)
    assert job.wait(LIMIT_S) == 4


def test_a_bubble_fills_no_disk_with_reports(bubble):
    _, hogs = bubble
    jobs.wait_until(lambda: os.stat(f"/proc/{hogs[0]}/fd/1").st_size > 0, "its first report", LIMIT_S)
    time.sleep(0.3)  # for sixty more
    with open(f"/proc/{hogs[0]}/fd/1") as reports:
        assert len(reports.read().splitlines()) == 1


def test_a_bubble_ends_after_its_seconds(calibrated):
    done = call("run", "--level", "8", "--seconds", "0.2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_rank_of_mpirun_presses_its_share(calibrated):
    command = call("run", "--level", "8", "--cores", "0,1", "--show-command").stdout.split()
    env = {**os.environ, "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    job = subprocess.Popen([*command, "--report"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        rows = [list(map(int, job.stdout.readline().split())) for _ in range(20)]
        first, last = rows[0], rows[-1]
        assert os.sched_getaffinity(job.pid) == {1}
        rate = (last[2] - first[2]) / (last[0] - first[0]) * 1e9
        assert 0 < rate < 1.5 * 8e6 / 2
        job.terminate()
        assert job.wait(LIMIT_S) == 0
    finally:
        job.kill()
        job.stdout.close()
        job.wait()


def test_levels_are_those_of_the_file(calibrated, capfd):
    assert main.main(["bubble", "levels", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["levels"] == list(range(9)) and found["working_set_bytes"][8] == 16 << 20
    assert main.main(["bubble", "levels"]) == 0
    assert "slowdown of the probe" in capfd.readouterr().out


@pytest.mark.serial
def test_score_of_a_program_that_runs(calibrated, tmp_path):
    busy = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    done = call("score", "--json", "--seconds", "8", "--curves", "curves.csv", "--name", "busy", "--",
                sys.executable, "-c", busy)  # fmt: skip
    found = result_of(done)
    assert 0 <= found["low"] <= found["score"] <= found["high"] <= 8
    assert found["n"] >= 4 and found["probe_slowdown"]["value"] > 0
    assert (tmp_path / "curves.csv").read_text().splitlines()[1].startswith("busy,")


def test_a_program_does_not_stay_stopped_when_its_score_is_killed(calibrated, tmp_path):
    code = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(90)"
    job = subprocess.Popen([*MPICOLOC, "score", "--", sys.executable, "-c", code])
    try:
        jobs.wait_until(lambda: (tmp_path / "pid").exists() and hogs_of(job.pid), "the program", LIMIT_S)
        time.sleep(0.5)
        hogs = hogs_of(job.pid)
        job.kill()
        job.wait()
        pid = int((tmp_path / "pid").read_text())
        jobs.wait_until(lambda: not processes.is_running(pid), "the end of the program", LIMIT_S)
        jobs.wait_until(lambda: not any(map(processes.is_running, hogs)), "the end of the probe", LIMIT_S)
    finally:
        job.kill()
        job.wait()


@pytest.fixture(params=["mpich", "openmpi"])
def heat(request, tmp_path):
    """heat2d, which calls MPI some thousand times a second."""
    mpicc, _ = jobs.need_commands(request.param)
    source = jobs.PROGRAMS.parents[2] / "examples" / "heat2d.c"
    program = str(tmp_path / "heat2d")
    subprocess.run([mpicc, "-O2", str(source), "-o", program, "-lm"], check=True, timeout=LIMIT_S)
    return program


@pytest.mark.serial
def test_sensitivity_by_counts(calibrated, heat, shm_dir):
    done = call("sensitivity", "--json", "--levels", "4,8", "--seconds", "20", "--", heat, "400", "10000000")
    found = result_of(done)
    assert found["levels"] == [0, 4, 8] and found["slowdown"][0] == 1
    assert all(0 < low <= value <= high for low, value, high in zip(
        found["low"], found["slowdown"], found["high"], strict=True))  # fmt: skip
    assert found["method"] == "counts"
    jobs.assert_nothing_left(shm_dir)


def test_sensitivity_of_short_runs(calibrated, heat, tmp_path):
    done = call("sensitivity", "--json", "--levels", "8", "--repeats", "2", "--curves", "curves.csv",
                "--", heat, "100", "50")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["method"] == "whole runs" and found["levels"] == [0, 8] and found["slowdown"][0] == 1
    assert (tmp_path / "curves.csv").read_text().splitlines()[1].startswith("heat2d,")
    assert "are compared" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["run", "--level", "8.5"], 2, "--level must be a level from 0 to 8, got '8.5'"),
        (["run", "--level", "1", "--cores", "x"], 2, "--cores must be a list of processors"),
        (["run", "--level", "1", "--cores", "9999"], 2, "this process may not use processor 9999"),
        (["score", "--", "./nowhere"], 2, "nowhere"),
        (["sensitivity", "--", "./nowhere"], 2, "nowhere"),
        (["sensitivity", "--levels", "0", "--", sys.executable], 2, "one level above 0"),
        (
            ["sensitivity", "--way", "runs", "--seconds", "9", "--", sys.executable],
            2,
            "which compares whole runs: leave it out",
        ),
        (["score"], 2, "no program named"),
        (["score", "--cores", "0", "--app-cores", "0", "--", "true"], 2, "both have processor 0"),
        (["score", "--", "false"], 3, "false ended with code 1, so there is no score"),
        (["score", "--", "true"], 3, "true ended too soon for a score"),
        (["levels", "--calibration", "nowhere.txt"], 2, "nowhere.txt cannot be read"),
    ],
)
def test_wrong_calls_have_one_line(calibrated, words, code, text, capfd):
    assert main.main(["bubble", *words]) == code
    errors = capfd.readouterr().err
    assert text in errors and len(errors.splitlines()) == 1


def test_more_pressure_than_memory_is_refused(calibrated, capfd):
    calibrated(largest_bytes=1 << 50)
    assert main.main(["bubble", "run", "--level", "8"]) == 4
    assert "MiB are free): choose a lower level, or end other programs" in capfd.readouterr().err


def test_a_machine_that_was_never_calibrated(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for words in (["levels"], ["run", "--level", "1"], ["score", "--", "true"]):
        assert main.main(["bubble", *words]) == 4
        errors = capfd.readouterr().err
        assert "run `mpicoloc bubble calibrate`" in errors and len(errors.splitlines()) == 1


def on(cpu):
    """Prefix that runs a command on one processor."""
    return ["taskset", "-c", str(cpu)]


@pytest.fixture
def start_pair(calibrated, tmp_path, started, start):
    """Start two jobs beside each other, of which the first has bubbles in nearly all of its shutters."""
    found = bubbled_jobs.find_mpi(tmp_path)

    def start_both(seconds):
        cpus = sorted(os.sched_getaffinity(0))[:2]
        for name, cpu, options in (("a", cpus[0], bubbled_jobs.BUBBLES), ("b", cpus[1], {})):
            start(found, "preload", seconds, before=on(cpu), n_ranks=1, name=name, env=options)
        return started

    return start_both


def check_bubbles(profile):
    """Whether shutters had bubbles, which must be as the job was told; skips where few had counts."""
    shutters = profile.tables["shutters"]
    assert set(shutters["bubble_level"]) <= {0.0, 2.0, 4.0, 6.0, 8.0}
    has_bubble = (shutters["bubble_level"] > 0) | (shutters["verdict"] == VERDICTS.index("bubbled"))
    assert (shutters["verdict"][has_bubble] != VERDICTS.index("valid")).all()
    if (n_counted := bubbled_jobs.n_counted(profile)) < bubbled_jobs.MIN_COUNTED:
        pytest.skip(f"{n_counted} shutters had counts on this machine, {bubbled_jobs.MIN_COUNTED} needed")
    return has_bubble.any()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.serial
def test_bubbles_in_the_shutters_of_a_job(start_pair):
    # Others may want the processors for a while, and bubbles leave them to others.
    for _ in range(3):
        pair = start_pair(15)[-2:]
        for job in pair:
            assert job.wait() == 0, job.log
        with_bubbles, without = (job.profile() for job in pair)
        assert not (without.tables["shutters"]["bubble_level"] > 0).any()
        if check_bubbles(with_bubbles):
            return
    free = bubbled_jobs.free_frac(sorted(os.sched_getaffinity(0))[1])
    if free < 0.9:
        pytest.skip(f"others have the processors: {free:.0%} of windows are free")
    pytest.fail(f"no shutter had a bubble: {with_bubbles.tables['nodes']['bubble_reason']}")


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.serial
def test_a_job_alone_has_bubbles(calibrated, tmp_path, start):
    found = bubbled_jobs.find_mpi(tmp_path)
    cpu = sorted(os.sched_getaffinity(0))[0]
    options = {"MPICOLOC_METER": "count", "MPICOLOC_BUBBLE": "0.9", "MPICOLOC_BUBBLE_LEVELS": "3,7.5",
               "MPICOLOC_SHUTTER_DUTY_FRAC": "0.5"}  # fmt: skip
    job = start(found, "preload", 12, before=on(cpu), n_ranks=1, env=options)
    assert job.wait() == 0, job.log
    profile = job.profile()
    shutters = profile.tables["shutters"]
    assert (shutters["n_corunners"] == 0).all()
    assert not (shutters["verdict"] == VERDICTS.index("valid")).any()
    assert set(shutters["bubble_level"]) <= {0.0, 3.0, 7.5}
    if len(shutters) < bubbled_jobs.MIN_COUNTED:
        pytest.skip(f"{len(shutters)} shutters on this machine, {bubbled_jobs.MIN_COUNTED} needed")
    if reason := why_none(profile):
        pytest.skip(reason)
    assert (shutters["bubble_level"] > 0).any()


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.parametrize("killed", ["keeper", "job"])
def test_no_bubble_outlives_what_is_killed_in_its_shutter(start_pair, killed):
    before = bubbled_jobs.threads()
    job, _ = start_pair(60)
    pressing = bubbled_jobs.pressing_thread(before)
    if killed == "keeper":
        os.kill(bubbled_jobs.process_of(pressing), signal.SIGKILL)
    else:
        job.kill()
    jobs.wait_until(lambda: bubbled_jobs.threads() <= before, "the bubble's threads to end")

"""Jobs of different users share a node's board, and cannot harm each other with it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jobs
import objects
import once
import pytest

from mpicoloc import config
from mpicoloc.job import check
from mpicoloc.pmpi import contract

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(jobs.LIMIT_S + 40),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root starts jobs of two users"),
]
NAP_US = 2000
USERS = {"first": 54321, "second": 54322}
"""Numbers that no account has."""
ACCESS = {"read": '< "$1"', "write": '>> "$1"'}


@pytest.fixture
def places(shm_dir):
    """A folder of each user; what all share is as /dev/shm is, open to all and sticky."""
    shm_dir.chmod(0o1777)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-users-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        found = {"": Path(folder)}
        for name, uid in USERS.items():
            found[name] = Path(folder, name)
            found[name].mkdir()
            shutil.chown(found[name], uid, uid)
        yield found


@pytest.fixture
def start(openmpi, started, places):
    """Start a user's job, which goes on until there is a file "end"."""

    def start_one(name, way):
        options = {"name": name, "uid": USERS[name]}
        words = ["finalize", jobs.LIMIT_S, NAP_US, places[""] / "end"]
        started.append(jobs.start(openmpi, places[name], way, *words, **options))
        return started[-1]

    return start_one


def may(uid, access, path):
    """Whether a user may open a file so."""
    command = [*jobs.as_user(uid), "sh", "-c", f": {ACCESS[access]}", "sh", str(path)]
    return subprocess.run(command, capture_output=True, timeout=jobs.LIMIT_S, check=False).returncode == 0


def wait_running(shm_dir, *started):
    for job in started:
        name = job.out_path.stem
        jobs.wait_until(lambda name=name: jobs.running_ranks(shm_dir, name, 2), f"{name} to run: {job.log}")


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_users_share_the_board_and_nothing_else(start, places, shm_dir, way):
    first, second = start("first", way), start("second", way)
    wait_running(shm_dir, first, second)
    for path in (
        *shm_dir.glob("*.seg"),
        *shm_dir.glob("*.node"),
        *shm_dir.glob("*.log"),
        Path(contract.board_path()),
    ):
        (other,) = (uid for uid in USERS.values() if uid != path.stat().st_uid)
        is_board = path.suffix == ".board"
        assert {access: may(other, access, path) for access in ACCESS} == dict.fromkeys(ACCESS, is_board), (
            path.name
        )
    nodes = jobs.node_files(shm_dir, 2)
    jobs.wait_until(lambda: all(node["n_shutters"] for node in nodes), "a shutter of each")
    (places[""] / "end").touch()
    for job, other in ((first, b"second"), (second, b"first")):
        assert job.wait() == 0, job.log
        profile = job.profile()
        assert not profile.partial
        assert other in profile.tables["corunners"]["job_id"].tolist()
        assert profile.interference.n_taken > 0
    # only its owner may remove the board, and may have ended first
    jobs.wait_until(
        lambda: all(path.suffix == ".board" for path in shm_dir.iterdir()), "the jobs' files to go"
    )


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_a_hostile_user_costs_samples_and_the_duty_limit_at_most(start, places, shm_dir, way):
    hostile = places[""] / "scribble"
    source = jobs.PROGRAMS / "scribble.c"
    subprocess.run(["cc", "-O1", str(source), "-o", str(hostile)], check=True, timeout=jobs.LIMIT_S)
    victim, other = start("first", way), start("second", way)
    wait_running(shm_dir, victim, other)
    command = [*jobs.as_user(USERS["second"]), str(hostile), contract.board_path(), "3"]
    written = subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=True).stdout
    assert int(written) > 1000
    (places[""] / "end").touch()
    assert victim.wait() == 0, victim.log
    assert victim.log.strip().splitlines()[0] == "computed with 2 ranks"
    other.wait()
    profile = victim.profile()
    assert not profile.partial
    ranks, (node,) = profile.tables["ranks"], profile.tables["nodes"]
    duty_frac, max_s = (config.BY_KEY[key].default for key in ("shutter.duty_frac", "shutter.max_s"))
    # one pause may begin at the last moment at which the limit allows it
    assert node["paused_s"] <= duty_frac * profile.job.wall_s + max_s
    assert all(ranks["paused_ns"] <= 1.5e9 * (duty_frac * profile.job.wall_s + max_s))


SECONDS, N_ATTEMPTS = 10, 3
ASLEEP = re.compile(r"rank \d: ([0-9.]+) s asleep of ([0-9.]+) s, ([0-9.]+) s since its begin$", re.MULTILINE)


@pytest.fixture
def forge(places, tmp_path_factory):
    """An agent of the second user that lies as well as one can."""
    program = places[""] / "forge"
    sources = objects.of_csrc(
        "common/board/board.c",
        "common/board/slots.c",
        "common/board/socket.c",
        "common/options.c",
        "common/proc.c",
        "common/segment.c",
        "common/table.c",
        "common/threads.c",
    )
    folder = once.folder(tmp_path_factory) / "objects"
    objects.program(program, [jobs.PROGRAMS / "forge.c", *sources], ("-std=gnu11", "-O1", "-g"), folder)
    return [*jobs.as_user(USERS["second"]), str(program)]


@pytest.fixture
def asleep_beside_forger(openmpi, places, started, forge):
    """Run the victim beside the forger; of each rank: seconds asleep, of so many, and since its begin."""

    def run():
        victim = jobs.need_mpi("openmpi", places[""], "asleep.c")
        job = jobs.start(victim, places["first"], "preload", SECONDS, name="first", uid=USERS["first"])
        started.append(job)
        jobs.wait_until(lambda: Path(contract.board_path()).exists(), f"a board: {job.log}")
        with subprocess.Popen([*forge, str(SECONDS + jobs.LIMIT_S)], stdout=subprocess.PIPE) as forger:
            try:
                assert int(forger.stdout.readline()) > 10
                assert job.wait() == 0, job.log
            finally:
                forger.kill()
        print(job.log)
        found = [tuple(map(float, words)) for words in ASLEEP.findall(job.log)]
        assert len(found) == 2, job.log
        return found

    return run


@pytest.mark.serial
@pytest.mark.timeout(N_ATTEMPTS * (jobs.LIMIT_S + 40))
@pytest.mark.parametrize("duty_frac", [None, 0.2])
def test_forged_reservations_cost_no_more_than_the_duty_limit(asleep_beside_forger, monkeypatch, duty_frac):
    """By a clock inside the victim's program: it shows twice the usual with ten times the limit."""
    if duty_frac:
        monkeypatch.setenv("MPICOLOC_SHUTTER_DUTY_FRAC", str(duty_frac))
    usual = config.BY_KEY["shutter.duty_frac"].default
    allowance_s = 2 * config.BY_KEY["shutter.duration_s"].default
    for _ in range(N_ATTEMPTS):
        found = asleep_beside_forger()
        for asleep_s, _, since_begin_s in found:
            # what it may give grows from its begin on; a pause ends late by as much as a timer does
            assert asleep_s <= 1.25 * ((duty_frac or usual) * since_begin_s + allowance_s)
        # On a busy machine the forger does not always get what it asks for.
        if all(asleep_s > (2 if duty_frac else 0.3) * usual * all_s for asleep_s, all_s, _ in found):
            return
    pytest.fail("the forger no longer gets what it asks for")


def as_second(script, *words):
    """Run a shell script of the second user."""
    command = [*jobs.as_user(USERS["second"]), "sh", "-c", script, "sh", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=jobs.LIMIT_S, check=False)


PLANT = """set -e; for name; do mkfifo -m 666 "$name.x"; mv -f "$name.x" "$name"; done"""


@pytest.mark.parametrize("way", ["wrap", "preload"])
def test_pipes_and_files_that_another_user_plants_cost_no_time(start, places, shm_dir, way):
    other = start("second", way)
    wait_running(shm_dir, other)  # so that the board is the other user's, who may remove it
    victim = start("first", way)
    wait_running(shm_dir, victim)
    segment = next(path for path in shm_dir.glob("*.0.seg") if path.stat().st_uid == USERS["first"])
    stem = str(segment).removesuffix(".0.seg")
    board = contract.board_path()
    planted = [board, *(f"{stem}.{what}" for what in ("log", "checkpoint", "init-probe", "9.seg"))]
    done = as_second(PLANT, *planted)
    assert done.returncode == 0, done.stderr
    assert as_second('for i in 5 x; do echo not a segment > "$1.$i.seg"; done', stem).returncode == 0
    (node,) = jobs.node_files(shm_dir, 1, Path(stem).name + ".node")
    jobs.wait_until(lambda: node["meter"] == contract.MC_METER_NONE, "the agent to leave the board")
    began_s = time.monotonic()
    (places[""] / "end").touch()
    assert victim.wait() == 0, victim.log
    assert time.monotonic() - began_s < PATIENCE_S, victim.log
    profile = victim.profile()
    assert not profile.partial
    assert len(profile.tables["ranks"]) == 2
    assert any("the board" in note for note in profile.notes), profile.notes
    other.wait()
    for verb in ("check", "top"):
        done = subprocess.run(
            [sys.executable, "-m", "mpicoloc", verb], capture_output=True, timeout=PATIENCE_S
        )
        assert done.returncode in (1, 4)
    left = {path.name for path in shm_dir.iterdir() if path.lstat().st_uid != USERS["second"]}
    assert not left


SQUAT = """import contextlib, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + sys.argv[1])
listener.listen()
print("ready", flush=True)
kept = []
while True:
    kept.append(listener.accept()[0])
    with contextlib.suppress(BrokenPipeError):
        kept[-1].send(sys.argv[2].encode())
"""


@pytest.mark.parametrize("says", ["", "garbage"])
def test_a_squatter_where_jobs_meet_is_named_and_costs_no_co_runner(start, places, shm_dir, says):
    command = [*jobs.as_user(USERS["second"]), sys.executable, "-c", SQUAT, contract.board_socket(), says]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as squatter:
        try:
            assert squatter.stdout.readline() == b"ready\n"
            finding = check.co_runners()
            assert finding.state == "note" and f"user {USERS['second']} " in finding.remedy
            alone = start("first", "preload")
            wait_running(shm_dir, alone)
            other = start("second", "preload")
            nodes = jobs.node_files(shm_dir, 2)
            jobs.wait_until(
                lambda: all(node["shared_ns"] > 1e9 for node in nodes), "them to meet by the file"
            )
        finally:
            squatter.kill()
    (places[""] / "end").touch()
    for job in (alone, other):
        assert job.wait() == 0, job.log
        profile = job.profile()
        assert any("gives no board" in note for note in profile.notes), profile.notes
        assert len(profile.tables["corunners"]) == 1
    assert check.co_runners().state == "ok"


PATIENCE_S = 25
"""Ranks wait 30 s for a profile that does not come."""
OF_A_PROCESS = ("environ", "maps", "mem", "auxv", "syscall")


@pytest.mark.parametrize(("mask", "is_readable"), [(0o022, True), (0o077, False)])
def test_what_another_user_can_read(start, places, shm_dir, mask, is_readable):
    """Nothing in memory but the board, nothing in /proc but what ps shows; the profile as the umask says."""
    before = os.umask(mask)
    try:
        victim = start("first", "preload")
    finally:
        os.umask(before)
    ranks = jobs.wait_until(lambda: jobs.running_ranks(shm_dir, "first", 2), f"it to run: {victim.log}")
    (node,) = jobs.node_files(shm_dir, 1)
    keeper_pid = int(jobs.wait_until(lambda: node["keeper_pid"], "the keeper"))
    for path in shm_dir.iterdir():
        is_board = str(path) == contract.board_path()
        if path.suffix == ".here":  # of a rank on its way; it may go at any time
            continue
        assert path.stat().st_mode & 0o777 == (0o666 if is_board else 0o600), path.name
        assert may(USERS["second"], "read", path) == is_board, path.name
    for pid in (keeper_pid, *(int(rank["pid"]) for rank in ranks)):
        for what in OF_A_PROCESS:
            assert not may(USERS["second"], "read", f"/proc/{pid}/{what}"), what
        assert as_second('ls "$1"', f"/proc/{pid}/fd").returncode != 0
    slots = contract.map_file(contract.board_path())["slots"]
    told = bytes(slots[slots["owner"] != 0].tobytes())
    assert (
        b"first" in told and str(places["first"]).encode() not in told
    )  # the job's name, and no path or command
    (places[""] / "end").touch()
    assert victim.wait() == 0, victim.log
    victim.profile()
    assert may(USERS["second"], "read", victim.out_path) == is_readable
    assert not may(USERS["second"], "write", victim.out_path)

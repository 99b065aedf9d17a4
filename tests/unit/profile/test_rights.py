"""Root's process that opens a user's file has neither root's rights nor the site's key."""

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sample

from mpicoloc.bill import charges
from mpicoloc.errors import DataError
from mpicoloc.job import leftovers
from mpicoloc.pairing import training_sets
from mpicoloc.profile import hdf5, history, profiles, sandbox, signature
from mpicoloc.slurm import client, close

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give rights up"),
    pytest.mark.timeout(60),
]
KEY = b"k" * 32
UID = 12345


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mpicoloc-42.h5"
    hdf5.write(sample.profile(), path)
    os.chown(path, UID, -1)
    return path


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "site.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return signature.KeyFile(str(path))


def in_child(work, **more):
    """Result of `work` in the sandboxed process that reads a user's file."""
    return sandbox.run_in_child(
        "p.h5", lambda: [json.dumps(work()).encode()], lambda said: json.loads(bytes(said)), **more
    )


def refusal(call, *words):
    try:
        call(*words)
    except OSError as error:
        return error.errno
    return 0


def test_memory_is_bounded_for_one_work_alone():
    def more_bytes():
        return resource.getrlimit(resource.RLIMIT_AS)[0] - sandbox.address_space_bytes()

    assert in_child(more_bytes, memory_bytes=1 << 30) <= 1 << 30 < in_child(more_bytes)


@pytest.mark.parametrize(("owner", "user"), [(UID, UID), (0, sandbox.NOBODY)])
def test_the_child_is_the_user_and_nothing_else(owner, user, key_file, tmp_path):
    (tmp_path / "open").mkdir(mode=0o777)

    def work():
        status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
        return {
            "uids": os.getresuid(),
            "gids": os.getresgid(),
            "groups": os.getgroups(),
            "caps": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
            "new_privs": status["NoNewPrivs"],
            "back": refusal(os.setuid, 0),
            "key": refusal(os.open, key_file.path, os.O_RDONLY),
            "fork": refusal(os.fork),
            "own_memory": refusal(os.open, "/proc/self/mem", os.O_RDONLY),
        }

    found = in_child(work, uid=owner)
    assert found["uids"] == [user] * 3 and found["gids"] == [sandbox.NOBODY] * 3 and found["groups"] == []
    assert found["caps"] == [0] * 4 and found["new_privs"] == "1"
    assert [found[name] for name in ("back", "key", "own_memory")] == [
        errno.EPERM,
        errno.EACCES,
        errno.EACCES,
    ]
    assert found["fork"] == errno.EAGAIN
    assert in_child(lambda: refusal(os.open, key_file.path, os.O_RDONLY)) == errno.EACCES, (
        "nobody, if not told"
    )


def test_files_in_memory_are_looked_for_without_roots_groups(tmp_path, monkeypatch):
    """By a process that has them, as slurmd has; afterwards it has them again."""

    def ids():
        return [os.geteuid(), os.getegid(), os.getgroups()]

    def work():
        os.setgroups([0, 42])
        found = []
        monkeypatch.setattr(leftovers, "files", lambda folder: found.append(ids()) or {"a.7.0": []})
        monkeypatch.setattr(leftovers, "processes", lambda jobs: found.append(ids()) or set())
        monkeypatch.setattr(leftovers, "find", lambda folder, quiet_s: found.append(ids()) or [])
        start = client.Start(7, UID, 0, 0, False, "7")
        assert close.wait_for_writers(start, str(tmp_path))
        assert close.remove_shared_files(7, UID, str(tmp_path)) == 0
        return [*found, ids()]

    of_user = [UID, sandbox.NOBODY, []]
    assert in_child(work, keeps_rights=True) == [of_user, of_user, of_user, [0, 0, [0, 42]]]


def test_what_root_has_open_is_shut(tmp_path):
    with open(tmp_path / "secret", "w+") as secret, socket.socket() as door:
        handles = [secret.fileno(), door.fileno()]
        assert (
            in_child(lambda: [refusal(os.fstat, handle) for handle in handles], uid=UID) == [errno.EBADF] * 2
        )
        assert in_child(lambda: refusal(os.write, 1, b"to root's terminal"), uid=UID) == 0


def test_all_that_is_needed_is_loaded_before(path):
    """The user may not be allowed to read the folder that Python's modules lie in."""
    content = path.read_bytes()
    given = os.open(path, os.O_RDONLY)

    def work():
        before = set(sys.modules)
        signature._sealed(str(path), content, "k", 1.0)
        signature._coded(str(path), content, "k", 1.0, "c" * 64)
        hdf5.read("p", content, ())
        with open(given, "rb", closefd=False) as raw:
            b"".join(profiles._at_once("p", raw))
            profiles._bytes(hdf5.read_table("p", "ranks", raw))
            json.dumps([history._read("p", raw), training_sets._read("p", raw)])
            list(signature._looked_at("p", content))
        return sorted(set(sys.modules) - before)

    with open(given, "rb") as kept:
        assert in_child(work, uid=UID, files=[kept]) == []


def readings(path):
    """All ways by which root comes to read a profile."""
    runs, troubles = training_sets.read_runs([path])
    yield from troubles or runs.values()
    yield from history.records(history.history(os.path.dirname(path)))
    for read in (charges.read, signature.snapshot, signature.facts, profiles.read):
        try:
            yield read(path)
        except DataError as error:
            yield error


def test_root_parses_nothing_with_its_own_rights(path, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def opened(*_):
        raise DataError(f"as {os.getresuid()} with {len(os.listdir('/proc/self/fd'))} open")

    monkeypatch.setattr(hdf5, "opened", opened)
    found = [str(said) for said in readings(str(path))]
    assert len(found) == 6
    assert all(f"as ({sandbox.NOBODY}, {sandbox.NOBODY}, {sandbox.NOBODY})" in said for said in found), found


def test_root_reads_what_only_root_may_open(path, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    os.chown(path, 0, 0)
    path.chmod(0o600)
    tmp_path.chmod(0o700)
    run, row, taken, snapshot, facts, profile = readings(str(path))
    assert run.owner == 0 and row["trouble"] is None and row["job"] == "42"
    assert taken.digest == snapshot.digest and facts is None and profile.job.id == "42"
    monkeypatch.setattr(profiles, "AT_ONCE_BYTES", 0)
    tables = profiles.read(path).tables
    assert len(tables["ranks"]) == len(sample.profile().tables["ranks"])


def test_root_of_a_container_without_other_users_reads(path):
    """There root has the rights of the user who made it, and nobody else's to take on."""
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-m", "mpicoloc", "show", str(path)]
    path.chmod(0o644)
    path.parent.chmod(0o755)
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.returncode == 0, done.stderr


def test_it_signs_as_before(path, key_file, tmp_path):
    out = tmp_path / "signed.h5"
    signature.sign(path, key_file, 1.0, str(out))
    taken = signature.snapshot(out)
    assert signature.verify(taken, KEY).is_good and signature.verify(taken, key_file).is_good
    assert [found.price for found in profiles.read_facts([str(out)], UID)] == [sample.profile().price]
    by_bytes = signature.signed(str(path), path.read_bytes(), KEY, 1.0, uid=UID)
    assert by_bytes == out.read_bytes()


def test_what_is_damaged_is_left_out_of_many(path, tmp_path, monkeypatch):
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:5000])
    (tmp_path / "crash.h5").write_bytes(path.read_bytes())
    read = hdf5.read
    monkeypatch.setattr(
        hdf5, "read", lambda path, *rest: os.abort() if "crash" in path else read(path, *rest)
    )
    monkeypatch.setattr(profiles, "_MAX_BATCH", 3)
    given = [path, tmp_path / "cut.h5", path, tmp_path / "missing.h5", tmp_path / "crash.h5", path, path,
             path]  # fmt: skip
    assert [found.job.id for found in profiles.read_facts(map(str, given), UID)] == ["42"] * 5


STOPPED = """
import os, signal, sys
from mpicoloc.cli.main import main
from mpicoloc.profile import signature

def stopping(work):
    def stopped(*words):
        os.kill(os.getpid(), signal.SIGSTOP)
        return work(*words)
    return stopped

signature._sealed, signature._coded = map(stopping, (signature._sealed, signature._coded))
sys.exit(main(sys.argv[1:]))
"""


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_stopped(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return False


def holds(pid, words):
    """Whether they are anywhere in the memory of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            first, _, rest = line.partition("-")
            start, end = int(first, 16), int(rest.split()[0], 16)
            if " r" not in line or "[v" in line:
                continue
            memory.seek(start)
            try:
                if words in memory.read(end - start):
                    return True
            except OSError:
                continue  # of a device
    return False


def test_neither_child_nor_parent_has_the_key_in_its_memory(path, key_file, tmp_path):
    secret = os.urandom(16).hex()
    Path(key_file.path).write_text(secret)
    out, seen = tmp_path / "signed.h5", []
    command = [sys.executable, "-c", STOPPED, "sign", str(path), "--out", str(out), "--key-file",
               key_file.path]  # fmt: skip
    with subprocess.Popen(command) as process:
        try:
            while process.poll() is None:
                for child in children(process.pid):
                    if is_stopped(child):
                        pids = (process.pid, child)
                        seen.append(
                            [
                                holds(pid, words)
                                for words in (secret.encode(), str(path).encode())
                                for pid in pids
                            ]
                        )
                        assert os.stat(f"/proc/{child}/mem").st_uid == 0, "no process of the user's can look"
                        os.kill(child, signal.SIGCONT)
                time.sleep(0.01)
        finally:
            process.kill()
    assert process.returncode == 0 and seen == [[False, False, True, True]] * 2
    assert signature.verify(signature.snapshot(out), secret.encode()).is_good


def test_an_answer_that_is_too_long_or_never_comes_is_damage(monkeypatch):
    with pytest.raises(DataError, match="is damaged"):
        sandbox.run_in_child("p.h5", lambda: [b"x" * 101], bytes, uid=UID, most_bytes=100)
    assert sandbox.run_in_child("p.h5", lambda: [b"x" * 100], bytes, uid=UID, most_bytes=100) == b"x" * 100
    before = set(children(os.getpid()))
    monkeypatch.setattr(sandbox, "WAIT_S", 0.3)
    with pytest.raises(DataError, match="is damaged"):
        sandbox.run_in_child("p.h5", lambda: time.sleep(1000), bytes, uid=UID)
    assert set(children(os.getpid())) <= before


def hostile(said):
    return lambda *_: [json.dumps(said).encode()]


@pytest.mark.parametrize(
    "said",
    [["f" * 63, "42", ""], ["f" * 64, "42"], ["F" * 64, "42", ""], {"a": 1}, 7, None,
     ["f" * 64 + "\n", "42", ""]],
)  # fmt: skip
def test_a_digest_that_is_none_is_not_signed(path, said, monkeypatch):
    monkeypatch.setattr(signature, "_sealed", hostile(said))
    with pytest.raises(DataError, match="is damaged"):
        signature.signed(str(path), path.read_bytes(), KEY, 1.0, uid=UID)


def test_a_signed_file_does_not_grow_without_end(path, monkeypatch):
    monkeypatch.setattr(signature, "_coded", lambda *_: [bytes(len(path.read_bytes()) + (2 << 20))])
    with pytest.raises(DataError, match="is damaged"):
        signature.signed(str(path), path.read_bytes(), KEY, 1.0, uid=UID)


def test_processor_time_is_bounded(path):
    assert in_child(lambda: resource.getrlimit(resource.RLIMIT_CPU)[0], uid=UID) > 0


def test_it_ends_with_the_process_that_waits_for_it():
    """As a process of a sweep that is killed while it reads a trace."""
    script = (
        "import time\nfrom mpicoloc.profile import sandbox\n"
        "sandbox.run_in_child('p.h5', lambda: time.sleep(600), bytes)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        while not (found := children.read_text().split()):
            time.sleep(0.02)
        status = Path(f"/proc/{found[0]}/status")
        while "Uid:\t65534" not in status.read_text():  # it has given its rights up, and is at work
            time.sleep(0.02)
        time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    with contextlib.suppress(OSError):  # it has ended
        while "State:\tZ" not in status.read_text():
            time.sleep(0.02)

"""A process killed in the middle of a post leaves it done or not done; the next post makes it done once."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ledger_lab import STAMP, SU, assert_right, charge, results, start

from mpicoloc.bill.ledger import CHARGES, Ledger

MOST_CALLS = 200
"""A post changes files in far fewer calls than these."""
STEP_BY_STEP = """
import ctypes, os, shutil
library, where, kind, torn, most = argv
killer = ctypes.CDLL(library)
seen = []
for n in range(1, int(most)):
    shutil.copy(where, where + ".n")
    child = os.fork()
    if child == 0:
        killer.killer_arm(n, int(torn))
        ledger = Ledger(where + ".n")
        if kind == "refund":
            ledger.refund(2, SU, STAMP, reference="r")
        else:
            ledger.charge("lab", charge(2, 3 * SU), STAMP)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    had_journal = os.path.exists(where + ".n-journal")
    before = assert_right(where + ".n")["lab"]
    ledger = Ledger(where + ".n")
    if kind == "refund":
        ledger.refund(2, SU, STAMP, reference="r")
    else:
        ledger.charge("lab", charge(2, 3 * SU), STAMP)
    seen.append([os.WTERMSIG(status), had_journal, before, assert_right(where + ".n")["lab"]])
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    library = tmp_path_factory.mktemp("killer") / "killer.so"
    source = Path(__file__).with_name("killer.c")
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library


@pytest.fixture
def books(tmp_path):
    """A ledger with one account of 10 SU and one charge of 4 SU, which is transaction 2."""
    where = tmp_path / "ledger.sqlite"
    ledger = Ledger(str(where), create=True)
    ledger.open_account("lab", 10 * SU, 0, STAMP)
    assert ledger.charge("lab", charge(1, 4 * SU), STAMP).transaction == 2
    return where


@pytest.mark.timeout(180)
@pytest.mark.parametrize("torn", [0, 1], ids=["before", "torn"])
@pytest.mark.parametrize("kind", ["charge", "refund"])
def test_a_post_killed_at_any_change_of_a_file(killer, books, kind, torn):
    env = {**os.environ, "LD_PRELOAD": str(killer)}
    (seen,) = results([start(STEP_BY_STEP, killer, books, kind, torn, MOST_CALLS, env=env)], timeout=170)
    after = {"charge": 3 * SU, "refund": 7 * SU}[kind]
    assert 5 < len(seen) < MOST_CALLS - 1  # it died at every step there is, and lived at last
    assert {number for number, *_ in seen} == {signal.SIGKILL}
    assert any(had_journal for _, had_journal, *_ in seen)  # also while the file was half new
    assert {before for *_, before, _ in seen} <= {6 * SU, after}
    assert {end for *_, end in seen} == {after}


POST_FOR_EVER = """
import itertools, random
where, i_worker, n_profiles = argv
ledger, rng = Ledger(where), random.Random(int(i_worker))
print("ready", flush=True)
for i in itertools.count():
    try:
        posting = ledger.charge("lab", charge(rng.randrange(int(n_profiles)), 100), STAMP)
        if rng.random() < 0.2:
            ledger.refund(posting.transaction, 1, STAMP, reference=str(i_worker))
    except Refused:
        pass
"""


@pytest.mark.timeout(120)
def test_workers_that_are_killed_at_any_moment(tmp_path):
    """Real processes post the same profiles at once and die by kill -9, again and again."""
    n_profiles, seed = 400, 1
    where = tmp_path / "ledger.sqlite"
    Ledger(str(where), create=True).open_account("lab", SU, 0, STAMP)
    rng = random.Random(seed)
    worker = "from mpicoloc.errors import Refused\n" + POST_FOR_EVER
    workers = []
    try:
        for _ in range(4):
            workers = [start(worker, where, rng.randrange(1 << 30), n_profiles) for _ in range(3)]
            assert all(process.stdout.readline() == "ready\n" for process in workers)
            for process in workers:
                time.sleep(rng.random() * 0.5)
                process.kill()
            assert [process.wait(timeout=30) for process in workers] == [-signal.SIGKILL] * 3
            check(where, n_profiles)
    finally:
        for process in workers:
            process.kill()
            process.wait()
    ledger = Ledger(str(where))
    for i in range(n_profiles):
        ledger.charge("lab", charge(i, 100), STAMP)
    charged, given_back = check(where, n_profiles)
    assert charged == n_profiles
    assert assert_right(where)[CHARGES] == 100 * n_profiles - given_back


def check(where, n_profiles):
    """The books are right and no profile is in them twice; how many are, and what was given back."""
    assert_right(where)
    lines = Ledger(str(where)).statement("lab")
    charged = [line for line in lines if line.kind == "charge"]
    assert 0 < len(charged) <= n_profiles
    return len(charged), sum(line.amount_usu for line in lines if line.kind == "refund")


def test_a_half_written_ledger_is_not_read_as_whole(books, tmp_path):
    """A file cut short is damage, told as such, not an empty account."""
    cut = tmp_path / "cut.sqlite"
    shutil.copy(books, cut)
    os.truncate(cut, 4096 * 2)
    done = subprocess.run(["mpicoloc", "ledger", "list", "--ledger", cut, "--json"], capture_output=True,
                          text=True, timeout=60)  # fmt: skip
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "is damaged" in done.stderr and done.stdout == ""


def test_the_numbers_of_a_killed_post_are_used_again_for_nothing_else(books):
    """The statement lists the transaction numbers that the ledger returned."""
    found = json.loads(subprocess.run(
        ["mpicoloc", "ledger", "statement", "lab", "--ledger", books, "--json"],
        capture_output=True, text=True, timeout=60, check=True).stdout)  # fmt: skip
    assert [line["transaction"] for line in found["lines"]] == [1, 2]

"""Names that a user chooses (program, arguments, job, host, region) in all that is made of a real profile.

They hold markup, sequences that terminals obey, quotes of SQL and JSON, marks that turn the direction of
writing, bytes that are no UTF-8, and thousands of letters.
"""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import browser
import jobs
import pytest
import terminal

from mpicoloc.cli.main import main
from mpicoloc.job import processes
from mpicoloc.profile import collect, machine, profiles

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NAME = b"</title><script>top.hacked=1</script>'\";DROP TABLE x;--\x1b[2J\x1b]0;t\x07\r\n\xe2\x80\xae\xff\xfe"
"""A file's name may not hold its slash."""
FILE = NAME.replace(b"/", b"|")
ARGUMENTS = (NAME, b"A" * 4096, b"\x1b[31m\x9b31m", NAME * 40)
OPTIONS = {b"MPICOLOC_JOB_ID": FILE + b"i" * 3000, b"HOSTILE_HOST": NAME, b"MPICOLOC_TRACE": b"64",
           b"OMPI_ALLOW_RUN_AS_ROOT": b"1", b"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": b"1"}  # fmt: skip
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OBEYED = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
"""Characters that a terminal acts on, other than line ends."""


def job(folder, way):
    """The profile of a job of such names."""
    found = jobs.need_mpi("mpich openmpi", folder, "hostile.c")
    os.rename(found.program, os.fsencode(folder) + b"/" + FILE)
    program, profile = [b"./" + FILE, *ARGUMENTS], folder / f"{way}.h5"
    if way == "run":
        command = [sys.executable, "-m", "mpicoloc", "run", "-n", 2, "--mpirun", found.mpirun, "--"]
    else:
        # `env` would take such a program for a variable.
        shell = f'LD_PRELOAD={found.shim} exec "$0" "$@"'
        command = [found.mpirun, *found.flags, "-n", 2, "sh", "-c", shell]
    env = os.environb | OPTIONS | {b"MPICOLOC_OUT": os.fsencode(profile)}
    done = subprocess.run([*map(str, command), *program], env=env, cwd=folder, capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=jobs.LIMIT_S)  # fmt: skip
    assert done.returncode == 0 and profile.exists(), done.stderr
    return profile


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the profile hostile.h5 is."""
    folder = tmp_path_factory.mktemp("names")
    os.rename(job(folder, "run"), folder / "hostile.h5")
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPICOLOC_LEDGER", "books.sqlite")
    return folder


def facts(profile):
    """Check that a profile has the hostile names, whichever process wrote it."""
    made = profiles.read(str(profile))
    assert not made.partial
    assert made.job.id.startswith("<|title><script>top.hacked=1<|script>'\"")
    assert made.job.command.startswith("./<|title><script>") and made.job.command.count("A") > 500
    names = {bytes(row["name"]) for row in made.tables["regions"]}
    assert b"\x1b[31m\x9b31m" in names and any(name.startswith(NAME[:40]) for name in names)
    hosts = {bytes(row["hostname"]) for row in made.tables["nodes"]}
    assert os.getuid() != 0 or any(NAME.startswith(host) and len(host) > 40 for host in hosts)
    assert b"MPI_Sendrecv_replace" in made.tables["call_sites"]["call"]


def test_the_profile_is_written_whole(folder):
    facts(folder / "hostile.h5")


def test_the_keeper_writes_it_likewise(tmp_path):
    facts(job(tmp_path, "preload"))


def test_a_process_of_any_name_is_known():
    rename = (
        "import sys; open('/proc/self/comm', 'wb').write(b'\\xff) S 1'); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        fields = processes.stat(child.pid)
        name, parent, ticks = fields[0], int(fields[2]), fields[20]
        assert (os.fsencode(name), parent) == (b"\xff) S 1", os.getpid())
        assert machine.is_running({"pid": child.pid, "pid_start_ticks": int(ticks)})
        assert collect.shim_of(child.pid, "MPICH").endswith(".so")
        child.stdin.close()


@pytest.mark.parametrize(
    "line",
    ["show hostile.h5 --all", "show --json hostile.h5", "history .", "history . --json", "price hostile.h5",
     "compare hostile.h5 hostile.h5", "network hostile.h5 --topology XGFT(1;4;1)"],
)  # fmt: skip
def test_nothing_in_a_terminal_obeys(here, line):
    # Bars move the cursor, and on a loaded machine they come.
    without_bars = (
        "from mpicoloc.cli import verbosity; verbosity.DELAY_S = 600.0; "
        f"from mpicoloc.cli.main import main; raise SystemExit(main({line.split()}))"
    )
    shown = terminal.show(sys.executable, "-c", without_bars, columns=160, lines=400)
    assert shown.code == 0
    assert not OBEYED.findall(COLOURS.sub("", shown.output))
    first = next(filter(None, map(str.rstrip, COLOURS.sub("", shown.output).splitlines())))
    assert shown.screen[0] == first[:160].rstrip(), "nothing was erased, nor the cursor moved"


def test_json_is_json(here, capsys):
    for line in ("show --json hostile.h5", "history . --json"):
        assert main(line.split()) == 0
        assert "hacked=1</script>'\\\"" in json.dumps(json.loads(capsys.readouterr().out))
    for kind in ("json", "perfetto"):
        assert main(["export", "hostile.h5", "--format", kind, "--out", f"{kind}.json"]) == 0
        assert "hacked=1" in json.dumps(json.loads(Path(f"{kind}.json").read_text()))


def test_lines_of_exports_stay_lines(here):
    assert main(["export", "hostile.h5", "--format", "prometheus", "--out", "m.prom"]) == 0
    sample = re.compile(r'mpicoloc_\w+\{(\w+="([^"\\\n]|\\["\\n])*",?)*\} [-+.e\w]+|# (HELP|TYPE) .*')
    lines = Path("m.prom").read_bytes().decode().removesuffix("\n").split("\n")
    assert len(lines) > 10 and all(map(sample.fullmatch, lines))
    assert not any(map(OBEYED.search, lines))
    assert main(["export", "hostile.h5", "--format", "paraver", "--out", "p"]) == 0
    for line in Path("p.row").read_bytes().decode().split("\n"):
        assert not OBEYED.search(line)


def test_the_books_stay_right(here):
    note = NAME.decode(errors="replace")
    for line in ("open chem --grant 10", "charge chem hostile.h5", "charge chem hostile.h5", "audit"):
        assert main(["ledger", *line.split()]) == 0
    assert main(["ledger", "refund", "2", "--su", "0.000001", "--note", note]) == 0
    assert main(["ledger", "open", note]) == 2 and main(["ledger", "statement", note]) == 2
    for argv in (["statement", "chem"], ["list"], ["audit"], ["statement", note]):
        shown = terminal.mpicoloc("ledger", *argv, columns=160, lines=400)
        assert not OBEYED.findall(COLOURS.sub("", shown.output))
    books = sqlite3.connect("books.sqlite")
    assert books.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert books.execute("SELECT sum(amount_usu) FROM mpicoloc_entries").fetchone() == (0,)
    kinds = "SELECT kind, count(*) FROM mpicoloc_transactions GROUP BY kind ORDER BY kind"
    assert books.execute(kinds).fetchall() == [("charge", 1), ("open", 1), ("refund", 1)], "charged once"
    known = books.execute("SELECT facts FROM mpicoloc_transactions WHERE kind = 'charge'").fetchone()[0]
    assert json.loads(known)["job"] == profiles.read("hostile.h5").job.id
    assert books.execute("SELECT note FROM mpicoloc_transactions WHERE kind = 'refund'").fetchone() == (note,)


@pytest.mark.skipif(browser.CHROMIUM is None, reason="not installed: chromium, the browser")
def test_the_page_runs_nothing(here, tmp_path):
    assert main(["report", "hostile.h5", "--out", "hostile.html"]) == 0
    shutil.copy("hostile.html", tmp_path / "page.html")
    (tmp_path / "look.html").write_text(browser.LOOK)
    out, console = browser.looked(tmp_path, "look.html")
    assert not console
    found = json.loads(re.search(r"<pre>(.*)</pre>", out)[1])
    assert not found["hacked"] and found["phone"]["pictures"] > 6
    for name in ("phone", "desk"):
        assert found[name]["needs"] <= found[name]["width"] and found[name]["cut"] == []
    text = Path("hostile.html").read_text()
    assert "<script" not in text and not OBEYED.search(text)

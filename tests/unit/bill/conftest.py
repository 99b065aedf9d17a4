"""The databases that tests of the ledger use: an SQLite file, and a PostgreSQL server of the test's own."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
import spool_lab
from ledger_lab import empty

from mpicoloc.bill.ledger import Ledger
from mpicoloc.cli.main import main


@pytest.fixture(scope="session")
def postgres():
    """URL of a new server's database; its files and processes are gone at the end."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    found = shutil.which("initdb") or (programs and shutil.which("initdb", path=str(programs[-1])))
    if not found:
        pytest.skip("PostgreSQL's server is not installed")
    bin_dir = Path(found).parent
    # The server refuses to run as root.
    as_user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="mpicoloc-pg-") as folder:
        if as_user:
            shutil.chown(folder, "nobody")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT, "check": True, "cwd": "/"}
        quiet |= as_user
        data = f"{folder}/data"
        initdb = [bin_dir / "initdb", "-D", data, "-U", "site", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, timeout=60, **quiet)
        control = [bin_dir / "pg_ctl", "-D", data, "-w"]
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        subprocess.run([*control, "-o", options, "-l", f"{folder}/log", "start"], timeout=60, **quiet)
        try:
            yield f"postgresql+psycopg://site@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], timeout=60, **quiet)


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """An empty ledger on each database."""
    if request.param == "sqlite":
        yield str(tmp_path / "ledger.sqlite")
        return
    url = request.getfixturevalue("postgres")
    yield url
    empty(url)


@pytest.fixture
def ledger(where):
    return Ledger(where, create=True)


@pytest.fixture
def books_at(tmp_path, monkeypatch, capsys):
    """For the URL of a new ledger with an account: a call of the command, which is exit code, output, errors.

    The tests work in a folder of their own.
    """

    def opened(url, grant_su=10):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("MPICOLOC_LEDGER", url)
        assert main(["ledger", "open", "lab", "--grant", str(grant_su)]) == 0
        capsys.readouterr()

        def call(*argv):
            code = main(["ledger", *map(str, argv)])
            out = capsys.readouterr()
            return code, out.out, out.err

        return call

    return opened


@pytest.fixture
def books(books_at):
    """A call of the command with a ledger in an SQLite file."""
    return books_at("ledger.sqlite")


@pytest.fixture
def spool(books, tmp_path):
    """A spool in which `spool(...)` leaves a step."""
    return spool_lab.make(tmp_path)

"""Databases without a ledger are refused and left unchanged; no site setting makes the books wrong."""

import sqlite3
from dataclasses import replace

import pytest
import sqlalchemy as sa
from ledger_lab import STAMP, SU, assert_right, charge, empty, results, start

from mpicoloc.bill import ledger as db
from mpicoloc.bill.ledger import Ledger
from mpicoloc.errors import DataError, EnvironmentFault, UsageError


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("missing.sqlite", None, DataError, "no ledger"),
        ("empty.sqlite", b"", DataError, "holds no ledger"),
        ("text.sqlite", b"no database at all, " * 100, DataError, "is damaged, or it is not a ledger"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path, name, content, error, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=words):
        Ledger(str(path))
    assert path.exists() == (content is not None)


def test_a_database_without_a_ledger_is_named(postgres):
    with pytest.raises(DataError, match="holds no ledger"):
        Ledger(postgres)
    with pytest.raises(EnvironmentFault, match="does not exist"):
        Ledger(postgres.replace("/postgres", "/nosuch"))


def test_databases_that_cannot_be_had_are_named(tmp_path):
    with pytest.raises(EnvironmentFault, match="does not exist"):
        Ledger(str(tmp_path / "no" / "l.sqlite"), create=True)
    with pytest.raises(UsageError, match="file or a URL"):
        Ledger("://")
    with pytest.raises(EnvironmentFault, match="not installed"):
        Ledger("nosuchdatabase://site@host/db")
    with pytest.raises(UsageError, match="in memory"):
        Ledger("sqlite://", create=True)


def test_a_password_is_in_no_message(postgres):
    with pytest.raises(EnvironmentFault) as caught:
        Ledger("postgresql+psycopg://site:secret@127.0.0.1:1/db?connect_timeout=2")
    assert "secret" not in str(caught.value) and "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://host:port/db", "postgresql+psycopg://site@host:5432:1/db",
     "sqlite:///l.sqlite?timeout=geheim", "postgresql+psycopg://\udcff@host/db", "\udcff.sqlite"],
)  # fmt: skip
def test_a_url_that_is_none_is_named_and_not_quoted(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="ledger") as caught:
        Ledger(url, create=True)
    assert "geheim" not in str(caught.value) and str(caught.value).isprintable()


@pytest.mark.parametrize(
    "where", ["site:geheim@127.0.0.1:1/db?", "127.0.0.1:1/db?user=site&password=geheim&"]
)
def test_a_password_is_in_no_message_wherever_it_stands(postgres, where):
    with pytest.raises(EnvironmentFault) as caught:
        Ledger(f"postgresql+psycopg://{where}connect_timeout=2")
    assert "geheim" not in str(caught.value) and "127.0.0.1" in str(caught.value)


def test_a_ledger_of_another_version_is_left_as_it_is(tmp_path):
    """Also when it has other tables than this version's."""
    path = tmp_path / "l.sqlite"
    Ledger(str(path), create=True)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE mpicoloc_meta SET value = '2' WHERE name = 'version'")
        connection.execute("DROP TABLE mpicoloc_claims")
    connection.close()
    before = path.read_bytes()
    for create in (False, True):
        with pytest.raises(DataError, match="version 2, but this mpicoloc only reads version 1"):
            Ledger(str(path), create=create)
    assert path.read_bytes() == before


@pytest.fixture(params=["serializable", "repeatable read", "read uncommitted"])
def strict(request, postgres):
    """A database whose transactions are of another kind by default."""
    level = request.param.replace(" ", "%5C%20")
    yield f"{postgres}?options=-c%20default_transaction_isolation%3D{level}"
    empty = sa.create_engine(postgres)
    db.tables.drop_all(empty)
    empty.dispose()


SPEND = """
ledger = Ledger(argv[0])
for i in range(20):
    ledger.charge("lab", charge(100 * int(argv[1]) + i), STAMP)
print(0)
"""


@pytest.mark.timeout(150)
def test_a_sites_kind_of_transaction_makes_no_post_fail(strict):
    ledger = Ledger(strict, create=True)
    ledger.open_account("lab", 100 * SU, 0, STAMP)
    level = ledger.database.write(lambda connection: connection.scalar(sa.text("SHOW transaction_isolation")))
    assert level == "read committed"
    results([start(SPEND, strict, i) for i in range(4)], timeout=140)
    assert assert_right(strict)["lab"] == 20 * SU


def failing(first):
    return sa.exc.DBAPIError("COMMIT", {}, Exception(first))


@pytest.mark.parametrize("first", [1213, "40001", {"S": "ERROR", "C": "40P01", "M": "deadlock detected"}])
def test_posts_in_each_others_way_are_tried_again_at_other_times(tmp_path, monkeypatch, first):
    """`first` is a conflict as drivers report it: MySQL's, some of PostgreSQL's, and pg8000."""
    database, waits = Ledger(str(tmp_path / "l.sqlite"), create=True).database, []
    monkeypatch.setattr(db.time, "sleep", waits.append)

    def work(_connection):
        raise failing(first)

    for _ in range(2):
        with pytest.raises(EnvironmentFault):
            database.write(work)
    n = db.N_TRIES - 1
    assert len(waits) == 2 * n and len(set(waits)) == 2 * n
    assert all(0.005 * 2 ** (i % n) <= wait <= 0.015 * 2 ** (i % n) for i, wait in enumerate(waits))


def test_what_no_other_try_helps_is_not_tried_again(tmp_path, monkeypatch):
    database = Ledger(str(tmp_path / "l.sqlite"), create=True).database
    monkeypatch.setattr(db.time, "sleep", lambda _: pytest.fail("tried again"))

    def work(_connection):
        raise failing({"S": "ERROR", "C": "42601"})

    with pytest.raises(EnvironmentFault):
        database.write(work)


@pytest.mark.parametrize("n_questions", [1, 2, 3])
def test_the_same_charge_posted_while_another_call_looks_is_known(postgres, n_questions):
    """After any question of a post: the answer is never that the job was charged from another profile."""
    Ledger(postgres, create=True).open_account("lab", 10 * SU, 0, STAMP)
    mine, asked = replace(charge(1), turn=("job-1", 0)), []

    def looked(connection, cursor, statement, *_):
        if "FROM mpicoloc_claims" in statement:
            asked.append(statement)
            if len(asked) == n_questions:
                Ledger(postgres).charge("lab", mine, STAMP)

    sa.event.listen(sa.Engine, "after_cursor_execute", looked)
    try:
        assert Ledger(postgres).charge("lab", mine, STAMP).kind == "charge"
        assert assert_right(postgres)["lab"] == 9 * SU
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", looked)
        empty(postgres)

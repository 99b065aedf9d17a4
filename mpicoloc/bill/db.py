"""The ledger's tables, and its connection to SQLite or any database that SQLAlchemy knows."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from mpicoloc.errors import DataError, EnvironmentFault, UsageError

VERSION = "1"
BUSY_S = 60.0
"""How long a post waits for those of others."""
N_TRIES = 5
FAR_USU = 4 * 10**18
"""No balance goes further from 0: it stays inside 64 bits with any amount added."""
GRANTS, CHARGES = "@grants", "@charges"
"""The site's own accounts: units that it gave out, and units that jobs used."""
NAME_LENGTH = 190
"""Longest text under a unique index that every database takes."""

T = TypeVar("T")
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

tables = sa.MetaData()
meta = sa.Table(
    "mpicoloc_meta",
    tables,
    sa.Column("name", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("value", sa.String(NAME_LENGTH), nullable=False),
)
accounts = sa.Table(
    "mpicoloc_accounts",
    tables,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("name", sa.String(NAME_LENGTH), nullable=False, unique=True),
    sa.Column("balance_usu", sa.BigInteger, nullable=False),
    sa.Column("floor_usu", sa.BigInteger, nullable=False),
    sa.Column("opened_unix_s", sa.Double, nullable=False),
)
transactions = sa.Table(
    "mpicoloc_transactions",
    tables,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("amount_usu", sa.BigInteger, nullable=False),
    sa.Column("refunded_usu", sa.BigInteger, nullable=False),
    sa.Column("refers_to", _ID, sa.ForeignKey("mpicoloc_transactions.id")),
    sa.Column("at_unix_s", sa.Double, nullable=False),
    sa.Column("posted_by", sa.String(NAME_LENGTH), nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("facts", sa.Text, nullable=False),
)
entries = sa.Table(
    "mpicoloc_entries",
    tables,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("transaction_id", _ID, sa.ForeignKey(transactions.c.id), nullable=False, index=True),
    sa.Column("account_id", _ID, sa.ForeignKey(accounts.c.id), nullable=False, index=True),
    sa.Column("amount_usu", sa.BigInteger, nullable=False),
)
claims = sa.Table(
    "mpicoloc_claims",
    tables,
    sa.Column("claim", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("transaction_id", _ID, sa.ForeignKey(transactions.c.id), nullable=False, index=True),
)
"""What may happen once only: a profile, a job, a reference. The database's index sees to it."""


class Database:
    """One ledger's database; `shown` names it without a password.

    Parameters
    ----------
    where : str
        File of an SQLite database, or an SQLAlchemy URL.
    create : bool
        Make the tables if there are none.

    Raises
    ------
    UsageError
        If it is no such URL.
    DataError
        If there is no ledger, or it is of another version.
    EnvironmentFault
        If the database refuses.
    """

    def __init__(self, where: str, *, create: bool = False) -> None:
        self.url = _url(where)
        # A driver may take a password in the query as well.
        self.shown = self.url.set(query={}).render_as_string(hide_password=True)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.shown = self.url.database or ""
            self._check_file(create)
        with self.translated():
            try:
                self._engine = self._connectable()
                found = self._version()
            except (ValueError, TypeError):  # not told: it may be a password
                raise UsageError(
                    f"ledger {self.shown}: its driver takes no such value behind '?'; see the URLs it takes"
                ) from None
            if create and found is None:
                self.write(_create)
                found = self._version()
        self._check_version(found)

    def _check_file(self, create: bool) -> None:
        if not self.shown or self.shown == ":memory:":
            raise UsageError("a ledger in memory would be lost at once: name a file")
        if not create and not os.path.exists(self.shown):
            raise DataError(f"no ledger {self.shown}; `mpicoloc ledger open NAME` begins one")
        folder = os.path.dirname(os.path.abspath(self.shown))
        if create and not os.path.isdir(folder):
            raise EnvironmentFault(f"the ledger's folder {folder} does not exist: create it")

    def _connectable(self) -> sa.Engine:
        try:
            waits = {} if not self.is_sqlite or "timeout" in self.url.query else {"timeout": BUSY_S}
            engine = sa.create_engine(self.url, poolclass=sa.NullPool, connect_args=waits)
        except (ImportError, exc.NoSuchModuleError) as error:
            raise EnvironmentFault(
                f"ledger {self.shown} needs a Python module that is not installed ({error}): install it"
            ) from None
        if self.is_sqlite:
            sa.event.listen(engine, "connect", _on_connect)
            sa.event.listen(engine, "begin", _on_begin)
        return engine

    def _version(self) -> str | None:
        """The version of the ledger that is there, None: there is none."""
        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(meta.name):
                return None
            return connection.scalar(sa.select(meta.c.value).where(meta.c.name == "version"))

    def _check_version(self, found: str | None) -> None:
        if found is None:
            raise DataError(f"{self.shown} holds no ledger; `mpicoloc ledger open NAME` begins one")
        if found != VERSION:
            raise DataError(
                f"ledger {self.shown} has version {found}, this mpicoloc reads {VERSION}: "
                "use the mpicoloc that made it"
            )

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """What the database refuses, as an error of ours."""
        try:
            yield
        except exc.SQLAlchemyError as error:
            reason = (str(getattr(error, "orig", None) or error).splitlines() or ["no reason given"])[0]
            if "is locked" in reason:
                reason = f"others have kept it busy for too long ({reason}); try again"
            if self.is_sqlite and type(error) is exc.DatabaseError:
                raise DataError(f"ledger {self.shown} is damaged or no ledger: {reason}") from error
            raise EnvironmentFault(f"ledger {self.shown}: {reason}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection that sees one instant of the ledger and waits for nobody."""
        several = self.url.get_backend_name() in ("postgresql", "mysql", "mariadb")
        options = {"isolation_level": "REPEATABLE READ"} if several else {}
        with self.translated(), self._engine.connect().execution_options(**options) as connection:
            yield connection

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Do `work` whole or not at all, and again if somebody else was in its way."""
        # Each statement of `work` looks and changes in one step; a site's stricter default would only make
        # posts at the same time fail.
        level = {} if self.is_sqlite else {"isolation_level": "READ COMMITTED"}
        engine = self._engine.execution_options(mpicoloc_writes=True, **level)
        with self.translated():
            for i in range(N_TRIES):
                try:
                    with engine.begin() as connection:
                        return work(connection)
                except exc.DBAPIError as error:
                    if i == N_TRIES - 1 or not _is_worth_another_try(error):
                        raise
                # Those that were in each other's way must not meet again; forks share the usual generator.
                time.sleep(0.01 * 2**i * random.SystemRandom().uniform(0.5, 1.5))
        raise AssertionError("not reached")


def _url(where: str) -> sa.URL:
    try:
        where.encode()
        if "://" not in where:
            return sa.URL.create("sqlite", database=os.path.abspath(where))
        return sa.make_url(where)
    except (exc.ArgumentError, ValueError):  # not told: there may be a password in it
        raise UsageError(
            "the ledger must be a file or a URL such as postgresql+psycopg://user@host/database, in UTF-8"
        ) from None


def _on_connect(connection: Any, _record: Any) -> None:
    # SQLAlchemy, not Python's driver, says when a transaction begins.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # Also the end of a transaction is on disk before it is told, not only its content.
    connection.execute("PRAGMA synchronous = EXTRA")


def _on_begin(connection: sa.Connection) -> None:
    # Two that read first and then both want to write would be in each other's way for good.
    writes = connection.get_execution_options().get("mpicoloc_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _is_worth_another_try(error: exc.DBAPIError) -> bool:
    """Somebody claimed the same at the same time, made the same table, or stood in a circle with us."""
    if isinstance(error, exc.IntegrityError):
        return True
    return bool({"40001", "40P01", "42P07", 1050, 1205, 1213} & _codes(error))


def _codes(error: exc.DBAPIError) -> set[Any]:
    """What PostgreSQL's drivers and MySQL's call the error, in an attribute or in the first argument."""
    names = [getattr(error.orig, name, None) for name in ("sqlstate", "pgcode")]
    first = list(getattr(error.orig, "args", ()))[:1]
    fields = [argument.get("C") for argument in first if isinstance(argument, dict)]
    return {code for code in [*names, *first, *fields] if isinstance(code, str | int)}


def _create(connection: sa.Connection) -> None:
    """Tables and the site's accounts, unless they are there."""
    tables.create_all(connection)
    if connection.scalar(sa.select(meta.c.value).where(meta.c.name == "version")) is not None:
        return
    connection.execute(meta.insert().values(name="version", value=VERSION))
    rows = [
        {"name": name, "balance_usu": 0, "floor_usu": -FAR_USU, "opened_unix_s": 0.0}
        for name in (GRANTS, CHARGES)
    ]
    connection.execute(accounts.insert(), rows)

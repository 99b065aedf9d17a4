"""Accounts of service units, in double entry: a transaction moves units between accounts and creates none.

The ledger is an SQLite file or any database that SQLAlchemy supports. Grants come from the site's account
``@grants``, and charges go to ``@charges``, so the sum of all balances is always 0. Amounts are integers in
micro-SU. Transactions are atomic.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import itertools
import json
import os
import random
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from mpicoloc.core.units import su_text
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, Refused, UsageError

VERSION = "1"
BUSY_S = 60.0
"""Longest wait for the lock of an SQLite ledger, s."""
N_TRIES = 5
FAR_USU = 4 * 10**18
"""Balances are limited to this amount above and below 0, so that a balance plus any amount fits 64 bits."""
GRANTS, CHARGES = "@grants", "@charges"
"""The site's own accounts: the one that grants units, and the one that receives the units that jobs use."""
NAME_LENGTH = 190
"""Length of the longest text that every database accepts in a unique index."""

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
"""Claims: keys of things that may be posted only once, such as a profile, a job or a reference.

The unique index enforces this.
"""


class Database:
    """The database of a ledger; `shown` is its name without a password.

    Parameters
    ----------
    where : str
        File of an SQLite database, or an SQLAlchemy URL.
    create : bool
        Create the tables if they do not exist.

    Raises
    ------
    UsageError
        If `where` is not a valid file or URL.
    DataError
        If there is no ledger, or the ledger has another version.
    EnvironmentFault
        If the database reports an error.
    """

    def __init__(self, where: str, *, create: bool = False) -> None:
        self.url = _url(where)
        # Drop the query, in which some drivers accept a password.
        self.shown = self.url.set(query={}).render_as_string(hide_password=True)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self.shown = self.url.database or ""
            self._check_file(create)
        with self.translated():
            try:
                self._engine = self._connectable()
                found = self._version()
            except (ValueError, TypeError):  # do not show the value: it may be a password
                raise UsageError(
                    f"ledger {self.shown}: its driver refuses a parameter after '?': see its documentation"
                ) from None
            if create and found is None:
                self.write(_create)
                found = self._version()
        self._check_version(found)

    def _check_file(self, create: bool) -> None:
        if not self.shown or self.shown == ":memory:":
            raise UsageError("a ledger in memory would be lost at once: name a file")
        if not create and not os.path.exists(self.shown):
            raise DataError(f"no ledger {self.shown}; `mpicoloc ledger open NAME` creates one")
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
        """The version of the existing ledger, or None if there is none."""
        with self._engine.connect() as connection:
            if not sa.inspect(connection).has_table(meta.name):
                return None
            return connection.scalar(sa.select(meta.c.value).where(meta.c.name == "version"))

    def _check_version(self, found: str | None) -> None:
        if found is None:
            raise DataError(f"{self.shown} holds no ledger; `mpicoloc ledger open NAME` creates one")
        if found != VERSION:
            raise DataError(
                f"ledger {self.shown} has version {found}, but this mpicoloc only reads version {VERSION}: "
                "use the mpicoloc that created it"
            )

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Translate database errors into `MpicolocError`."""
        try:
            yield
        except exc.SQLAlchemyError as error:
            reason = (str(getattr(error, "orig", None) or error).splitlines() or ["no reason given"])[0]
            if "is locked" in reason:
                reason = f"other calls locked it for too long ({reason}); try again"
            if self.is_sqlite and type(error) is exc.DatabaseError:
                raise DataError(f"ledger {self.shown} is damaged, or it is not a ledger: {reason}") from error
            raise EnvironmentFault(f"ledger {self.shown}: {reason}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection with a consistent snapshot of the ledger, which does not wait for writers."""
        several = self.url.get_backend_name() in ("postgresql", "mysql", "mariadb")
        options = {"isolation_level": "REPEATABLE READ"} if several else {}
        with self.translated(), self._engine.connect().execution_options(**options) as connection:
            yield connection

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in one transaction, and retry after a conflict with another writer."""
        # READ COMMITTED suffices, because each statement of `work` checks and updates atomically. If the
        # database's default is a stricter level, it would only make concurrent posts fail.
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
                # A random delay keeps conflicting writers from colliding again. It comes from the system's
                # generator, because forked processes share the state of the default generator.
                time.sleep(0.01 * 2**i * random.SystemRandom().uniform(0.5, 1.5))
        raise AssertionError("not reached")


def _url(where: str) -> sa.URL:
    try:
        where.encode()
        if "://" not in where:
            return sa.URL.create("sqlite", database=os.path.abspath(where))
        return sa.make_url(where)
    except (exc.ArgumentError, ValueError):  # do not show the URL: it may contain a password
        raise UsageError(
            "the ledger must be a file or a URL such as postgresql+psycopg://user@host/database, in UTF-8"
        ) from None


def _on_connect(connection: Any, _record: Any) -> None:
    # SQLAlchemy, not Python's driver, begins transactions.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    # With EXTRA, a commit returns only when the removal of the journal is on disk, and not just the data.
    connection.execute("PRAGMA synchronous = EXTRA")


def _on_begin(connection: sa.Connection) -> None:
    # Take the write lock at once: two transactions that read first and then both want to write deadlock.
    writes = connection.get_execution_options().get("mpicoloc_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _is_worth_another_try(error: exc.DBAPIError) -> bool:
    """Whether the error comes from a concurrent claim, a concurrent table creation or a deadlock."""
    if isinstance(error, exc.IntegrityError):
        return True
    return bool({"40001", "40P01", "42P07", 1050, 1205, 1213} & _codes(error))


def _codes(error: exc.DBAPIError) -> set[Any]:
    """Error codes from the drivers of PostgreSQL and MySQL, in an attribute or in the first argument."""
    names = [getattr(error.orig, name, None) for name in ("sqlstate", "pgcode")]
    first = list(getattr(error.orig, "args", ()))[:1]
    fields = [argument.get("C") for argument in first if isinstance(argument, dict)]
    return {code for code in [*names, *first, *fields] if isinstance(code, str | int)}


def _create(connection: sa.Connection) -> None:
    """Create the tables and the site's accounts, unless they exist."""
    tables.create_all(connection)
    if connection.scalar(sa.select(meta.c.value).where(meta.c.name == "version")) is not None:
        return
    connection.execute(meta.insert().values(name="version", value=VERSION))
    rows = [
        {"name": name, "balance_usu": 0, "floor_usu": -FAR_USU, "opened_unix_s": 0.0}
        for name in (GRANTS, CHARGES)
    ]
    connection.execute(accounts.insert(), rows)


_NAME = re.compile(r"[^\W_][\w .=@+\\-]{0,63}(?<! )")
"""Letters of any language, and all characters that directory services use in names (``DOMAIN\\user``)."""


@dataclass(frozen=True)
class Stamp:
    """Time and author of a transaction."""

    at_unix_s: float
    by: str


@dataclass(frozen=True)
class Charge:
    """The charge for a profile, or for a step without a profile.

    Attributes
    ----------
    digest : str
        Digest of the profile, or of Slurm's record if no profile counts for this charge. The same content is
        charged only once.
    job_id : str
        Name of the job.
    start_unix_s : float
        Start of the job; 0: unknown. A job with this name and start is charged from one profile only.
    amount_usu : int
        Price.
    facts : mapping
        Inputs and intermediate results of the price, as plain values.
    run : str
        Unique name of the run, from the batch system. The run is charged from one profile only, and the
        profile for one run only. If the name is empty, `job_id` and `start_unix_s` identify the run.
    spooled : str
        Name of the file in a spool that this charge settles; empty if there is none. `settled` finds the
        charge by this name.
    turn : (str, int) or None
        Job number, and number of charges with a turn that were posted for that job number before this one
        (`charges.charges_of_job`). None if the charge does not depend on earlier charges.
    """

    digest: str
    job_id: str
    start_unix_s: float
    amount_usu: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    run: str = ""
    spooled: str = ""
    turn: tuple[str, int] | None = None

    @property
    def claims(self) -> list[str]:
        """The claims that this charge makes."""
        found = [content_claim(self.digest)]
        if self.run:
            found.append(run_claim(self.run))
        elif self.start_unix_s > 0:
            found.append(run_claim(json.dumps([self.job_id, self.start_unix_s])))
        return [*found, spool_claim(self.spooled)] if self.spooled else found


class Overtaken(MpicolocError):
    """Another call has charged the job since its charges were read: read them again."""


@dataclass(frozen=True)
class Account:
    """One account; `floor_usu` is the lowest allowed balance."""

    name: str
    balance_usu: int
    floor_usu: int
    opened_unix_s: float


@dataclass(frozen=True)
class Posting:
    """A transaction and the user's account; `is_new` is false if an earlier call posted the transaction."""

    transaction: int
    kind: str
    account: str
    amount_usu: int
    balance_usu: int
    is_new: bool


@dataclass(frozen=True)
class Line:
    """One line of a statement: the amount, which is above 0 if it was received, and the balance after it."""

    transaction: int
    at_unix_s: float
    kind: str
    amount_usu: int
    balance_usu: int
    refers_to: int | None
    posted_by: str
    note: str
    facts: Mapping[str, Any]


def is_name(name: str) -> bool:
    """Whether an account can have that name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    """Check the name of an account.

    Raises
    ------
    UsageError
        If an account cannot have that name.
    """
    if not is_name(name):
        raise UsageError(
            f"account name {name!r} is not valid: use up to 64 letters, digits, blanks and ._-=@+\\, begin "
            "with a letter or digit, and do not end with a blank"
        )


class Ledger:
    """The accounts in one database. Parameters and errors are those of `Database`."""

    def __init__(self, where: str, *, create: bool = False) -> None:
        self.database = Database(where, create=create)

    def open_account(self, name: str, grant_usu: int, overdraft_usu: int, stamp: Stamp) -> Posting:
        """Open an account, with a first grant.

        Raises
        ------
        UsageError
            If the name is not valid.
        Refused
            If the account exists.
        """
        check_name(name)

        def work(connection: sa.Connection) -> Posting:
            if connection.scalar(sa.select(accounts.c.id).where(accounts.c.name == name)) is not None:
                raise Refused(f"account {name} exists already; `mpicoloc ledger grant` adds units to it")
            row = {"name": name, "balance_usu": 0, "floor_usu": -overdraft_usu}
            connection.execute(accounts.insert().values(**row, opened_unix_s=stamp.at_unix_s))
            return post_transfer(connection, "open", (GRANTS, name), grant_usu, stamp)

        return self.database.write(work)

    def grant(self, name: str, amount_usu: int, stamp: Stamp, reference: str = "", note: str = "") -> Posting:
        """Add units to an account. A grant with a reference is posted only once, even if repeated.

        Raises
        ------
        UsageError
            If there is no such account, or it is the site's own.
        """
        claim = _claim("grant", name, reference)

        def work(connection: sa.Connection) -> Posting:
            users_account(connection, name)
            if done := claimed(connection, claim):
                return posted(connection, done[0])
            return post_transfer(connection, "grant", (GRANTS, name), amount_usu, stamp, claim, note=note)

        return self.database.write(work)

    def charge(self, name: str, charge: Charge, stamp: Stamp) -> Posting:
        """Charge a profile to an account. The charge is posted only once, even if repeated.

        Raises
        ------
        UsageError
            If there is no such account, or it is the site's own.
        Overtaken
            If another charge has taken this charge's turn.
        Refused
            If the account has too few units; if the profile was already charged to another account or for
            another run; if it was refunded but not released; or if another profile of the job was charged.
        """

        def work(connection: sa.Connection) -> Posting:
            users_account(connection, name)
            turn = turn_claims(charge.turn[0], charge.turn[1:]) if charge.turn else []
            # Use a single query: between two queries, another call might post the same charge.
            held = holders(connection, [*charge.claims, *turn])
            if charge.claims[0] in held:
                return _earlier_posting(connection, held[charge.claims[0]], name, charge)
            if held.keys() & set(turn):
                raise Overtaken(
                    f"another call has just charged job {charge.job_id}: see `mpicoloc ledger statement`"
                )
            if held:
                raise Refused(
                    f"job {charge.job_id} was charged from another profile or without one, as transaction "
                    f"{min(held.values())}: refund that transaction first"
                )
            facts = {**charge.facts, "run": charge.run} if charge.run else charge.facts
            taken = [*charge.claims, *turn]
            return post_transfer(
                connection, "charge", (name, CHARGES), charge.amount_usu, stamp, taken, facts=facts
            )

        return self.database.write(work)

    def refund(
        self,
        transaction: int,
        amount_usu: int | None,
        stamp: Stamp,
        reference: str = "",
        note: str = "",
        *,
        release: bool = False,
    ) -> Posting:
        """Refund a charge, in full or in part; never more than was charged.

        After a full refund, another profile of the same job can be charged. The refunded profile itself can
        be charged again only if it was released.

        Parameters
        ----------
        transaction : int
            Number of the charge.
        amount_usu : int or None
            Amount to refund; None for the remaining amount, which may be 0.
        stamp, reference, note
            As in `grant`.
        release : bool
            Refund the remaining amount, and let the same profile be charged again, to any account at any
            rate.

        Raises
        ------
        UsageError
            If there is no such transaction, or `release` comes with an amount.
        Refused
            If the transaction is not a charge, the amount exceeds the remaining one, or there is nothing left
            to refund or to release.
        """
        if release and amount_usu is not None:
            raise UsageError("a charge can only be released in full: leave out the amount")
        claim = _claim("refund", str(transaction), reference)

        def work(connection: sa.Connection) -> Posting:
            row = transaction_row(connection, transaction, keep_others_off=True)
            if row.kind != "charge":
                raise Refused(
                    f"transaction {transaction} is of kind {row.kind}, not a charge: nothing to refund"
                )
            if done := claimed(connection, claim):
                return posted(connection, done[0])
            given = take_back(connection, row, amount_usu, release)
            way = CHARGES, payer(connection, transaction)
            return post_transfer(
                connection, "refund", way, given, stamp, claim, note=note, refers_to=transaction
            )

        return self.database.write(work)

    def accounts(self) -> list[Account]:
        """All accounts by name, the site's own first."""
        with self.database.reading() as connection:
            rows = connection.execute(sa.select(accounts).order_by(accounts.c.name)).all()
        return [Account(row.name, row.balance_usu, row.floor_usu, row.opened_unix_s) for row in rows]

    def statement(self, name: str) -> list[Line]:
        """All amounts that an account received and paid, oldest first.

        Raises
        ------
        UsageError
            If there is no such account.
        """
        with self.database.reading() as connection:
            account = account_row(connection, name)
            rows = connection.execute(
                sa.select(entries.c.amount_usu.label("moved_usu"), transactions)
                .join(transactions, transactions.c.id == entries.c.transaction_id)
                .where(entries.c.account_id == account.id)
                .order_by(entries.c.id)
            ).all()
        balances_usu = itertools.accumulate(row.moved_usu for row in rows)
        return [
            Line(row.id, row.at_unix_s, row.kind, row.moved_usu, balance_usu, row.refers_to, row.posted_by,
                 row.note, json.loads(row.facts))
            for row, balance_usu in zip(rows, balances_usu, strict=True)
        ]  # fmt: skip


def _claim(kind: str, of: str, reference: str) -> list[str]:
    return [f"{kind}:{hashed(json.dumps([of, reference]))}"] if reference else []


def posted(connection: sa.Connection, number: int, *, is_new: bool = False) -> Posting:
    """The posting of a transaction, read within the caller's database transaction."""
    row, name = transaction_row(connection, number), payer(connection, number)
    return Posting(number, row.kind, name, row.amount_usu, account_row(connection, name).balance_usu, is_new)


def _earlier_posting(connection: sa.Connection, number: int, name: str, wanted: Charge) -> Posting:
    """The earlier charge of the same profile.

    Raises `Refused` if that charge is to another account or for another run, or was refunded.
    """
    posting, charge = posted(connection, number), transaction_row(connection, number)
    before = json.loads(charge.facts).get("run", wanted.run)
    if wanted.run and before != wanted.run:
        raise Refused(
            f"this profile was charged for run {before}, as transaction {number}: one of the files is a copy"
        )
    remedy = f"`mpicoloc ledger refund {number} --release` lets it be charged again"
    if posting.account != name:
        raise Refused(
            f"this profile was charged to account {posting.account}, as transaction {number}; {remedy}"
        )
    if is_given_back(connection, charge):
        raise Refused(f"this profile was charged as transaction {number} and refunded; {remedy}")
    free = [claim for claim in wanted.claims[1:] if not claimed(connection, [claim])]
    take_claims(connection, number, free if wanted.run else [])
    return posting


def is_given_back(connection: sa.Connection, charge: Any) -> bool:
    """Whether a charge was refunded in full. A charge of 0 SU can be refunded, too."""
    refund = sa.select(transactions.c.id).where(transactions.c.refers_to == charge.id).limit(1)
    return charge.refunded_usu == charge.amount_usu and connection.scalar(refund) is not None


RELEASED = "released:"
"""Prefix of the claim that a released profile's charge keeps."""
SPOOLED = "spool:"
"""Prefix of a claim on a file in a spool. The file counts as settled while the claim exists."""


def hashed(text: str) -> str:
    """Digest of a text, short enough for a claim."""
    # File names may contain any bytes.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def content_claim(digest: str) -> str:
    """The claim on a profile or record, by its content."""
    return f"profile:{digest}"


def run_claim(run: str) -> str:
    """The claim on a run, by its name."""
    return f"job:{hashed(run)}"


def turn_claims(job: str, numbers: Iterable[int]) -> list[str]:
    """The claims on a job's turns with these numbers, from 0. A refund does not remove such claims."""
    name = hashed(job)
    return [f"turn:{name}:{number}" for number in numbers]


def spool_claim(name: str) -> str:
    """The claim on a file in a spool."""
    claim = f"{SPOOLED}{name}"
    return claim if len(claim) <= NAME_LENGTH and claim.isascii() else f"{SPOOLED}#{hashed(name)}"


def account_row(connection: sa.Connection, name: str) -> Any:
    """The row of an account."""
    row = connection.execute(sa.select(accounts).where(accounts.c.name == name)).first()
    if row is None or row.name != name:  # to some databases, u with and without an umlaut are equal
        raise UsageError(f"no account {name!r}; `mpicoloc ledger list` shows all accounts")
    return row


def users_account(connection: sa.Connection, name: str) -> Any:
    """The row of a user's account. The site's own accounts are refused."""
    if name in (GRANTS, CHARGES):
        raise UsageError(
            f"account {name} is the site's own, where grants and charges are balanced: name a user's account"
        )
    return account_row(connection, name)


def transaction_row(connection: sa.Connection, number: int, *, keep_others_off: bool = False) -> Any:
    """The row of a transaction."""
    wanted = sa.select(transactions).where(transactions.c.id == number)
    # The row lock keeps others from changing the remaining amount. A database without row locks is still
    # safe: it merely refuses more refunds.
    row = connection.execute(wanted.with_for_update() if keep_others_off else wanted).first()
    if row is None:
        raise UsageError(f"no transaction {number}; `mpicoloc ledger statement NAME` shows all of an account")
    return row


def claimed(connection: sa.Connection, wanted: Sequence[str]) -> list[int]:
    """Transactions that hold one of the claims."""
    return sorted(set(holders(connection, wanted).values()))


def holders(connection: sa.Connection, wanted: Sequence[str]) -> dict[str, int]:
    """The claims in `wanted` that are held, with their transactions."""
    rows = connection.execute(sa.select(claims).where(claims.c.claim.in_(wanted)))
    return {row.claim: row.transaction_id for row in rows}


def take_claims(connection: sa.Connection, number: int, wanted: Sequence[str]) -> None:
    """Record that a transaction holds these claims."""
    if wanted:
        connection.execute(claims.insert(), [{"claim": one, "transaction_id": number} for one in wanted])


def payer(connection: sa.Connection, transaction: int) -> str:
    """The user's account in a transaction."""
    return str(connection.scalar(
        sa.select(accounts.c.name).join(entries, entries.c.account_id == accounts.c.id)
        .where(entries.c.transaction_id == transaction, accounts.c.name.not_in((GRANTS, CHARGES)))
    ))  # fmt: skip


def take_back(connection: sa.Connection, charge: Any, amount_usu: int | None, release: bool) -> int:
    """Add an amount to the refunded part of a charge. One statement both checks and updates it."""
    given = int(charge.amount_usu - charge.refunded_usu) if amount_usu is None else amount_usu
    after = transactions.c.refunded_usu + given
    changed = connection.execute(
        transactions.update()
        .where(transactions.c.id == charge.id, after <= transactions.c.amount_usu)
        .values(refunded_usu=after)
    )
    now = transaction_row(connection, charge.id)
    left_usu = int(now.amount_usu - now.refunded_usu)
    n_freed = 0 if left_usu else _free(connection, charge.id, release)
    if changed.rowcount != 1 or not (given or n_freed):
        raise Refused(f"only {su_text(left_usu)} SU of transaction {charge.id} can still be refunded")
    return given


def _free(connection: sa.Connection, number: int, release: bool) -> int:
    """Free a charge's claims on its job and, with `release`, on its profile. Returns how many were freed."""
    of_charge = claims.c.transaction_id == number
    n_freed = connection.execute(claims.delete().where(of_charge, claims.c.claim.like("job:%"))).rowcount
    if release:
        # Rename the row instead of deleting it, because the audit expects such a claim for each charge.
        profile = claims.update().where(of_charge, claims.c.claim.like("profile:%"))
        n_freed += connection.execute(profile.values(claim=f"{RELEASED}{number}")).rowcount
        connection.execute(claims.delete().where(of_charge, claims.c.claim.like(f"{SPOOLED}%")))
    return n_freed


def post_transfer(
    connection: sa.Connection,
    kind: str,
    way: tuple[str, str],
    amount_usu: int,
    stamp: Stamp,
    claimed: Sequence[str] = (),
    *,
    note: str = "",
    refers_to: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Posting:
    """Move an amount from the first account of `way` to the second, and record the transaction."""
    if way[0] == way[1]:
        raise UsageError(f"account {way[0]} cannot pay itself: name another account")
    row = {"kind": kind, "amount_usu": amount_usu, "refunded_usu": 0, "refers_to": refers_to, "note": note}
    row |= {"at_unix_s": stamp.at_unix_s, "posted_by": stamp.by, "facts": json.dumps(dict(facts or {}))}
    inserted = connection.execute(transactions.insert().values(**row)).inserted_primary_key
    number = int(inserted[0]) if inserted is not None else 0
    take_claims(connection, number, claimed)
    moves = [(account_row(connection, way[0]), -amount_usu), (account_row(connection, way[1]), amount_usu)]
    # Update the accounts in a fixed order, so that two posts cannot deadlock.
    for moved, moved_usu in sorted(moves, key=lambda move: move[0].id):
        _move(connection, moved, moved_usu)
        row = {"transaction_id": number, "account_id": moved.id, "amount_usu": moved_usu}
        connection.execute(entries.insert().values(**row))
    return posted(connection, number, is_new=True)


def _move(connection: sa.Connection, account: Any, amount_usu: int) -> None:
    """Change a balance if its new value is allowed. One statement both checks and updates it."""
    after = accounts.c.balance_usu + amount_usu
    lowest = accounts.c.floor_usu if amount_usu < 0 else -FAR_USU
    changed = connection.execute(
        accounts.update()
        .where(accounts.c.id == account.id, after >= lowest, after <= FAR_USU)
        .values(balance_usu=after)
    )
    if changed.rowcount != 1:
        floor = f", and may go down to {su_text(account.floor_usu)} SU" if account.floor_usu else ""
        raise Refused(
            f"account {account.name} does not have enough units: it has {su_text(account.balance_usu)} SU"
            f"{floor}, but needs {su_text(abs(amount_usu))} SU"
        )


_N_ASKED = 500
"""Largest number of claims in one query: databases limit the length of statements."""


@dataclass(frozen=True)
class Standing:
    """A charge that holds a claim, its refunded amount, and the facts behind its price."""

    posting: Posting
    refunded_usu: int
    facts: Mapping[str, Any]


def settled(ledger: Ledger, names: Sequence[str]) -> set[str]:
    """Those of the named files that were charged and not released afterwards."""
    by_claim = {spool_claim(name): name for name in names}
    wanted, found = list(by_claim), set[str]()
    # Build the statement once and ask for many files at a time, because a spool may have 100,000 files.
    is_asked = claims.c.claim.in_(sa.bindparam("asked", expanding=True))
    with ledger.database.reading() as connection:
        for at in range(0, len(wanted), _N_ASKED):
            some = {"asked": wanted[at : at + _N_ASKED]}
            found.update(connection.scalars(sa.select(claims.c.claim).where(is_asked), some).all())
    return {by_claim[claim] for claim in found}


def standing(
    ledger: Ledger, *, runs: Sequence[str] = (), files: Sequence[str] = (), digests: Sequence[str] = ()
) -> list[Standing]:
    """Charges that hold a claim on one of these runs, spooled files or digests (see `Charge`), oldest first.

    A claim on a run ends when the charge is refunded in full; claims on files and digests end when the charge
    is released.
    """
    wanted = [
        *map(run_claim, runs),
        *map(spool_claim, files),
        *map(content_claim, digests),
    ]
    with ledger.database.reading() as connection:
        return [_standing(connection, number) for number in claimed(connection, wanted)]


def charges_of_start(ledger: Ledger, start: str) -> dict[str, Standing]:
    """Charges that settle files whose names begin with `start` and a dot, by file name.

    The oldest charge comes first.
    """
    first = f"{SPOOLED}{start}."
    is_of_start = claims.c.claim.startswith(first, autoescape=True)
    if ledger.database.is_sqlite:  # SQLite's LIKE would not use the index; "/" follows "." in ASCII
        is_of_start = sa.and_(claims.c.claim >= first, claims.c.claim < f"{first[:-1]}/")
    with ledger.database.reading() as connection:
        asked = sa.select(claims).where(is_of_start).order_by(claims.c.transaction_id, claims.c.claim)
        rows = connection.execute(asked).all()
        return {row.claim.removeprefix(SPOOLED): _standing(connection, row.transaction_id) for row in rows}


def cover(ledger: Ledger, run: str, name: str) -> None:
    """Let the charge that holds the claim on a run settle one more file."""

    def work(connection: sa.Connection) -> None:
        if not claimed(connection, [spool_claim(name)]):
            for number in claimed(connection, [run_claim(run)]):
                take_claims(connection, number, [spool_claim(name)])

    ledger.database.write(work)


def _standing(connection: sa.Connection, number: int) -> Standing:
    row = transaction_row(connection, number)
    return Standing(posted(connection, number), row.refunded_usu, json.loads(row.facts))


def open_ledger(where: object, *, create: bool) -> Ledger:
    """The ledger of a file or URL, or the user's own if `where` is None; `create` then creates its folder."""
    if where is None:
        base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        folder = os.path.join(base, "mpicoloc")
        where = os.path.join(folder, "ledger.sqlite")
        try:
            if create:
                os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(
                f"the ledger's folder {folder} cannot be made ({error.strerror}): name a file with --ledger"
            ) from None
    return Ledger(str(where), create=create)


def stamp_now() -> Stamp:
    """Time, user and host of this call."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = str(os.getuid())
    # User and host names may contain any bytes.
    by = f"{user}@{socket.gethostname()}".encode("utf-8", "replace").decode()
    return Stamp(time.time(), by[:190])

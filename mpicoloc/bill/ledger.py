"""Accounts of service units, in double entry: every transaction moves units between accounts and makes none.

They are in SQLite or any database that SQLAlchemy knows. A grant comes from the site's account ``@grants``,
a charge goes to ``@charges``; the sum of all balances is always 0. Amounts are whole micro-SU. A
transaction is in the database whole or not at all.
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
"""Time that a post waits for those of others."""
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
"""Events that may happen once only: a profile, a job, a reference. The database's index sees to it."""


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
                    f"ledger {self.shown}: its driver refuses a value after '?': see the URLs that it takes"
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
        """Turn an error of the database into one of ours."""
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
    """Codes of the error by PostgreSQL's drivers and MySQL's, in an attribute or in the first argument."""
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


_NAME = re.compile(r"[^\W_][\w .=@+\\-]{0,63}(?<! )")
"""Letters of any language, and all signs that directories put into names of users (``DOMAIN\\user``)."""


@dataclass(frozen=True)
class Stamp:
    """When a transaction was posted, and by whom."""

    at_unix_s: float
    by: str


@dataclass(frozen=True)
class Charge:
    """The charge for a profile, or for a step that left none.

    Attributes
    ----------
    digest : str
        Of the profile's content, or of that of Slurm's record where no profile counts; the same content is
        charged once.
    job_id : str
        Name of the job.
    start_unix_s : float
        When it started, 0: unknown. A job, told by both, is charged from one profile only.
    amount_usu : int
        Price.
    facts : mapping
        How the price came about, as plain values.
    run : str
        Name of the run by the batch system, unlike that of any other: it is charged from one profile only,
        and this profile for no other run. Empty: `job_id` and `start_unix_s` name it.
    spooled : str
        Name of the file in a spool that this charge settles, by which `settled` finds it;
        empty: none.
    turn : (str, int) or None
        The number of its job, and how many charges of jobs of that number took a turn before
        (`charges.charges_of_job`); None: those do not matter.
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
    """The job was charged after its charges were looked at: look again."""


@dataclass(frozen=True)
class Account:
    """One account; `floor_usu` is the lowest balance that it may have."""

    name: str
    balance_usu: int
    floor_usu: int
    opened_unix_s: float


@dataclass(frozen=True)
class Posting:
    """A transaction and its account; `is_new` is false when it had been posted before."""

    transaction: int
    kind: str
    account: str
    amount_usu: int
    balance_usu: int
    is_new: bool


@dataclass(frozen=True)
class Line:
    """One line of a statement: what came (above 0) or went, and what was there after it."""

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
    """Refuse what cannot name an account.

    Raises
    ------
    UsageError
        If it is no name.
    """
    if not is_name(name):
        raise UsageError(
            f"account name {name!r}: use up to 64 letters, digits, blanks, ._-=@+\\; a letter or digit first"
        )


class Ledger:
    """The accounts in one database; parameters and errors as of `Database`."""

    def __init__(self, where: str, *, create: bool = False) -> None:
        self.database = Database(where, create=create)

    def open_account(self, name: str, grant_usu: int, overdraft_usu: int, stamp: Stamp) -> Posting:
        """Open an account, with a first grant.

        Raises
        ------
        UsageError
            If the name is none.
        Refused
            If there is such an account.
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
        """Add units to an account; with a reference, once however often it is called.

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
        """Charge a profile to an account, once however often it is called.

        Raises
        ------
        UsageError
            If there is no such account, or it is the site's own.
        Overtaken
            If it is not the charge's turn any more.
        Refused
            If the account has too few units; if the profile was charged to another account or for another
            run, or was given back and not released; if another profile of the same job was charged.
        """

        def work(connection: sa.Connection) -> Posting:
            users_account(connection, name)
            turn = turn_claims(charge.turn[0], charge.turn[1:]) if charge.turn else []
            # All in one question: between two another call may post the same charge.
            held = holders(connection, [*charge.claims, *turn])
            if charge.claims[0] in held:
                return _earlier_posting(connection, held[charge.claims[0]], name, charge)
            if held.keys() & set(turn):
                raise Overtaken(
                    f"job {charge.job_id} was charged in the meantime: see `mpicoloc ledger statement`"
                )
            if held:
                raise Refused(
                    f"job {charge.job_id} was charged from another profile or without one, as transaction "
                    f"{min(held.values())}: refund that first"
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
        """Give back a charge, or a part of it; never more than was charged.

        After all of it is given back, another profile of the same job may be charged; the same one only if it
        was released.

        Parameters
        ----------
        transaction : int
            The charge.
        amount_usu : int or None
            How much; None: what is left of it, which may be nothing.
        stamp, reference, note
            As of `grant`.
        release : bool
            Give back what is left, and let the same profile be charged again, to any account at any rate.

        Raises
        ------
        UsageError
            If there is no such transaction, or a part of it is to be released.
        Refused
            If it is no charge, less is left of it, or there is nothing left to give back or to release.
        """
        if release and amount_usu is not None:
            raise UsageError("a charge is released as a whole: leave out the amount, which is what is left")
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
        """All that came to an account and went from it, oldest first.

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
    """A transaction as it is answered; part of one database transaction."""
    row, name = transaction_row(connection, number), payer(connection, number)
    return Posting(number, row.kind, name, row.amount_usu, account_row(connection, name).balance_usu, is_new)


def _earlier_posting(connection: sa.Connection, number: int, name: str, wanted: Charge) -> Posting:
    """The charge of the same profile, if it is one to that account and still holds."""
    posting, charge = posted(connection, number), transaction_row(connection, number)
    before = json.loads(charge.facts).get("run", wanted.run)
    if wanted.run and before != wanted.run:
        raise Refused(f"this profile was charged for run {before}, as transaction {number}: one is a copy")
    remedy = f"`mpicoloc ledger refund {number} --release` lets it be charged again"
    if posting.account != name:
        raise Refused(
            f"this profile was charged to account {posting.account}, as transaction {number}; {remedy}"
        )
    if is_given_back(connection, charge):
        raise Refused(f"this profile was charged as transaction {number} and given back; {remedy}")
    free = [claim for claim in wanted.claims[1:] if not claimed(connection, [claim])]
    take_claims(connection, number, free if wanted.run else [])
    return posting


def is_given_back(connection: sa.Connection, charge: Any) -> bool:
    """Whether all of a charge was given back; one of 0 SU can be, too."""
    refund = sa.select(transactions.c.id).where(transactions.c.refers_to == charge.id).limit(1)
    return charge.refunded_usu == charge.amount_usu and connection.scalar(refund) is not None


RELEASED = "released:"
"""Prefix of a claim on a profile that was released."""
SPOOLED = "spool:"
"""Prefix of a claim on a file of a spool; that file needs no further look while the claim stands."""


def hashed(text: str) -> str:
    """A text of any length and content, as a name."""
    # Names of files may have any bytes.
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def content_claim(digest: str) -> str:
    """The claim on what is charged, by its content."""
    return f"profile:{digest}"


def run_claim(run: str) -> str:
    """The claim on a run, by its name."""
    return f"job:{hashed(run)}"


def turn_claims(job: str, numbers: Iterable[int]) -> list[str]:
    """The claims to be these charges of a job, counted from 0; they stay, whatever is refunded."""
    name = hashed(job)
    return [f"turn:{name}:{number}" for number in numbers]


def spool_claim(name: str) -> str:
    """The claim on a file of a spool."""
    claim = f"{SPOOLED}{name}"
    return claim if len(claim) <= NAME_LENGTH and claim.isascii() else f"{SPOOLED}#{hashed(name)}"


def account_row(connection: sa.Connection, name: str) -> Any:
    """The row of an account."""
    row = connection.execute(sa.select(accounts).where(accounts.c.name == name)).first()
    if row is None or row.name != name:  # some databases take mueller's umlaut for a u
        raise UsageError(f"no account {name!r}; `mpicoloc ledger list` shows all")
    return row


def users_account(connection: sa.Connection, name: str) -> Any:
    """An account that units can be given to or charged to, which the site's own are not."""
    if name in (GRANTS, CHARGES):
        raise UsageError(
            f"account {name} is the site's own, the other side of each post: name a user's account"
        )
    return account_row(connection, name)


def transaction_row(connection: sa.Connection, number: int, *, keep_others_off: bool = False) -> Any:
    """The row of a transaction."""
    wanted = sa.select(transactions).where(transactions.c.id == number)
    # So "what is left" is not refused for nothing; databases that leave it out are as right.
    row = connection.execute(wanted.with_for_update() if keep_others_off else wanted).first()
    if row is None:
        raise UsageError(f"no transaction {number}; `mpicoloc ledger statement NAME` shows their numbers")
    return row


def claimed(connection: sa.Connection, wanted: Sequence[str]) -> list[int]:
    """Transactions that hold one of the claims."""
    return sorted(set(holders(connection, wanted).values()))


def holders(connection: sa.Connection, wanted: Sequence[str]) -> dict[str, int]:
    """Those of the claims that are held, with their transactions."""
    rows = connection.execute(sa.select(claims).where(claims.c.claim.in_(wanted)))
    return {row.claim: row.transaction_id for row in rows}


def take_claims(connection: sa.Connection, number: int, wanted: Sequence[str]) -> None:
    """Let a transaction hold these claims."""
    if wanted:
        connection.execute(claims.insert(), [{"claim": one, "transaction_id": number} for one in wanted])


def payer(connection: sa.Connection, transaction: int) -> str:
    """The account that a transaction concerns, which is none of the site's."""
    return str(connection.scalar(
        sa.select(accounts.c.name).join(entries, entries.c.account_id == accounts.c.id)
        .where(entries.c.transaction_id == transaction, accounts.c.name.not_in((GRANTS, CHARGES)))
    ))  # fmt: skip


def take_back(connection: sa.Connection, charge: Any, amount_usu: int | None, release: bool) -> int:
    """Note on the charge how much of it is refunded, looking and changing in one step."""
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
        raise Refused(f"transaction {charge.id}: {su_text(left_usu)} SU of it are left to refund")
    return given


def _free(connection: sa.Connection, number: int, release: bool) -> int:
    """Let the job of a charge, and its profile if it is released, be charged again; how many claims fell."""
    of_charge = claims.c.transaction_id == number
    n_freed = connection.execute(claims.delete().where(of_charge, claims.c.claim.like("job:%"))).rowcount
    if release:
        # The row stays under another name: the audit misses none.
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
    """Move an amount from the first account to the second, and write down that."""
    if way[0] == way[1]:
        raise UsageError(f"account {way[0]} cannot pay itself: name another one")
    row = {"kind": kind, "amount_usu": amount_usu, "refunded_usu": 0, "refers_to": refers_to, "note": note}
    row |= {"at_unix_s": stamp.at_unix_s, "posted_by": stamp.by, "facts": json.dumps(dict(facts or {}))}
    inserted = connection.execute(transactions.insert().values(**row)).inserted_primary_key
    number = int(inserted[0]) if inserted is not None else 0
    take_claims(connection, number, claimed)
    moves = [(account_row(connection, way[0]), -amount_usu), (account_row(connection, way[1]), amount_usu)]
    # In one order for everybody, or two posts could wait for each other.
    for moved, moved_usu in sorted(moves, key=lambda move: move[0].id):
        _move(connection, moved, moved_usu)
        row = {"transaction_id": number, "account_id": moved.id, "amount_usu": moved_usu}
        connection.execute(entries.insert().values(**row))
    return posted(connection, number, is_new=True)


def _move(connection: sa.Connection, account: Any, amount_usu: int) -> None:
    """Change a balance if it may have the new value, looking and changing in one step."""
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
            f"account {account.name} does not have enough units: {su_text(account.balance_usu)} SU{floor}, "
            f"needs {su_text(abs(amount_usu))} SU"
        )


_N_ASKED = 500
"""Claims in one question; databases take no statement of any length."""


@dataclass(frozen=True)
class Standing:
    """A charge that holds a claim, how much of it was given back, and how its price came about."""

    posting: Posting
    refunded_usu: int
    facts: Mapping[str, Any]


def settled(ledger: Ledger, names: Sequence[str]) -> set[str]:
    """Which of these files were charged, and not released since."""
    by_claim = {spool_claim(name): name for name in names}
    wanted, found = list(by_claim), set[str]()
    # One statement for all questions, and its answers in one go: a spool has 100,000 of them.
    is_asked = claims.c.claim.in_(sa.bindparam("asked", expanding=True))
    with ledger.database.reading() as connection:
        for at in range(0, len(wanted), _N_ASKED):
            some = {"asked": wanted[at : at + _N_ASKED]}
            found.update(connection.scalars(sa.select(claims.c.claim).where(is_asked), some).all())
    return {by_claim[claim] for claim in found}


def standing(
    ledger: Ledger, *, runs: Sequence[str] = (), files: Sequence[str] = (), digests: Sequence[str] = ()
) -> list[Standing]:
    """Charges that hold the claim on one of these (`Charge.run`, `spooled`, `digest`), oldest first.

    That on a run ends when all of the charge is given back, the others when it is released.
    """
    wanted = [
        *map(run_claim, runs),
        *map(spool_claim, files),
        *map(content_claim, digests),
    ]
    with ledger.database.reading() as connection:
        return [_standing(connection, number) for number in claimed(connection, wanted)]


def charges_of_start(ledger: Ledger, start: str) -> dict[str, Standing]:
    """Charges that settle files whose names begin with this and a dot, by these names; oldest first."""
    first = f"{SPOOLED}{start}."
    is_of_start = claims.c.claim.startswith(first, autoescape=True)
    if ledger.database.is_sqlite:  # whose LIKE uses no index; "/" follows "."
        is_of_start = sa.and_(claims.c.claim >= first, claims.c.claim < f"{first[:-1]}/")
    with ledger.database.reading() as connection:
        asked = sa.select(claims).where(is_of_start).order_by(claims.c.transaction_id, claims.c.claim)
        rows = connection.execute(asked).all()
        return {row.claim.removeprefix(SPOOLED): _standing(connection, row.transaction_id) for row in rows}


def cover(ledger: Ledger, run: str, name: str) -> None:
    """Let the charge of a run settle one more file, as long as it holds the claim on the run."""

    def work(connection: sa.Connection) -> None:
        if not claimed(connection, [spool_claim(name)]):
            for number in claimed(connection, [run_claim(run)]):
                take_claims(connection, number, [spool_claim(name)])

    ledger.database.write(work)


def _standing(connection: sa.Connection, number: int) -> Standing:
    row = transaction_row(connection, number)
    return Standing(posted(connection, number), row.refunded_usu, json.loads(row.facts))


def open_ledger(where: object, *, create: bool) -> Ledger:
    """The ledger of a file or URL; None: the user's own, in a folder that is made with `create`."""
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
    except (KeyError, OSError):  # a user without a name
        user = str(os.getuid())
    # Either name may have any bytes.
    by = f"{user}@{socket.gethostname()}".encode("utf-8", "replace").decode()
    return Stamp(time.time(), by[:190])

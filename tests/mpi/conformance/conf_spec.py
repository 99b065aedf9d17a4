"""The cases of `cases/*.toml`: what each calls, and what is true of it at any rank of any world.

A case has a `body` (see `conf_translate`) and, as Python expressions of `rank`, `size`, `next` and `prev`:

    sent, received   messages by world rank of the other side: {peer: [bytes of each message]}
    put, got         likewise what moves one-sided
    gives, takes     bytes of collectives
    writes, reads    bytes of files

How often each function is called follows from the body. `MPI_@Bcast(...)` in a body stands for all forms of a
collective (blocking, nonblocking, persistent and started twice; each with large counts too), `$` in name and
body for the items of `each`; `large` adds the case with all functions in their large-count form. `ranks` says
for which sizes of the world the case is, and `skip` gives reasons why it
is not for an MPI, MPI/language or MPI/size.
"""

import functools
import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

import conf_translate

CASES = Path(__file__).resolve().parent / "cases"
FORM = re.compile(r"MPI_@(\w+)\((.*)\);")
# functions of which the standard has a form with large counts
HAS_COUNT = re.compile(
    r"MPI_((?:I[bsr]?send|[BSR]send|Send|I?m?recv|Mrecv|Recv)(?:_init)?|I?[sS]endrecv(?:_replace)?|Type_(?:vector|contiguous)"
    r"|R?[pP]ut|R?[gG]et|R?(?:[gG]et_)?[aA]ccumulate|Win_(?:create|allocate|allocate_shared)|Reduce_local"
    r"|File_(?:i?(?:read|write)\w*(?<!_end)))\("
)
LANGUAGES = ("c", "mpif_h", "use_mpi", "use_mpi_f08")


@dataclass(frozen=True)
class Case:
    """One case, in one form."""

    name: str
    body: str
    sent: str = "{}"
    received: str = "{}"
    put: str = "{}"
    got: str = "{}"
    gives: str = "0"
    takes: str = "0"
    writes: str = "0"
    reads: str = "0"
    times: int = 1
    ranks: tuple[int, ...] = (1, 2, 3, 4)
    languages: tuple[str, ...] = LANGUAGES
    skip: dict[str, str] = field(default_factory=dict)
    skip_persistent: dict[str, str] = field(default_factory=dict)

    @property
    def functions(self):
        """Functions that it calls, without `MPI_`."""
        return conf_translate.called(self.body)

    @property
    def n_sites(self):
        """Places from which it calls MPI."""
        return sum("MPI_" in line and "(" in line for line in conf_translate.statements(self.body))

    def is_for(self, mpi, language, size=None):
        """Whether it can be run with this MPI in this language, as far as the table says."""
        where = {mpi, f"{mpi}/{language}", f"{mpi}/{size}", f"{mpi}/{language}/{size}"}
        return language in self.languages and not where & self.skip.keys()


@dataclass(frozen=True)
class Truth:
    """True counts of one rank in a case. Messages: {peer: [bytes, ...]}."""

    calls: dict
    sent: dict
    received: dict
    sent_bytes: int
    recv_bytes: int
    written_bytes: int
    read_bytes: int


def names_of(rank, size):
    """Names that the expressions of a case may use."""
    return {
        "rank": rank,
        "size": size,
        "next": (rank + 1) % size,
        "prev": (rank + size - 1) % size,
        "MOD": lambda a, b: a % b,
        "yes": True,
        "no": False,
        **{function.__name__: function for function in (sum, range, min, max, len)},
    }


def _messages(case, expression, names):
    found = eval(expression, {"__builtins__": {}, **names})
    return {peer: list(sizes) * case.times for peer, sizes in found.items() if sizes}


def _add(messages, more):
    for peer, sizes in more.items():
        messages[peer] = [*messages.get(peer, []), *sizes]


def truth(case, rank, size, tries):
    """Evaluate a case for one rank: the counts that must be recorded."""
    names = names_of(rank, size)

    def number(expression):
        return case.times * int(eval(expression, {"__builtins__": {}, **names}))

    sent = _messages(case, case.sent, names)
    received = _messages(case, case.received, names)
    _add(sent, _messages(case, case.put, names))
    _add(received, _messages(case, case.got, names))
    return Truth(
        calls=dict(conf_translate.count_calls(case.body, names, tries)),
        sent=sent,
        received=received,
        sent_bytes=number(case.gives) + sum(map(sum, sent.values())),
        recv_bytes=number(case.takes) + sum(map(sum, received.values())),
        written_bytes=number(case.writes),
        read_bytes=number(case.reads),
    )


def _nonblocking(name):
    return f"I{name[0].lower()}{name[1:]}"


def _write_form(form, large, match):
    name, arguments = match.groups()
    more = ", " if arguments else ""
    wait = "MPI_Wait(&request, MPI_STATUS_IGNORE);"
    if form == "_nonblocking":
        return f"MPI_{_nonblocking(name)}{large}({arguments}{more}&request);\n{wait}"
    if form == "_persistent":
        init = f"MPI_{name}_init{large}({arguments}{more}MPI_INFO_NULL, &request);\n"
        return init + f"MPI_Start(&request);\n{wait}\n" * 2 + "MPI_Request_free(&request);"
    return f"MPI_{name}{large}({arguments});"


def _forms(case):
    """The forms of a case with `MPI_@`, of each with and without large counts."""
    for large in ("", "_c"):
        for form in ("", "_nonblocking", "_persistent"):
            body = FORM.sub(functools.partial(_write_form, form, large), case.body)
            times = 2 if form == "_persistent" else 1
            skip = {**case.skip, **case.skip_persistent} if form == "_persistent" else case.skip
            if not (large and "arrier" in body):  # which counts nothing
                yield replace(case, name=f"{case.name}{form}{large}", body=body, times=times, skip=skip)


def _large(case):
    """The case with all functions in their large-count form, or nothing if none has one."""

    body = HAS_COUNT.sub(r"MPI_\1_c(", case.body)
    return [replace(case, name=f"{case.name}_c", body=body)] if body != case.body else []


def _read_one(entry):
    for item in entry.get("each", [""]):
        values = {
            key: value.replace("$", item) if isinstance(value, str) else value
            for key, value in entry.items()
            if key not in ("each", "large")
        }
        for key in ("ranks", "languages"):
            if key in values:
                values[key] = tuple(values[key])
        case = Case(**{**values, "name": values["name"].split("(")[0]})
        if FORM.search(case.body):
            yield from _forms(case)
        else:
            yield case
            yield from _large(case) if entry.get("large") else []


def read_cases():
    """All cases."""
    found = []
    for path in sorted(CASES.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            found += _read_one(entry)
    assert len({case.name for case in found}) == len(found), "two cases have one name"
    return found

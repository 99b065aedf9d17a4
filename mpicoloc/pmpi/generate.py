"""Generator of the shim's wrappers from an installed ``mpi.h`` and ``csrc/guest/calls/calls.toml``.

Prototypes come from the header with which the wrappers are compiled, so every function of that MPI is wrapped
and no prototype is written by hand. The meaning of arguments (which is a count, which a communicator) comes
from ``calls.toml``. This module needs the standard library only: ``setup.py`` imports it during the build.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PROTOTYPE = re.compile(
    r"^\s*(?:extern\s+)?(\w[\w\s]*?[\s*]+)(MPIX?_[A-Z][a-z0-9_]*)\s*\((.*)\)\s*$", re.DOTALL
)


# Open MPI 4.1 has persistent collectives as extensions only.
INCLUDES = """#include <{header}>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif
"""


def base_name(name: str) -> str:
    """A function's name without MPI_ or MPIX_."""
    return re.sub("^MPIX?_", "", name)


@dataclass(frozen=True)
class Param:
    """One parameter: its whole declaration, its name, and its type without the name."""

    decl: str
    name: str
    type: str

    @property
    def is_comm(self) -> bool:
        """Whether it is a communicator passed by value, for which the wrapper may substitute another."""
        return self.type == "MPI_Comm"

    @property
    def is_text(self) -> bool:
        """Whether it is a string, whose length Fortran passes too."""
        return re.search(r"\bchar\b", self.type) is not None


@dataclass(frozen=True)
class Prototype:
    """A function of ``mpi.h`` that returns ``returns``."""

    name: str
    params: tuple[Param, ...]
    returns: str = "int"
    is_variadic: bool = False

    @property
    def decl(self) -> str:
        """Its parameters as declared."""
        params = [p.decl for p in self.params] + (["..."] if self.is_variadic else [])
        return ", ".join(params) or "void"

    @property
    def arguments(self) -> str:
        """Its parameters' names, as arguments for a call."""
        return ", ".join(p.name for p in self.params)


def preprocess(cc: Sequence[str], include_dirs: Iterable[str], header: str) -> str:
    """The text of ``header`` after the C preprocessor."""
    command = [*cc, "-E", "-P", *(f"-I{path}" for path in include_dirs)]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "header.c"
        source.write_text(INCLUDES.format(header=header), encoding="utf-8")
        done = subprocess.run(
            [*command, str(source)], capture_output=True, text=True, check=False, timeout=120
        )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} on <{header}> failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def parse_prototypes(text: str) -> list[Prototype]:
    """All functions ``MPI_Xxx`` and ``MPIX_Xxx`` that preprocessed text declares, in order, each once."""
    found: dict[str, Prototype] = {}
    for statement in _without_bodies(_without_attributes(text)).split(";"):
        prototype = _parse_statement(statement)
        if prototype is not None:
            found.setdefault(prototype.name, prototype)
    return list(found.values())


def _without_attributes(text: str) -> str:
    out, at = [], 0
    for match in re.finditer(r"__attribute__\s*\(|__asm__\s*\(|_Static_assert\s*\(", text):
        if match.start() < at:
            continue
        out.append(text[at : match.start()])
        at = _closing(text, match.end())
    return "".join(out) + text[at:]


def _closing(text: str, at: int) -> int:
    """The position after the bracket that closes the bracket before ``at``."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def _without_bodies(text: str) -> str:
    """Replace braces and their content by semicolons: structs and function bodies contain no prototypes."""
    out, depth = [], 0
    for piece in re.split(r"([{}])", text):
        if piece in "{}" and piece:
            depth += 1 if piece == "{" else -1
            out.append(";")
        elif depth == 0:
            out.append(piece)
    return "".join(out)


def _parse_statement(statement: str) -> Prototype | None:
    match = _PROTOTYPE.match(re.sub(r"\b__extension__\b|\b__inline\b", " ", statement))
    if match is None or re.search(r"\btypedef\b", match.group(1)):
        return None
    returns, name, inside = match.groups()
    pieces = [" ".join(piece.split()) for piece in _split_arguments(inside)]
    is_variadic = "..." in pieces
    pieces = [piece for piece in pieces if piece not in ("", "void", "...")]
    params = tuple(_parse_param(piece, i) for i, piece in enumerate(pieces))
    return Prototype(name, params, " ".join(returns.split()), is_variadic)


def _split_arguments(text: str) -> list[str]:
    pieces, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    return [*pieces, text[start:]]


def _parse_param(decl: str, i: int) -> Param:
    match = re.match(r"^(.*?[\s*])(\w+)\s*((?:\[[^\]]*\])*)$", decl)
    if match is None or match.group(2) in ("int", "char", "const"):
        name = f"mc_arg{i}"
        return Param(f"{decl} {name}", name, decl)
    before, name, brackets = match.groups()
    return Param(decl, name, (before.strip() + " " + brackets).strip())


# Handle conversions move no data; the other functions take less time than recording them would.
_NOT_WRAPPED = re.compile(
    r"^MPI_(T_\w+|\w+_(c2f|f2c|c2f08|f082c|f2f08|f082f|toint|fromint)|Aint_\w+|Wtime|Wtick)$"
)
# Conversions that Open MPI's Fortran wrappers need; their return types vary.
_CONVERSIONS = (
    "MPI_Comm_c2f",
    "MPI_Comm_f2c",
    "MPI_Type_f2c",
    "MPI_Request_f2c",
    "MPI_Op_f2c",
    "MPI_Win_f2c",
    "MPI_Message_f2c",
    "MPI_Group_c2f",
    "MPI_Group_f2c",
    "MPI_Info_f2c",
    "MPI_Status_f2c",
)
_HELPERS = ("MPI_Get_library_version",)
SITE = "__builtin_return_address(0)"
STACK = "MC_STACK()"


@dataclass(frozen=True)
class Row:
    """A function's row in ``calls.toml``."""

    volume: str = ""
    before: str = ""
    after: str = ""
    forget: str = ""
    first: str = ""
    tracked: bool = False
    completes: str = ""
    args: tuple[str, ...] = ()
    status: int = -1
    world: str = ""
    finalize: bool = False

    @property
    def needs_more(self) -> bool:
        """Whether a wrapper must do more than record the call and the requests that it completed."""
        hooks = self.volume or self.before or self.after or self.forget or self.first
        return bool(hooks) or self.status >= 0 or self.world not in ("", "real")


@dataclass(frozen=True)
class Timing:
    """Whether a call is timed by sampling (`is_light`), and which parameter shows if it had an effect."""

    is_light: bool = False
    flag: str = ""

    is_local: bool = False
    """Whether the call only looks something up, so that it can be counted without a frame on the stack."""

    def enter(self, call: str, site: str, stack: str) -> str:
        """The call of the hook at the start of the MPI call."""
        if self.is_light:
            return f"mc_enter_light(&mc_f, {call}, {site}, {stack})"
        return f"mc_enter(&mc_f, {call}, {site})"

    def happened(self, flag_type: str = "int") -> str:
        """A C condition that is true if the call succeeded and, by the parameter `flag`, had an effect."""
        # a count may be MPI_UNDEFINED, which is negative; a true LOGICAL may be -1
        sign = ">" if "count" in self.flag else "!="
        return f"mc_rc == MPI_SUCCESS && *(const {flag_type} *){self.flag} {sign} 0"

    def leave(self, sent: str = "0", received: str = "0", flag_type: str = "int") -> list[str]:
        """Statements that end the call `mc_rc`."""
        if not self.is_light:
            return [f"    mc_leave(&mc_f, {sent}, {received});"]
        light = f"mc_leave_light(&mc_f, {sent}, {received});"
        if not self.flag:
            return [f"    {light}"]
        return [f"    if ({self.happened(flag_type)})", f"        mc_leave_done(&mc_f, {sent}, {received});",
                "    else", f"        {light}"]  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """All of ``calls.toml``."""

    rows: dict[str, Row]
    kinds: dict[str, re.Pattern[str]]
    unwrapped: re.Pattern[str]
    light: re.Pattern[str]
    light_flags: dict[str, int] = field(default_factory=dict)
    removed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fortran_aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fortran_no_ierror: tuple[str, ...] = ()
    fortran_drop_args: dict[str, int] = field(default_factory=dict)

    def row(self, name: str) -> Row:
        """The table's row of a function; an empty row if it has none."""
        base = base_name(name).removesuffix("_c")
        return self.rows.get(base, Row())

    def timing(self, p: Prototype) -> Timing:
        """The way in which a call is timed."""
        base = base_name(p.name).removesuffix("_c")
        if base in self.light_flags:
            return Timing(True, p.params[self.light_flags[base]].name)
        row, is_light = self.row(p.name), self.light.match(base) is not None
        # A call that drives communication, such as a flush, may run the application's callbacks.
        is_driving = self.kind(p.name) in ("rma", "send", "completion", "probe")
        is_plain = row in (Row(), Row(world="real")) and not is_driving
        return Timing(is_light, is_local=is_light and is_plain)

    def kind(self, name: str) -> str:
        """The kind of a call, to be displayed: "send", "collective", ...; "other" if the table has none."""
        base = base_name(name).removesuffix("_c")
        return next((kind for kind, pattern in self.kinds.items() if pattern.search(base)), "other")


def load_calls(path: Path) -> Calls:
    """Read ``calls.toml``."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = {}
    for entry in table["call"]:
        values = {key: value for key, value in entry.items() if key not in ("names", "args")}
        row = Row(args=tuple(entry.get("args", ())), **values)
        rows.update(dict.fromkeys(entry["names"], row))
    fortran = table["fortran"]
    return Calls(
        rows=rows,
        kinds={kind: re.compile(pattern) for kind, pattern in table["kinds"].items()},
        unwrapped=re.compile(table["unwrapped"]),
        light=re.compile(table["light"]),
        light_flags=table["light_flags"],
        removed={abi: tuple(items) for abi, items in table["removed"].items()},
        fortran_aliases={name: tuple(items) for name, items in fortran["aliases"].items()},
        fortran_no_ierror=tuple(fortran["no_ierror"]),
        fortran_drop_args={name: int(n) for name, n in (item.split(":") for item in fortran["drop_args"])},
    )


def wrapped(prototypes: Iterable[Prototype], calls: Calls) -> list[Prototype]:
    """The functions in ``prototypes`` that get a wrapper."""
    return [p for p in prototypes if p.returns == "int" and not _is_left_alone(p, calls)]


def _is_left_alone(p: Prototype, calls: Calls) -> bool:
    if p.name.startswith("MPIX_") and not any(q.is_comm for q in p.params):
        return True  # queries of the library; programs also look up these functions in the loader
    return bool(_NOT_WRAPPED.match(p.name) or calls.unwrapped.match(base_name(p.name)))


def removed_prototypes(calls: Calls, abi: str, present: Iterable[Prototype]) -> list[Prototype]:
    """Functions that the library has but its header hides."""
    names = {p.name for p in present}
    parsed = parse_prototypes(";".join(calls.removed.get(abi, ())))
    return [p for p in parsed if p.name not in names]


def large_counts(lent: Iterable[Prototype], present: Collection[Prototype]) -> list[Prototype]:
    """Functions with large counts from another MPI's header, if this MPI's header has all of their types."""
    names = {p.name for p in present}
    types = {word for p in present for word in re.findall(r"MPI_\w+", p.decl)}

    def is_new(p: Prototype) -> bool:
        return p.name.startswith("MPI_") and p.name.endswith("_c") and p.name not in names

    return [p for p in lent if is_new(p) and types.issuperset(re.findall(r"MPI_\w+", p.decl))]


def helpers(prototypes: Iterable[Prototype], abi: str) -> list[Prototype]:
    """Functions that wrappers call but that are not wrapped; only Open MPI converts handles by functions."""
    names = {*_HELPERS, *(_CONVERSIONS if abi == "openmpi" else ())}
    return [p for p in prototypes if p.name in names]


def c_operand(arg: str, prototype: Prototype) -> str:
    """A C expression for one operand of ``calls.toml``, such as "count:1"."""
    kind, _, position = arg.partition(":")
    name = prototype.params[int(position)].name
    forms = {
        "count": f"(long long){name}",
        "types": f"(mc_handles){{{name}, 0}}",
        "requests": f"(mc_handles){{{name}, 0}}",
        "handle": f"*{name}",
        "flag": f"*{name}",
        "place": f"(mc_handles){{{name}, 0}}",
        "given": f"(mc_handles){{&{name}, 0}}",
        "inplace": f"{name} == MPI_IN_PLACE",
        "wide": f"sizeof *{name} == sizeof(MPI_Count)",
        "address": f"&{name}",
        "slot": f"&{name}",
        "site": "mc_site",
    }
    return forms.get(kind, name)


def needs_given(row: Row) -> bool:
    """Whether the call may be repeated with the communicator that the application passed."""
    return row.world == "both" or row.world.startswith("absent:")


def given_lines(
    row: Row, params: Sequence[Param], condition: str, flag: str, also: str, again: str
) -> list[str]:
    """Statements that repeat the call, ``again``, with the application's communicator, under a condition."""
    if not needs_given(row):
        return []
    position = row.world.partition(":")[2]
    condition += (f" && !{flag.format(params[int(position)].name)}" if position else "") + also
    comm = next(q.name for q in params if q.is_comm)
    return [f"    if ({condition}) {{", f"        {comm} = mc_given;", f"        {again}", "    }"]


def is_persistent(name: str) -> bool:
    """Whether a call creates a persistent request, which MPI_Start starts."""
    return name.removesuffix("_c").endswith("_init")


def forget_lines(row: Row, params: Sequence[Param], operands: Sequence[str]) -> list[str]:
    """Statements that drop the data about a handle before it is freed, even inside callbacks of MPI."""
    if not row.forget:
        return []
    pointers = [params[int(arg.partition(":")[2])].name for arg in row.args]
    guard = [f"    if ({' && '.join(f'{name} != NULL' for name in pointers)})"] if pointers else []
    return [*guard, f"    {'    ' if guard else ''}{row.forget}({', '.join(operands)});"]


def first_lines(row: Row, params: Sequence[Param], operands: Sequence[str]) -> list[str]:
    """Statements that read a handle before the call replaces it."""
    if not row.first:
        return []
    pointer = params[int(row.args[0].partition(":")[2])].name
    lines = ["    mc_volume mc_v = {.frame = &mc_f};", f"    if ({pointer} != NULL)"]
    return [*lines, f"        {row.first}(&mc_v, {operands[0]});"]


def volume_lines(row: Row, operands: Sequence[str], request: str, is_kept: bool) -> list[str]:
    """Statements that record the bytes that a call moved; if ``is_kept``, at each start of its request."""
    used = operands[1:] if row.first else operands
    kept = ", .is_kept = 1" if is_kept else ""
    end = [f"        mc_request_began(&mc_v, {request});"] if request else []
    end += ["        mc_record_moved(&mc_f, &mc_v);"]
    return [
        *[f"    mc_volume mc_v = {{.frame = &mc_f{kept}}};"] * (not row.first),
        "    if (mc_f.is_recorded && mc_rc == MPI_SUCCESS) {",
        *[f"        {row.volume}({', '.join(['&mc_v', *used])});"] * bool(row.volume),
        *([f"        mc_persistent_keep({request}, &mc_v);"] if is_kept else end),
        "    }",
        *["    mc_volume_done(&mc_v);"] * bool(row.first and not is_kept),
    ]


def completion_params(row: Row, params: Sequence[Param]) -> dict[str, str]:
    """Names of a completion call's parameters, by their role in ``calls.toml``."""
    parts = (arg.partition(":") for arg in row.args)
    return {what: params[int(position)].name for what, _, position in parts}


def results(at: dict[str, str], c_type: str) -> tuple[str, str]:
    """Two C expressions: whether a completion call completed all requests, and how many it completed.

    After a failure the output arguments may be invalid pointers.
    """
    flag = f"(mc_rc == MPI_SUCCESS && *(const {c_type} *){at['flag']} != 0)" if "flag" in at else "1"
    if "number" not in at:
        return flag, flag
    return flag, f"({at['number']} != NULL ? *(const {c_type} *){at['number']} : 0)"


def is_ignored(status: str) -> str:
    """A C condition that is true if the program ignores the status."""
    return f"{status} == MPI_STATUS_IGNORE || {status} == MPI_STATUSES_IGNORE"


def completion_end(row: Row, flag: str, number: str, indices: str, base: str) -> list[str]:
    """Statements that record the requests that a completion call ended."""
    if row.completes == "all":
        end = f"mc_completion_all(&mc_c, &mc_v, mc_rc, {flag});"
    else:
        end = f"mc_completion_some(&mc_c, &mc_v, mc_rc, {number}, {indices}, {base});"
    happened = "mc_c.n > 0" if flag == "1" else f"mc_c.n > 0 && (mc_rc != MPI_SUCCESS || {flag})"
    return [f"    if ({happened}) {{", f"        {end}", "        mc_record_moved(&mc_f, &mc_v);", "    }"]


def completion_lines(
    row: Row, params: Sequence[Param], call: Sequence[str], timing: Timing, is_fortran: bool = False
) -> list[str]:
    """A completion call, ``call``, and statements that record ended requests and replace ignored statuses."""
    at = completion_params(row, params)
    status, c_type = at["status"], "MPI_Fint" if is_fortran else "int"
    count = at.get("count", "1")
    if is_fortran and "count" in at:
        count = f"*(const MPI_Fint *){count}"
    ignored = f"mc_f_is_ignored({status})" if is_fortran else is_ignored(status)
    requests = f"(mc_handles){{{at['requests']}, {is_fortran:d}}}"
    flag, number = results(at, c_type)
    return [
        "    mc_volume mc_v = {.frame = &mc_f};",
        "    mc_completion mc_c;",
        f"    {status} = mc_completion_begin(&mc_c, &mc_v, {count}, {requests}, {status}, {ignored});",
        *call,
        *completion_end(row, flag, number, at.get("indices", ""), f"{is_fortran:d}"),
        *timing.leave("mc_v.sent_bytes", "mc_v.recv_bytes", c_type),
    ]


def finalize_lines(row: Row, operands: Sequence[str], call: str) -> list[str]:
    """Statements around the call that ends recording, MPI_Finalize or MPI_Session_finalize."""
    return [
        "    mc_leave(&mc_f, 0, 0);",
        f"    {row.before}({', '.join(operands)});",
        "    mc_is_ending++;",
        f"    {call}",
        "    mc_is_ending--;",
        *([f"    {row.after}();"] if row.after else []),
    ]


def end_lines(
    row: Row, operands: Sequence[str], request: str, is_kept: bool, timing: Timing, c_type: str = "int"
) -> list[str]:
    """Statements after the call. The call created ``request``, which is persistent if ``is_kept``."""
    hook = ["    if (mc_rc == MPI_SUCCESS)", f"        {row.after}({', '.join(operands)});"]
    after = hook if row.after else []
    if not row.volume and not row.first:
        return after + timing.leave(flag_type=c_type)
    moved = volume_lines(row, operands, request if row.tracked or is_kept else "", is_kept)
    return after + moved + timing.leave("mc_v.sent_bytes", "mc_v.recv_bytes", c_type)


def quick_lines(p: Prototype, row: Row, timing: Timing, real: str, swaps: list[str]) -> list[str]:
    """The exported function with a fast path, followed by the head of its general part.

    The general part is a function of its own, because it needs much stack. Empty if every call needs the
    general part.
    """
    if timing.is_local:
        way = [f"    if (mc_count(MC_CALL_{p.name}, {SITE}))", f"        return {real};"]
    elif not timing.is_light or row.needs_more or (row.completes and not timing.flag):
        return []
    elif row.completes:
        way = _completion_lines(p, row, timing, real)
    else:
        way = _plain_lines(p, timing, real)
    general = f"general_{p.name}"
    decl = ", ".join(["void *mc_site", "const char *mc_stack", *([p.decl] if p.params else [])])
    return [
        f"static __attribute__((noinline)) int {general}({decl});",
        f"MC_EXPORT int {p.name}({p.decl})",
        "{",
        *swaps,
        *way,
        f"    return {general}({', '.join([SITE, STACK, *(q.name for q in p.params)])});",
        "}",
        f"static int {general}({decl})",
        "{",
    ]


def _enter(p: Prototype) -> str:
    return f"mc_enter_quick(MC_CALL_{p.name}, {SITE}, {STACK})"


def _plain_lines(p: Prototype, timing: Timing, real: str) -> list[str]:
    if_happened = [
        f"        if ({timing.happened()}) {{",
        f"            mc_frame mc_f = mc_quick_frame({SITE});",
        "            mc_leave_done(&mc_f, 0, 0);",
        "            return mc_rc;",
        "        }",
    ]
    return [
        f"    if ({_enter(p)}) {{",
        f"        int mc_rc = {real};",
        *(if_happened if timing.flag else []),
        "        mc_leave_quick();",
        "        return mc_rc;",
        "    }",
    ]


def _completion_lines(p: Prototype, row: Row, timing: Timing, real: str) -> list[str]:
    at = completion_params(row, p.params)
    status, requests, count = at["status"], at["requests"], at.get("count", "1")
    flag, number = results(at, "int")
    ended = [f"    {line}" for line in completion_end(row, flag, number, at.get("indices", ""), "0")]
    return [
        "    mc_completion mc_c;",
        f"    if (mc_completion_note(&mc_c, {count}, {requests}) && {_enter(p)}) {{",
        f"        if ({is_ignored(status)})",
        f"            {status} = (void *)mc_c.own_statuses;",
        f"        int mc_rc = {real};",
        f"        if (mc_rc == MPI_SUCCESS && !({timing.happened()})) {{",
        "            mc_leave_quick();",
        "            return mc_rc;",
        "        }",
        f"        mc_frame mc_f = mc_quick_frame({SITE});",
        "        mc_volume mc_v = {.frame = &mc_f};",
        f"        mc_completion_resume(&mc_c, {count}, {requests}, {status});",
        *ended,
        *(f"    {line}" for line in timing.leave("mc_v.sent_bytes", "mc_v.recv_bytes")),
        "        return mc_rc;",
        "    }",
    ]


_HOOK_TYPES = {
    "count": "long long",
    "rank": "int",
    "flag": "int",
    "inplace": "int",
    "wide": "int",
    "counts": "const void *",
    "address": "void *",
    "slot": "void *",
    "site": "void *",
    "status": "const MPI_Status *",
    "type": "MPI_Datatype",
    "op": "MPI_Op",
    "comm": "MPI_Comm",
    "win": "MPI_Win",
}
"""C types of operands by kind. A handle has its argument's type without the pointer. Operands of kinds that
are not listed are mc_handles."""


def _hook_prototypes(p: Prototype, row: Row) -> list[str]:
    """Declarations of the functions that ``calls.toml`` names for one call."""
    kinds = [arg.partition(":") for arg in row.args]
    types = [
        p.params[int(position)].type.rstrip(" *") if kind == "handle" else _HOOK_TYPES.get(kind, "mc_handles")
        for kind, _, position in kinds
    ]
    used = {
        row.volume: ["mc_volume *", *types[bool(row.first) :]],
        row.first: ["mc_volume *", *types[:1]],
        **dict.fromkeys((row.before, row.forget), types),
        row.after: [] if row.finalize else types,
    }
    return [f"void {name}({', '.join(taken) or 'void'});" for name, taken in used.items() if name]


def emit_header(
    prototypes: Sequence[Prototype],
    helper_list: Sequence[Prototype],
    calls: Calls,
    header: str,
    has_fortran: bool,
) -> str:
    """``calls_gen.h``: numbers of the calls, pointers to the real functions, and declarations of hooks."""
    hooks = (hook for p in prototypes for hook in _hook_prototypes(p, calls.row(p.name)))
    has_sessions = any(p.name == "MPI_Session_init" for p in prototypes)
    lines = [
        "#ifndef MPICOLOC_CALLS_GEN_H",
        "#define MPICOLOC_CALLS_GEN_H",
        "",
        INCLUDES.format(header=header),
        *["#define MC_HAS_FORTRAN 1", ""] * has_fortran,
        # Open MPI 5 has sessions, although it reports MPI 3.1
        *["#define MC_HAS_SESSIONS 1", ""] * has_sessions,
        "enum {",
        *(f"    MC_CALL_{p.name} = {i}," for i, p in enumerate(prototypes, start=1)),
        f"    MC_N_CALLS = {len(prototypes)}",
        "};",
        "",
        "typedef struct mc_real_table {",
        *(f"#undef {p.name}\n    {p.returns} (*p_{p.name})({p.decl});" for p in [*prototypes, *helper_list]),
        "} mc_real_table;",
        "",
        "extern const char *const mc_call_names[MC_N_CALLS + 1];",
        "const char *mc_call_name(int call);",
        "",
        "typedef struct mc_volume mc_volume;",
        "typedef struct mc_handles mc_handles;",
        *dict.fromkeys(hooks),
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def emit_c(prototypes: Sequence[Prototype], calls: Calls) -> str:
    """``wrappers_gen.c``: one wrapper for each function."""
    lines = [
        '#include "guest/calls/completion.h"',
        '#include "guest/calls/volume.h"',
        '#include "guest/mpi/app_world.h"',
        '#include "guest/regions.h"',
        "",
        '#define MC_EXPORT __attribute__((visibility("default")))',
        "",
        # programs may call deprecated functions
        '#pragma GCC diagnostic ignored "-Wdeprecated-declarations"',
        "",
        "const char *const mc_call_names[MC_N_CALLS + 1] = {",
        '    "",',
        *(f'    "{p.name}",' for p in prototypes),
        "};",
        "",
        "const char *mc_call_name(int call)",
        "{",
        '    return call > 0 && call <= MC_N_CALLS ? mc_call_names[call] : "";',
        "}",
        *(_emit_wrapper(p, calls.row(p.name), calls.timing(p)) for p in prototypes),
    ]
    return "\n".join(lines)


def _emit_wrapper(p: Prototype, row: Row, timing: Timing) -> str:
    real = f"MC_POINTER(mc_next.p_{p.name})({p.arguments})"
    comm = next((q.name for q in p.params if q.is_comm), "")
    lines = [
        *_emit_head(p, row, timing, real),
        f"    if (!MC_HAVE_NEXT({p.name}))",
        "        return mc_missing();",
        *[f"    MPI_Comm mc_given = {comm};"] * bool(comm and needs_given(row)),
        *_swap_worlds(p, row),
        *forget_lines(row, p.params, [c_operand(arg, p) for arg in row.args]),
        "    mc_frame mc_f;",
        f"    if (!{timing.enter(f'MC_CALL_{p.name}', 'mc_site', 'mc_stack')})",
        f"        return {real};",
        *_own_status(p, row),
        *_take_arguments(p),
        *_emit_body(p, row, real, comm, timing),
        "    return mc_rc;",
        "}",
        "",
        *_emit_profiling(p, row),
    ]
    return "\n".join(lines)


def _own_status(p: Prototype, row: Row) -> list[str]:
    """Statements that supply a status of the wrapper's own if the program ignores it."""
    if row.status < 0:
        return []
    status = p.params[row.status].name
    return ["    MPI_Status mc_status;", f"    if ({status} == MPI_STATUS_IGNORE)",
            f"        {status} = &mc_status;"]  # fmt: skip


def _emit_profiling(p: Prototype, row: Row) -> list[str]:
    """The PMPI function of a wrapper.

    Calls from a tool loaded before mpicoloc are recorded. Calls inside a wrapper are not recorded: they come
    from tools loaded after mpicoloc. Nor are calls from MPI's own libraries, because Fortran interfaces look
    things up before they make the program's call.
    """
    if p.is_variadic:
        return []
    own = f"own_{p.name}"
    return [
        f'static __typeof__({p.name}) {own} __attribute__((alias("{p.name}")));',
        f"MC_EXPORT int P{p.name}({p.decl})",
        "{",
        "    if (!mc_is_inside(MC_STACK()) && !mc_is_library(__builtin_return_address(0)))",
        f"        return {own}({p.arguments});",
        f"    if (!MC_HAVE({p.name}))",
        "        return mc_missing();",
        # the MPI library itself needs the attributes of the real world
        *(_swap_worlds(p, row) if row.world == "" else []),
        f"    int mc_rc = MC_POINTER(mc_real.p_{p.name})({p.arguments});",
        # a tool reads its rank as soon as MPI has begun
        *["    if (mc_rc == MPI_SUCCESS)", "        mc_after_init();"] * (row.after == "mc_after_init"),
        "    return mc_rc;",
        "}",
        "",
    ]


def _take_arguments(p: Prototype) -> list[str]:
    """Statements that pass on the arguments of MPI_Pcontrol, the only variadic function."""
    if not p.is_variadic:
        return []
    level = p.params[-1].name
    return ["    va_list mc_arguments;", f"    va_start(mc_arguments, {level});",
            f"    mc_pcontrol(&mc_f, {level}, mc_arguments);", "    va_end(mc_arguments);"]  # fmt: skip


def _swap_worlds(p: Prototype, row: Row) -> list[str]:
    if row.world == "real":
        return []
    return [f"    {q.name} = mc_world({q.name});" for q in p.params if q.is_comm]


def _emit_head(p: Prototype, row: Row, timing: Timing, real: str) -> list[str]:
    """The beginning of the wrapper, up to its general part (see `quick_lines`)."""
    quick = quick_lines(p, row, timing, real, _swap_worlds(p, row))
    plain = [f"MC_EXPORT int {p.name}({p.decl})", "{", f"    void *mc_site = {SITE};"]
    return quick or [*plain, *[f"    const char *mc_stack = {STACK};"] * timing.is_light]


def _emit_body(p: Prototype, row: Row, real: str, comm: str, timing: Timing) -> list[str]:
    operands = [c_operand(arg, p) for arg in row.args]
    call = f"int mc_rc = {real};"
    if row.finalize:
        return finalize_lines(row, operands, call)
    if row.completes:
        return completion_lines(row, p.params, [f"    {call}"], timing)
    of_real_world = (
        f"{'' if row.world == 'both' else 'mc_rc = '}MC_POINTER(mc_real.p_{p.name})({p.arguments});"
    )
    request = f"*{p.params[-1].name}" if p.params else ""
    return [
        *([f"    {row.before}({', '.join(operands)});"] if row.before else []),
        *first_lines(row, p.params, operands),
        f"    {call}",
        *given_lines(
            row,
            p.params,
            "mc_rc == MPI_SUCCESS && mc_is_world(mc_given)",
            "*{}",
            f" && MC_HAVE({p.name})",
            of_real_world,
        ),
        *end_lines(row, operands, request, is_persistent(p.name), timing),
    ]

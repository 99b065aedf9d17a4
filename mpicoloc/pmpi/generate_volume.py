"""Statements of the wrappers of both languages that tell what a call moved. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpicoloc.pmpi.declarations import Param
    from mpicoloc.pmpi.generate import Row


@dataclass(frozen=True)
class Timing:
    """Whether a call is timed by sampling, and which parameter tells that something happened."""

    is_light: bool = False
    flag: str = ""

    is_local: bool = False
    """It only looks up something: it may be counted without a frame on the stack."""

    def enter(self, call: str, site: str, stack: str) -> str:
        """The hook at the call's begin."""
        if self.is_light:
            return f"mc_enter_light(&mc_f, {call}, {site}, {stack})"
        return f"mc_enter(&mc_f, {call}, {site})"

    def happened(self, flag_type: str = "int") -> str:
        """A C condition: the call ended well, and the parameter tells that something happened."""
        # of a number, MPI_UNDEFINED is negative; a LOGICAL may be -1
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


def forget_lines(row: Row, params: Sequence[Param], operands: Sequence[str]) -> list[str]:
    """Statements that drop what is known of a handle before it is freed, inside callbacks of MPI as well."""
    if not row.forget:
        return []
    pointers = [params[int(arg.partition(":")[2])].name for arg in row.args]
    guard = [f"    if ({' && '.join(f'{name} != NULL' for name in pointers)})"] if pointers else []
    return [*guard, f"    {'    ' if guard else ''}{row.forget}({', '.join(operands)});"]


def first_lines(row: Row, params: Sequence[Param], operands: Sequence[str]) -> list[str]:
    """Statements before the call that read a handle which it replaces."""
    if not row.first:
        return []
    pointer = params[int(row.args[0].partition(":")[2])].name
    lines = ["    mc_volume mc_v = {.frame = &mc_f};", f"    if ({pointer} != NULL)"]
    return [*lines, f"        {row.first}(&mc_v, {operands[0]});"]


def volume_lines(row: Row, operands: Sequence[str], request: str, is_kept: bool) -> list[str]:
    """Statements that record what the call ``mc_rc`` moved; ``is_kept``: only when it is started."""
    used = operands[1:] if row.first else operands
    kept = ", .is_kept = 1" if is_kept else ""
    lines = [] if row.first else [f"    mc_volume mc_v = {{.frame = &mc_f{kept}}};"]
    lines += ["    if (mc_f.is_recorded && mc_rc == MPI_SUCCESS) {"]
    lines += [f"        {row.volume}({', '.join(['&mc_v', *used])});"] if row.volume else []
    if is_kept:
        return [*lines, f"        mc_persistent_keep({request}, &mc_v);", "    }"]
    lines += [f"        mc_request_began(&mc_v, {request});"] if request else []
    lines += ["        mc_record_moved(&mc_f, &mc_v);", "    }"]
    return [*lines, *["    mc_volume_done(&mc_v);"] * bool(row.first)]


def completion_params(row: Row, params: Sequence[Param]) -> dict[str, str]:
    """Names of the parameters of a completion call by what they are in ``calls.toml``."""
    found = {}
    for arg in row.args:
        what, _, position = arg.partition(":")
        found[what] = params[int(position)].name
    return found


def results(at: dict[str, str], c_type: str) -> tuple[str, str]:
    """Whether a completion call completed all, and how many; after a failure they may be no pointers."""
    flag = f"(mc_rc == MPI_SUCCESS && *(const {c_type} *){at['flag']} != 0)" if "flag" in at else "1"
    if "number" not in at:
        return flag, flag
    return flag, f"({at['number']} != NULL ? *(const {c_type} *){at['number']} : 0)"


def is_ignored(status: str) -> str:
    """A C condition: the program wants no status."""
    return f"{status} == MPI_STATUS_IGNORE || {status} == MPI_STATUSES_IGNORE"


def completion_begin(count: str, requests: str, status: str, ignored: str) -> list[str]:
    """Statements before a completion call: its statuses may become the shim's own."""
    return [
        "    mc_volume mc_v = {.frame = &mc_f};",
        "    mc_completion mc_c;",
        f"    {status} = mc_completion_begin(&mc_c, &mc_v, {count}, {requests}, {status}, {ignored});",
    ]


def completion_end(row: Row, flag: str, number: str, indices: str, base: str) -> list[str]:
    """Statements that record what a completion call ended."""
    if row.completes == "all":
        end = f"mc_completion_all(&mc_c, &mc_v, mc_rc, {flag});"
    else:
        end = f"mc_completion_some(&mc_c, &mc_v, mc_rc, {number}, {indices}, {base});"
    happened = "mc_c.n > 0" if flag == "1" else f"mc_c.n > 0 && (mc_rc != MPI_SUCCESS || {flag})"
    return [f"    if ({happened}) {{", f"        {end}", "        mc_record_moved(&mc_f, &mc_v);", "    }"]


def c_completion_lines(row: Row, params: Sequence[Param], real: str, timing: Timing) -> list[str]:
    """The C wrapper of a completion call from the real call on."""
    at = completion_params(row, params)
    status = at["status"]
    count = at.get("count", "1")
    lines = completion_begin(count, f"(mc_handles){{{at['requests']}, 0}}", status, is_ignored(status))
    lines += [f"    int mc_rc = {real};"]
    flag, number = results(at, "int")
    lines += completion_end(row, flag, number, at.get("indices", ""), "0")
    return [*lines, *timing.leave("mc_v.sent_bytes", "mc_v.recv_bytes")]

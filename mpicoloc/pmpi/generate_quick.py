"""Short ways through the wrappers of functions that programs call millions of times a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpicoloc.pmpi.declarations import Prototype
from mpicoloc.pmpi.generate_volume import Timing, completion_end, completion_params, is_ignored, results

if TYPE_CHECKING:
    from mpicoloc.pmpi.generate import Row

SITE = "__builtin_return_address(0)"
STACK = "MC_STACK()"


def quick_lines(p: Prototype, row: Row, timing: Timing, real: str, swaps: list[str]) -> list[str]:
    """The exported function, which goes the short way where it can, up to the head of its general part.

    The general part needs much of the stack, so it is a function of its own. Empty if all calls need it.
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
    lines = [f"    if ({_enter(p)}) {{", f"        int mc_rc = {real};"]
    if timing.flag:
        lines += [
            f"        if ({timing.happened()}) {{",
            f"            mc_frame mc_f = mc_quick_frame({SITE});",
        ]
        lines += ["            mc_leave_done(&mc_f, 0, 0);", "            return mc_rc;", "        }"]
    return [*lines, "        mc_leave_quick();", "        return mc_rc;", "    }"]


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

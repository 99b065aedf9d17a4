"""Fortran wrappers, derived from the C prototypes.

Open MPI: ``mpif.h`` and ``use mpi`` call ``mpi_x_``, ``use mpi_f08`` calls ``mpi_x_f08_``; none of these
calls uses the C symbols that the shim replaces. From Open MPI 6 on, functions of ``use mpi_f08`` with choice
buffers receive these buffers as descriptors, and are named ``mpi_x_f08ts_``. MPICH: Fortran calls the C
symbols, except that functions of ``use mpi_f08`` without a choice buffer call PMPI, so only these functions
are wrapped.

All arguments are addresses; ``ierror`` is the last one and optional in f08; lengths of strings are passed
last, by value. The wrappers call the library's Fortran functions, so that MPI_IN_PLACE, MPI_BOTTOM and
callbacks keep their Fortran meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpicoloc.pmpi.generate import (
    SITE,
    STACK,
    Calls,
    Param,
    Prototype,
    Row,
    Timing,
    base_name,
    completion_lines,
    end_lines,
    finalize_lines,
    first_lines,
    forget_lines,
    given_lines,
    is_persistent,
    needs_given,
)

_HEAD = """#include "guest/calls/completion.h"
#include "guest/calls/volume.h"
#include "guest/mpi/fortran.h"
#include "guest/regions.h"

#define MC_EXPORT __attribute__((visibility("default")))
"""


def emit_fortran(prototypes: Sequence[Prototype], calls: Calls, abi: str) -> str:
    """``fortran_gen.c``: for each function, those Fortran symbols that do not call the C symbols."""
    parts = [_HEAD]
    has_large_counts = any(p.name == "MPI_Send_c" for p in prototypes)
    for p in prototypes:
        base = base_name(p.name)
        if p.name.startswith("MPI_Session_call"):
            continue
        prefix = p.name.lower().removesuffix(base.lower())
        f08 = f"{prefix}{base.removesuffix('_c').lower()}_f08_" + "large_" * base.endswith("_c")
        if abi == "mpich":
            # MPICH's f08 functions with buffers have other names (_f08ts_) and call the C symbols
            profiling = f"p{prefix[:-1]}r_{f08.removeprefix(prefix)}"
            parts += [_emit(p, f08, profiling, calls)] if not _has_buffer(p, calls) else []
            continue
        if has_large_counts:
            f08 = f"{prefix}{base.lower()}_{'f08ts' if _has_choice_buffer(p) else 'f08'}_"
        is_large = base.endswith("_c")
        symbols = [f08] if has_large_counts or not is_large else []
        if not is_large:
            symbols += [f"{prefix}{base.lower()}_"]
            symbols += [f"mpi_{alias}_" for alias in calls.fortran_aliases.get(base, ())]
        parts += [_emit(p, symbol, f"p{symbol}", calls) for symbol in symbols]
    return "\n".join(parts)


def _has_buffer(p: Prototype, calls: Calls) -> bool:
    """Whether a function moves data to or from a buffer that is one of its arguments."""
    return bool(calls.row(p.name).volume) and any("void" in q.type for q in p.params)


_NO_CHOICE = re.compile(r"baseptr|attr\w*_val\w*|extra_state")
"""Names of arguments of type ``void *`` that are addresses in Fortran."""


def _has_choice_buffer(p: Prototype) -> bool:
    addresses = [q for q in p.params if q.type.replace("const ", "").strip() == "void *"]
    is_taken_back = re.search(r"uffer_detach|etach_buffer", p.name)
    return not is_taken_back and any(not _NO_CHOICE.match(q.name) for q in addresses)


def f_operand(arg: str, params: Sequence[Param], *, has_descriptors: bool = False) -> str:
    """A C expression for one operand of ``calls.toml``, made from Fortran's argument addresses.

    `has_descriptors`: buffers are descriptors, which begin with the buffer's address.
    """
    kind, _, position = arg.partition(":")
    param = params[int(position)]
    name = param.name
    handle = {"MPI_Comm": "comm", "MPI_Win": "win", "MPI_Request": "request", "MPI_Message": "message"}
    integer = "MPI_Count" if "MPI_Count" in param.type else "MPI_Fint"
    forms = {
        "count": f"(long long)*(const {integer} *){name}",
        "flag": f"*(const MPI_Fint *){name}",
        "win": f"mc_f_win({name})",
        "handle": f"mc_f_{handle.get(param.type.rstrip(' *'), 'request')}({name})",
        "rank": f"*(const MPI_Fint *){name}",
        "type": f"mc_f_type({name})",
        "comm": f"mc_f_comm({name})",
        "op": f"mc_f_op({name})",
        "types": f"(mc_handles){{{name}, 1}}",
        "requests": f"(mc_handles){{{name}, 1}}",
        "place": f"(mc_handles){{{name}, 1}}",
        "given": f"(mc_handles){{{name}, 1}}",
        "inplace": f"mc_f_is_in_place({f'*(void **){name}' if has_descriptors else name})",
        "wide": "0",
        "address": "0",
        "slot": f"&{name}",
        "site": "0",
        "status": f"mc_f_status(&mc_c_status, {name})",
    }
    return forms.get(kind, name)


def _emit(p: Prototype, symbol: str, profiling: str, calls: Calls) -> str:
    base = base_name(p.name)
    row = calls.row(p.name)
    params = list(p.params)[calls.fortran_drop_args.get(base, 0) :]
    # MPICH's mpi_f08 has ierror in all functions
    has_ierror = base not in calls.fortran_no_ierror or profiling.startswith("pmpir_")
    names = [q.name for q in params]
    lengths = [f"mc_length{i}" for i in range(sum(q.is_text for q in params))]
    decl = [f"void *{name}" for name in names] + ["MPI_Fint *mc_ierror"] * has_ierror
    parameters = ", ".join(decl + [f"size_t {length}" for length in lengths]) or "void"
    pointer = f"real_{symbol}"
    real = f"MC_POINTER({pointer})({', '.join(names + ['mc_ierror'] * has_ierror + lengths)});"
    timing = calls.timing(p)
    operands = [f_operand(arg, params, has_descriptors=symbol.endswith("_f08ts_")) for arg in row.args]
    lines = [
        f"static void (*{pointer})({parameters});",
        "",
        f"MC_EXPORT void {symbol}({parameters});",
        f"MC_EXPORT void {symbol}({parameters})",
        "{",
        *["    MPI_Fint mc_rc = MPI_SUCCESS;", "    if (mc_ierror == NULL)", "        mc_ierror = &mc_rc;"]
        * has_ierror,
        f'    if (!MC_POINTER({pointer}) && !mc_f_resolve(&{pointer}, "{profiling}", "{symbol}")) {{',
        *["        *mc_ierror = mc_missing();"] * has_ierror,
        "        return;",
        "    }",
        *_emit_world(row, params),
        *forget_lines(row, params, operands),
        "    mc_frame mc_f;",
        f"    if (!{timing.enter(f'MC_CALL_{p.name}', SITE, STACK)}) {{",
        f"        {real}",
        "        return;",
        "    }",
        *([f"    mc_pcontrol_level(&mc_f, *(const MPI_Fint *){names[-1]});"] if p.is_variadic else []),
        *_emit_body(row, params, operands, real, has_ierror, is_persistent(p.name), timing),
        "}",
        "",
    ]
    return "\n".join(lines)


def _emit_world(row: Row, params: Sequence[Param]) -> list[str]:
    comms = [q.name for q in params if q.is_comm]
    lines = [f"    void *mc_given = {comms[0]};"] if comms and needs_given(row) else []
    if row.world != "real":
        lines += [f"    {name} = mc_f_swap({name});" for name in comms]
    return lines


def _emit_body(
    row: Row,
    params: Sequence[Param],
    operands: Sequence[str],
    real: str,
    has_ierror: bool,
    persistent: bool,
    timing: Timing,
) -> list[str]:
    if row.finalize:
        return finalize_lines(row, operands, real)
    if row.completes:
        return completion_lines(
            row, params, [f"    {real}", "    mc_rc = *mc_ierror;"], timing, is_fortran=True
        )
    has_rc = has_ierror and (row.after or row.volume or row.first or timing.flag)
    request = f"mc_f_request({params[-1].name})" if params else ""
    return [
        *_own_status(row, params),
        *([f"    {row.before}({', '.join(operands)});"] if row.before else []),
        *first_lines(row, params, operands),
        f"    {real}",
        *given_lines(
            row,
            params,
            "*mc_ierror == MPI_SUCCESS && mc_f_is_world(mc_given)",
            "*(MPI_Fint *){}",
            "",
            real,
        ),
        *["    mc_rc = *mc_ierror;"] * bool(has_rc),
        *end_lines(row, operands, request, persistent, timing, "MPI_Fint"),
    ]


def _own_status(row: Row, params: Sequence[Param]) -> list[str]:
    """Statements that supply a status of the wrapper's own if the program ignores it."""
    if row.status < 0:
        return []
    status = params[row.status].name
    return [
        "    _Alignas(MPI_Status) MPI_Fint mc_own_status[MC_F_STATUS_SIZE];",
        "    MPI_Status mc_c_status;",
        f"    {status} = mc_f_own_status({status}, mc_own_status);",
    ]

"""Whether a job may use the processor's hardware counters."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

from mpicoloc.checkup.finding import Finding

KILLED = -1
_PR_SET_DUMPABLE = 4
_PERF_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
_PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def counters() -> Finding:
    """Hardware counters for the meter `ipc`: instructions of this process in user mode."""
    number = open_counter()
    if number == 0:
        return Finding("PMU", "ok", "hardware counters work: meter ipc, and events over the whole run")
    fallback = "jobs are measured by meter burst"
    if number == KILLED:
        return Finding(
            "PMU",
            "note",
            f"a filter of system calls (seccomp) kills who asks for hardware counters; {fallback}",
            "in a container allow perf_event_open",
        )
    if number in (errno.EACCES, errno.EPERM):
        return Finding(
            "PMU",
            "note",
            f"hardware counters are forbidden; {fallback}",
            f"as root: echo 2 > {_PARANOID}; in a container allow perf_event_open",
        )
    return Finding(
        "PMU",
        "note",
        f"no hardware counters ({os.strerror(number)}); jobs are measured by meters count and burst",
        "a virtual machine needs its host to pass the PMU on",
    )


def open_counter() -> int:
    """Try to count instructions in user mode; 0, the error number, or KILLED.

    In a child, as ranks do (`mc_proc_survives`): a filter may end the process that makes the call.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        number = errno.ENOSYS
        try:
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # no core file of it
            number = _try_to_count()
        finally:
            os._exit(number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else KILLED


def _try_to_count() -> int:
    syscall_number = _PERF_SYSCALL.get(platform.machine())
    if syscall_number is None:
        return errno.ENOSYS
    attributes = bytearray(128)
    exclude_kernel_and_hypervisor = 1 << 5 | 1 << 6
    struct.pack_into("<IIQ", attributes, 0, 0, len(attributes), 1)  # PERF_TYPE_HARDWARE, instructions
    struct.pack_into("<Q", attributes, 40, exclude_kernel_and_hypervisor)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    arguments = [ctypes.c_long(n) for n in (0, -1, -1, 0)]
    opened = libc.syscall(ctypes.c_long(syscall_number), buffer, *arguments)
    if opened < 0:
        return ctypes.get_errno()
    os.close(opened)
    return 0


def paranoid() -> Finding:
    """The kernel's setting for counters."""
    try:
        with open(_PARANOID) as file:
            level = int(file.read())
    except (OSError, ValueError):
        return Finding("perf_event_paranoid", "note", "not there: the kernel has no perf events")
    if level > 2:
        return Finding(
            "perf_event_paranoid", "note", f"{level}: users may not count", f"as root: echo 2 > {_PARANOID}"
        )
    return Finding("perf_event_paranoid", "ok", str(level))

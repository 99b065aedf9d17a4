"""Check what works on this machine, and print how to fix the rest.

Exit code 0: a job can be measured here. 1: it cannot; the lines marked `no` say what is missing.

  mpicoloc check
  mpicoloc check --clean
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from typing import NamedTuple

from mpicoloc import config
from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.errors import MpicolocError, remedy
from mpicoloc.job import launcher, target
from mpicoloc.pmpi import paths


class Finding(NamedTuple):
    """One finding. `state` is "ok", "note" (jobs run with a limitation), or "fail" (no job is measured)."""

    name: str
    state: str
    text: str
    remedy: str = ""


_PARANOID = "/proc/sys/kernel/perf_event_paranoid"


def counters() -> Finding:
    """Whether hardware counters work, for the meter `ipc`."""
    try:
        contract = importlib.import_module("mpicoloc.pmpi.contract")
    except (ImportError, MpicolocError) as error:
        return Finding("PMU", "note", f"not tried: {error}")
    reason = contract.why_no_counters()
    if not reason:
        return Finding("PMU", "ok", "hardware counters work: meter ipc, and events over the whole run")
    if reason.startswith("perf_event_open"):
        action = f"as root: echo 2 > {_PARANOID}; in a container allow perf_event_open"
        return Finding("PMU", "note", f"{reason}; jobs are measured by meter burst", action)
    action = "in a virtual machine, let the host pass the PMU through"
    return Finding("PMU", "note", f"{reason}; jobs are measured by meters count and burst", action)


def paranoid() -> Finding:
    """The kernel's setting for counters."""
    try:
        with open(_PARANOID) as file:
            level = int(file.read())
    except (OSError, ValueError):
        return Finding("perf_event_paranoid", "note", "missing: the kernel does not support perf events")
    if level <= 2:
        return Finding("perf_event_paranoid", "ok", str(level))
    action = f"as root: echo 2 > {_PARANOID}"
    return Finding("perf_event_paranoid", "note", f"{level}: users cannot use counters", action)


def options() -> Finding:
    """Whether the options in the environment are valid."""
    try:
        config.validate()
    except MpicolocError as error:
        return Finding("options", "fail", str(error), "correct or unset that variable")
    remarks = "; ".join(config.variable_warnings())
    if not remarks and (unknown := config.unknown_variables()):
        remarks = f"unknown variables: {', '.join(unknown)}"
    if remarks:
        return Finding("options", "note", remarks, "see `mpicoloc run --help`")
    return Finding("options", "ok", "no option in the environment is invalid")


def compiled_parts() -> list[Finding]:
    """Whether the contract's module and the keeper are installed."""
    again = f"install the package again: {remedy(flags='--force-reinstall')}"
    contract = Finding("contract", "ok", "the compiled module for Python can be loaded")
    try:
        importlib.import_module("mpicoloc.pmpi.contract")
    except (ImportError, MpicolocError) as error:
        contract = Finding("contract", "fail", str(error), again)
    path = os.path.join(paths.lib_dir(), paths.KEEPER)
    keeper = Finding("keeper", "ok", path)
    if not os.access(path, os.X_OK):
        keeper = Finding("keeper", "fail", f"{path} is missing", again)
    return [contract, keeper]


def mpis() -> list[Finding]:
    """Each MPI on this machine, and whether a preloaded library fits it."""
    found = [_mpi(one) for one in _launchers()]
    if any(finding.state == "ok" for finding in found):
        return found
    again = f"install an MPI, or use the embedded MPI: {remedy('mpich')}"
    return [
        *(finding._replace(state="fail") for finding in found),
        Finding("MPI", "fail", "no usable MPI found", again),
    ]


def _launchers() -> list[launcher.Launcher]:
    """Every mpirun in this Python's folder and in PATH, each installation once."""
    beside = os.path.dirname(sys.executable)
    files = [os.path.join(beside, name) for name in ("mpiexec.hydra", "mpirun")]
    names = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich", "mpiexec.hydra")
    files += [path for name in names if (path := shutil.which(name))]
    found: dict[tuple[str, str], launcher.Launcher] = {}
    for path in dict.fromkeys(files):
        if not os.access(path, os.X_OK):
            continue
        one = launcher.identify(path)
        if one is not None:
            folder = os.path.dirname(os.path.realpath(path))
            found.setdefault((one.family + one.version, "" if folder == "/usr/bin" else folder), one)
    return list(found.values())


def _mpi(one: launcher.Launcher) -> Finding:
    name = target.NAMES.get(one.family, one.family)
    text = f"{name} {one.version}, {one.path}, ABI {one.family}"
    shim = paths.find_shim(paths.abi_of(one.family, one.major >= 6))
    if shim is None:
        beside = os.path.join(os.path.dirname(one.path), "mpicc")
        compiler = beside if os.path.exists(beside) else "CC"
        return Finding("MPI", "note", f"{text}: no mpicoloc library", f"mpicoloc build --mpicc {compiler}")
    if action := launcher.root_remedy(one):
        return Finding("MPI", "note", f"{text}: it refuses to run as root", action)
    return Finding("MPI", "ok", f"{text}, {shim}")


def board() -> Finding:
    """The jobs on this node's board."""
    from mpicoloc.core.units import counted

    path = ""
    try:
        contract = importlib.import_module("mpicoloc.pmpi.contract")
        printable = importlib.import_module("mpicoloc.errors").printable
        path = contract.board_path()
        record = contract.read_board()
    except FileNotFoundError:
        return Finding("board", "ok", "no job runs under mpicoloc on this node now")
    except OSError as error:
        return Finding("board", "fail", f"{path}: {error.strerror}", _remove_board(path))
    except (ImportError, MpicolocError) as error:
        return Finding("board", "fail", str(error), _remove_board(path))
    taken = [slot for slot in record["slots"] if slot["owner"]]
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return Finding("board", "fail", f"{path} cannot be written", f"its owner or root: chmod 666 {path}")
    names = ", ".join(printable(contract.text(slot["job_id"])) for slot in taken)
    return Finding("board", "ok", f"{counted(len(taken), 'job')} on this node{': ' + names if names else ''}")


def co_runners() -> Finding:
    """Whether a job that starts here would see all others of the node."""
    name = "co-runners"
    try:
        contract = importlib.import_module("mpicoloc.pmpi.contract")
        reason, socket_name = contract.why_unseen(), contract.board_socket()
    except (ImportError, MpicolocError) as error:
        return Finding(name, "note", f"not tried: {error}")
    if not reason:
        beyond = ", even this user's with their own /dev/shm" if socket_name else ""
        return Finding(name, "ok", f"jobs here see all jobs under mpicoloc on this node{beyond}")
    text = f"{reason}: no slowdown is measured unless all co-runners are visible"
    if (uid := _socket_owner(socket_name)) is not None:
        action = (
            f"user {uid} holds it (ss -xlp src '@{socket_name}'): if a job does, let all jobs share one "
            "folder in memory (shm= of the Slurm plugin); if not, that user or root must end the process"
        )
    else:
        action = (
            "run jobs in the node's network, or mount its /dev/shm in them and set MPICOLOC_SHM_DIR=/dev/shm"
        )
    return Finding(name, "note", text, action)


def _socket_owner(name: str) -> int | None:
    """The user whose process listens at an abstract socket; None if no process does."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        client.connect(f"\0{name}")
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    return None


def foreign_boards() -> list[Finding]:
    """Boards of other versions of mpicoloc: left behind, planted, or in use."""
    try:
        leftovers = importlib.import_module("mpicoloc.job.leftovers")
        paths = leftovers.foreign_boards(str(config.get("shm_dir")))
    except (ImportError, OSError, MpicolocError):
        return []  # other findings report this
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # the file may be gone
            found.append(f"{path} of user {os.lstat(path).st_uid}")
    if not found:
        return []
    text = "while jobs run on them, new jobs of this version measure no slowdown here"
    action = "use one version per node; remove unused boards: owner: mpicoloc check --clean, or root: rm"
    return [Finding("boards of other versions", "note", f"{', '.join(found)}: {text}", action)]


def _remove_board(path: str) -> str:
    try:
        return f"as user {os.lstat(path).st_uid} or root, while no job runs: rm {path}"
    except OSError:
        return "install all parts of mpicoloc again"


def left_behind(remove: bool = False) -> Finding:
    """Files of this user's jobs whose processes and keeper were killed."""
    from mpicoloc.core.units import counted

    name = "left behind"
    try:
        leftovers = importlib.import_module("mpicoloc.job.leftovers")
        folder = str(config.get("shm_dir"))
        found = [*leftovers.find(folder), *leftovers.boards(folder)]
        n_files = sum(one.remove() if remove else len(one.paths) for one in found)
    except (ImportError, OSError, MpicolocError) as error:
        return Finding(name, "note", f"cannot look for files of dead jobs: {error}")
    if not found:
        return Finding(name, "ok", "no files of dead jobs")
    keys = ", ".join(one.key for one in found[:8]) + (" ..." if len(found) > 8 else "")
    if remove:
        return Finding(name, "ok", f"removed {counted(n_files, 'file')} of dead jobs: {keys}")
    return Finding(name, "note", f"{counted(n_files, 'file')} of dead jobs: {keys}", "mpicoloc check --clean")


MIN_SHM_BYTES = 64 << 20


def shared_memory() -> Finding:
    """Whether the folder in memory is writable and has room for a job."""
    folder = str(config.BY_KEY["shm_dir"].default)
    try:
        folder = str(config.get("shm_dir"))
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(
            "shared memory",
            "fail",
            f"{folder} cannot be written: {error.strerror}",
            "set MPICOLOC_SHM_DIR to another folder in memory, the same one for all jobs of the node",
        )
    if free < MIN_SHM_BYTES:
        return Finding(
            "shared memory",
            "fail",
            f"{folder} has {free >> 20} MiB free, but a job needs up to {MIN_SHM_BYTES >> 20} MiB",
            "delete old files there, or in Docker use --shm-size=1g",
        )
    return Finding("shared memory", "ok", f"{folder} has {free >> 20} MiB free")


def processors() -> Finding:
    """Processors that this process may use, and hardware threads per core."""
    usable, all_of_them = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    threads = _threads_per_core()
    remark = "; a shutter stops co-runners on both threads of a core" if threads > 1 else ""
    return Finding(
        "processors", "ok", f"{usable} of {all_of_them} processors usable, {threads} per core{remark}"
    )


def _threads_per_core() -> int:
    try:
        with open("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list") as file:
            text = file.read().strip()
    except OSError:
        return 1
    return len(parse_cpus(text))


def real_time_signals() -> Finding:
    """Whether a real-time signal is free, which the gate needs."""
    n_free = sum(signal.getsignal(n) == signal.SIG_DFL for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
    if n_free == 0:
        return Finding("gate", "note", "no real-time signal is free, so jobs here cannot be paused")
    return Finding(
        "gate", "ok", f"{n_free} real-time signals free; sleeps end {_sleep_lateness_us():.0f} us late"
    )


def _sleep_lateness_us() -> float:
    late = []
    for _ in range(20):
        start = time.monotonic_ns()
        time.sleep(0.001)
        late.append((time.monotonic_ns() - start) / 1e3 - 1000.0)
    return sorted(late)[len(late) // 2]


def pidfd() -> Finding:
    """Whether the kernel has pidfds, with which the keeper waits for ranks."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return Finding(
            "pidfd",
            "note",
            f"this kernel ({platform.release()}) has no pidfds: a killed job may leave no profile",
            "use Linux 5.3 or newer",
        )
    return Finding("pidfd", "ok", "a killed job still leaves a partial profile")


def all_findings(clean: bool = False) -> list[Finding]:
    """All findings, in the order in which they matter to a job."""
    return [
        options(),
        *compiled_parts(),
        *mpis(),
        shared_memory(),
        processors(),
        real_time_signals(),
        pidfd(),
        counters(),
        paranoid(),
        board(),
        co_runners(),
        *foreign_boards(),
        left_behind(clean),
    ]


_MARKS = {"ok": "ok  ", "note": "note", "fail": "no  "}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--clean", action="store_true", help="remove the shared-memory files of your dead jobs"
    )


def run(args: argparse.Namespace) -> int:
    """Print the findings; returns 1 when a job cannot be measured here."""
    findings = all_findings(args.clean)
    works = not any(finding.state == "fail" for finding in findings)
    if args.json:
        print(json.dumps({"works": works, "findings": [finding._asdict() for finding in findings]}, indent=2))
        return 0 if works else 1
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{_MARKS[finding.state]} {finding.name:{width}}  {finding.text}")
        if finding.remedy:
            print(f"     {'':{width}}  -> {finding.remedy}")
    print("Jobs can be measured here." if works else "Jobs cannot be measured here; see the lines marked no.")
    sys.stdout.flush()
    return 0 if works else 1

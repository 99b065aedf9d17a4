"""The loop of the pairing service: looks at the queue again and again, and reports each trouble once."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from mpicoloc import messages
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError
from mpicoloc.pairing import blossom, model_file
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Action, Partitions
from mpicoloc.slurm import apply, client, service
from mpicoloc.slurm.apply import AuditLog
from mpicoloc.slurm.job_history import ProfileHistory
from mpicoloc.slurm.service import ServiceSettings

_HELD: list[TextIO] = []


def _close_locks() -> None:
    for file in _HELD:
        file.close()


# A child that reads a profile may hang and outlive the service; it must not keep the lock.
os.register_at_fork(after_in_child=_close_locks)


@contextlib.contextmanager
def hold_lock(partitions: Partitions) -> Iterator[None]:
    """Hold the lock of these partitions; the system lets go of it when the process ends.

    Without a place for the lock, or on a file system without locks, there is none.

    Raises `EnvironmentFault` if another service holds it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    words = "\0".join((os.environ.get("SLURM_CONF", ""), partitions.alone, partitions.shared))
    name = f"pair-{hashlib.sha256(words.encode(errors='surrogateescape')).hexdigest()[:16]}.lock"
    path = os.path.join(cache, "mpicoloc", name)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "a", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentFault(
                    f"another `mpicoloc pair --watch` steers {partitions.alone} and {partitions.shared} "
                    f"({path} is locked): end it first, or look with --dry-run"
                ) from None
            _HELD.append(file)
            stack.callback(_HELD.remove, file)
        yield


Show = Callable[[Action], None]


def settings(partitions: Partitions, rules: Rules, model_path: str | None) -> ServiceSettings:
    """Settings of a service with these rules and the model of a file.

    Raises `UsageError` if the service cannot decide by these rules.
    """
    if model_path is None and rules.prior_slowdown is None:
        raise UsageError("--watch needs --model FILE, or --prior-slowdown X until there is a model")
    if rules.policy == "blossom":
        blossom.library()  # a missing library is reported now, not when two jobs wait
    if rules.policy == "di":
        raise UsageError("--policy di needs an intensity of each job, which Slurm lacks: take another")
    if rules.n_per_node != 2:
        raise UsageError(f"--watch makes pairs, and --per-node is {rules.n_per_node}: leave it out")
    model = None if model_path is None else model_file.read(model_path)
    return ServiceSettings(partitions, rules, model)


def partitions(alone: str, shared: str) -> Partitions:
    """The two queues.

    Raises `UsageError` if they are one.
    """
    if alone == shared:
        raise UsageError(f"--alone and --shared are both {alone}: jobs must have nodes of their own in one")
    return Partitions(alone, shared)


def watch(pairing: PairingService, interval_s: float, *, is_once: bool) -> None:
    """Look until the process ends, or once. A service that changes jobs is the only one of its partitions.

    Raises `MpicolocError` what stopped the only look; of several looks each trouble is reported and the next
    one tries again.
    """
    lock = contextlib.nullcontext() if pairing.is_dry else hold_lock(pairing.how.partitions)
    with lock:
        while True:
            try:
                pairing.look()
            except MpicolocError as error:
                if is_once:
                    raise
                pairing.report_trouble(error)
            if is_once:
                return
            time.sleep(interval_s)


class PairingService:
    """The pairing service between two looks at the queue: what it knows, and what it has already reported.

    Parameters
    ----------
    profiles : str
        Folder of the jobs' profiles.
    model_path : str or None
        File of the model in `how`, which is read again when it changes.
    how : ServiceSettings
    audit : AuditLog
    show : callable
        Gets each new action.
    is_dry : bool
        Decide and log only.
    """

    def __init__(
        self,
        profiles: str,
        model_path: str | None,
        how: ServiceSettings,
        audit: AuditLog,
        show: Show,
        *,
        is_dry: bool,
    ) -> None:
        self.model_path, self.how, self.audit, self.show, self.is_dry = model_path, how, audit, show, is_dry
        self.known = ProfileHistory(profiles, getattr(how.model, "machine", None))
        self.state = service.LoopState()
        self.reported: set[str] = set()
        self.is_advised = False
        self.trouble = ""
        self.model_stamp = _stamp(model_path)
        self._warn_of_layout()

    def look(self) -> None:
        """One round."""
        if not self.is_advised:
            now = client.snapshot()
            found = apply.configuration_advice(now, self.how.partitions, client.settings())
            for line in found + service.machine_advice(now, self.how):
                messages.trouble(line)
            self.is_advised = True
        self.renew_model()
        for action in service.run_once(
            self.known, self.how, self.audit, is_dry=self.is_dry, state=self.state
        ):
            self.show(action)
        for sort in self.known.notes.keys() - self.reported:
            messages.trouble(self.known.notes[sort])
        self.trouble = ""
        self.reported |= self.known.notes.keys()

    def renew_model(self) -> None:
        """Read the model again if its file has changed and holds one."""
        stamp = _stamp(self.model_path)
        if stamp == self.model_stamp or self.model_path is None:
            return
        self.model_stamp = stamp
        try:
            model = model_file.read(self.model_path)
        except MpicolocError as error:
            messages.trouble(f"{error}; the model that was read before is kept")
            return
        self.how = dataclasses.replace(self.how, model=model)
        self.known.set_machine(model.machine)
        self._warn_of_layout()

    def report_trouble(self, error: MpicolocError) -> None:
        """Report an error, but not twice in turn: Slurm restarts, file systems go and come."""
        if str(error) != self.trouble:
            messages.trouble(str(error))
            self.audit.add(time.time(), "trouble", error=str(error))
        self.trouble = str(error)

    def _warn_of_layout(self) -> None:
        if getattr(self.how.model, "card", {}).get("layout") == "apart":
            messages.trouble(
                f"{self.model_path} learnt from jobs on processors of their own, and pairs here share them: "
                "they will suffer more; measure a campaign whose two `places` are the same"
            )


def _stamp(path: str | None) -> tuple[int, ...]:
    """What changes when a file is written anew; the same for none."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return (-1,)
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)

"""The ways in which a suite's program is started: bare, and with the shim in it."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "mpi"), str(ROOT / "tests" / "support")]

import processes  # noqa: E402, F401 for the modules beside this one
import shimlab  # noqa: E402

MODES = ("preload", "swap")


@dataclass(frozen=True)
class Launch:
    """Commands that start jobs of one MPI, with the shim and without it."""

    family: shimlab.Family  # the MPI and the shim without keeper, which starts and ends in milliseconds
    mode: str  # "preload": the library alone; "swap": with a coordinator in the job's world
    product: bool  # the installed library, keeper, agent and profile included
    folder: Path  # shared memory and profiles of the jobs; emptied after each

    def bare(self, n_ranks: int, words: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
        """The command without the shim; `extra` are arguments for the launcher."""
        return [*self.family.mpirun, *extra, "-n", str(n_ranks), *words]

    def shimmed(self, n_ranks: int, words: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
        """The command with it."""
        mpirun = [*self.family.mpirun, *extra]
        if self.mode == "swap" and self.product:
            flags = [f"--mpirun-arg={word}" for word in mpirun[1:]]
            return [*_mpicoloc(), "run", "-n", str(n_ranks), "--mpirun", mpirun[0], *flags, "--", *words]
        if self.mode == "swap":
            setting = {**self._settings(), "MPICOLOC_WRAPPED": "1", "MPICOLOC_COORDINATOR": "1"}
            inner = ["env", *(f"{key}={value}" for key, value in setting.items()), "MPICOLOC_KEY=suite"]
            coordinator = self.family.compile("coordinator.c")
            return [*mpirun, "-n", str(n_ranks), *inner, *words, ":", "-n", "1", coordinator]
        return [*mpirun, "-n", str(n_ranks), *self._exported(), *words]

    def env(self) -> dict[str, str]:
        """Environment of the launcher of a job with the shim."""
        return {
            "MPICOLOC_SHM_DIR": str(self.folder),
            "MPICOLOC_OUT": str(self.folder / "profile.h5"),
        }

    def seen(self) -> bool:
        """Whether the last job left what a job with the shim in it leaves; and nothing of it is left now."""
        files = list(self.folder.iterdir())
        for file in files:
            file.unlink(missing_ok=True)
        return bool(files)

    def _settings(self) -> dict[str, str]:
        shim = self.family.shim
        if self.product:
            program = [] if self.family.mpicc.startswith(sys.prefix) else [_linked(self.family)]
            shim = subprocess.run(
                [*_mpicoloc(), "preload", *program], check=True, capture_output=True, text=True, timeout=60
            ).stdout.strip()
        return {"LD_PRELOAD": str(shim)}

    def _exported(self) -> list[str]:
        """Launcher's own way to set variables, so that spawned processes get them as well."""
        words = []
        for key, value in self._settings().items():
            words += ["-x", f"{key}={value}"] if self.family.name == "openmpi" else ["-genv", key, value]
        return words


def _mpicoloc() -> list[str]:
    return [sys.executable, "-m", "mpicoloc"]


def _linked(family: shimlab.Family) -> str:
    """A program of this MPI, for `mpicoloc preload` to look at."""
    return str(family.compile("calls.c"))


def prepare(
    mpi: str, mode: str, product: bool, cache: Path, family: shimlab.Family | None = None
) -> Launch | None:
    """A `Launch` for one of "openmpi", "mpich", "wheel" (the MPI beside this Python); None if it is not here.

    Without a `family` its shim is built in `cache`, once for each state of its sources.
    """
    family = family or _family(mpi, cache)
    return family and Launch(family, mode, product, memory_folder())


def _family(mpi: str, cache: Path) -> shimlab.Family | None:
    lab = cache / f"shim-{mpi}-{_sources_stamp()}"
    family = _built(lab / "family.pickle")
    if family is None:
        shutil.rmtree(lab, ignore_errors=True)
        lab.mkdir(parents=True)
        family = shimlab.own_family(lab) if mpi == "wheel" else shimlab.make_family(mpi, lab)
        (lab / "family.pickle").write_bytes(pickle.dumps(family))
    return family


def _built(file: Path) -> shimlab.Family | None:
    return pickle.loads(file.read_bytes()) if file.exists() else None


def _sources_stamp() -> str:
    """Changes with whatever the shim is made from."""
    files = [
        *(ROOT / "csrc").rglob("*.[ch]"),
        *(ROOT / "csrc").rglob("*.toml"),
        ROOT / "mpicoloc" / "config.py",
    ]
    files += [*(ROOT / "mpicoloc" / "pmpi").glob("*.py"), *shimlab.PROGRAMS.glob("*.c")]
    files = [file for file in files if not file.name.endswith("_gen.h")]
    parts = [file.read_bytes() for file in sorted(files)] + [sys.prefix.encode()]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


def memory_folder() -> Path:
    """A folder of our own in memory; `remove` deletes it."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="mpicoloc-suite-", dir=base))


def remove(launch: Launch) -> None:
    """Delete the folder in memory."""
    shutil.rmtree(launch.folder, ignore_errors=True)


def quiet_environment() -> Mapping[str, str]:
    """Environment of every job: none of the user's options, Open MPI as root, MPICH ranks that yield.

    There are more ranks than cores; otherwise a waiting rank of MPICH keeps its core for a thousand polls.
    """
    os.environ.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
    for name in [name for name in os.environ if name.startswith("MPICOLOC_")]:
        del os.environ[name]
    for prefix in ("OMPI", "PRTE"):
        os.environ.setdefault(f"{prefix}_ALLOW_RUN_AS_ROOT", "1")
        os.environ.setdefault(f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return os.environ

"""What Slurm said of a step when it ended: a JSON file beside its signed profile, with the site's code on it.

The profile tells how much the step was slowed down, as its user's programs measured it; the record tells who
ran it, on how many cores and for how long, as Slurm gave them.
"""

from __future__ import annotations

import contextlib
import glob
import hmac
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

from mpicoloc.core.step_record import StepRecord, step_record_of
from mpicoloc.core.tables import printable
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault
from mpicoloc.profile.signature import ALGORITHM, Key, key_id, mac

VERSION = 1
MAX_BYTES = 1 << 16
SKEW_S = 60.0
"""By how much the clocks of a node and of slurmctld may differ, s."""


@dataclass(frozen=True)
class Sealed:
    """A record as its file has it; nothing of it is checked before `reason`."""

    record: StepRecord
    covered: bytes
    key_id: str
    code: str

    def reason(self, key: Key) -> str:
        """Why this is not as the holder of `key` wrote it; empty: it is."""
        # In constant time, so that no caller can find the code byte by byte.
        if hmac.compare_digest(mac(key, self.covered).encode(), self.code.encode("utf-8", "replace")):
            return ""
        if self.key_id != key_id(key):
            return f"Slurm's record has the code of another key ({printable(self.key_id)[:32]})"
        return "Slurm's record was changed after it was written"


def path_of(profile: str) -> str:
    """Where the record of a profile in a spool is."""
    return os.path.splitext(profile)[0] + ".json"


def paths(spool: str, job: int) -> list[str]:
    """Records of a job's steps in a spool, of all of its starts, in the order of their names."""
    return sorted(glob.glob(os.path.join(glob.escape(spool), f"{job}.*.json")))


def write(path: str, record: StepRecord, key: Key) -> bool:
    """Write a record whole or not at all, readable by its owner only; False: there is one, which stays.

    Raises `EnvironmentFault` if the folder or disk refuses.
    """
    text = json.dumps(sealed(record, key), indent=1, allow_nan=False) + "\n"
    try:
        handle, new = tempfile.mkstemp(
            prefix=".mpicoloc-", suffix=".part", dir=os.path.dirname(os.path.abspath(path))
        )
        try:
            with open(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(handle)
            os.link(new, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from error
    return True


def sealed(record: StepRecord, key: Key) -> dict[str, Any]:
    """The record as plain values, with its code."""
    values = {"schema_version": VERSION, **asdict(record)}
    code = mac(key, _covered(values))
    return {**values, "signature": {"algorithm": ALGORITHM, "key_id": key_id(key), "code": code}}


def read(path: str) -> Sealed | None:
    """The record in a file; None: there is no such file.

    Raises `DataError` if it is no record, or one of another version. Raises `EnvironmentFault` if it cannot
    be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    try:
        values = json.loads(content) if len(content) <= MAX_BYTES else {}
        signature = values.pop("signature")
        version = values.pop("schema_version")
        if version != VERSION:
            raise DataError(f"{path} has version {version!r}, this mpicoloc reads {VERSION}: use a newer one")
        record = step_record_of(values)
        covered = _covered({"schema_version": version, **values})
        return Sealed(record, covered, str(signature["key_id"]), str(signature["code"]))
    except (AttributeError, *MALFORMED) as error:
        raise DataError(f"{path} is no record of Slurm's: it is damaged") from error


def _covered(values: dict[str, Any]) -> bytes:
    """One text for the same values, however the file is laid out."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()

"""Writes the profile of a job from its files in shared memory.

    python -m mpicoloc.profile.assemble KEY [--partial]

Run by the node's keeper when no coordinator did it; the coordinator calls `write`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Sequence

from mpicoloc import config
from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, print_to_stderr
from mpicoloc.profile import checkpoints, hdf5
from mpicoloc.profile.bundle import NodePart
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge


def write(found: Sequence[NodePart], partial: bool = False) -> tuple[str, str]:
    """Write the profile of a job.

    Raises `EnvironmentFault` if it can be written nowhere.
    """
    profile = _on_network(merge(found, partial))
    # With LD_PRELOAD alone nobody has seen the environment before.
    profile, sign = _signing(
        dataclasses.replace(profile, notes=(*profile.notes, *config.variable_warnings()))
    )
    wanted = found[0].facts["out_path"]
    try:
        _write(profile, wanted, sign)
        return wanted, ""
    except (MpicolocError, OSError) as error:
        reason = str(error).split("\n")[0]
    fallback = _write_elsewhere(profile, wanted, sign)
    return fallback, f"profile cannot be written to {wanted} ({reason}), so it is in {fallback}"


def _write(profile: Profile, path: str, sign: hdf5.Finish | None) -> None:
    """Write it, signed if that can be done."""
    try:
        hdf5.write(profile, path, sign)
    except DataError as error:  # of the signature: what writes the rest raises none
        hdf5.write(_unsigned(profile, error), path)


def _on_network(profile: Profile) -> Profile:
    """The profile with what the job did to the network, whose import takes 15 ms, if that is asked for."""
    if config.get("network.topology") is None:
        return profile
    from mpicoloc.profile.job_network import on_network

    return on_network(profile)


def _unsigned(profile: Profile, error: MpicolocError) -> Profile:
    return dataclasses.replace(profile, notes=(*profile.notes, f"unsigned: {error}"))


def _signing(profile: Profile) -> tuple[Profile, hdf5.Finish | None]:
    """What signs the profile when it is written; a key that cannot be used becomes a note in it."""
    path = config.get("sign_key_file")
    if path is None:
        return profile, None
    from mpicoloc.profile import signature

    try:
        key = signature.read_key(str(path))
    except MpicolocError as error:
        return _unsigned(profile, error), None
    return profile, lambda file: signature.add(file, key, time.time())


def _write_elsewhere(profile: Profile, wanted: str, sign: hdf5.Finish | None) -> str:
    """Write it into the folder for temporary files; where another user holds its name, under a new one."""
    import tempfile

    folder, name = tempfile.gettempdir(), os.path.basename(wanted) or "mpicoloc.h5"
    path = os.path.join(folder, name)
    try:
        _write(profile, path, sign)
    except EnvironmentFault:
        path = os.path.join(folder, f"{os.urandom(8).hex()}-{name}")
        _write(profile, path, sign)
    return path


def _write_own(key: str, partial: bool) -> str:
    """Write the profile, or leave that to another node; returns the trouble."""
    own = collect(key)
    if own.facts["n_nodes"] == 1:
        return write([own], partial)[1]
    from mpicoloc.profile import recover

    found = recover.gather(own)
    path, trouble = write(found, partial) if found else ("", "")
    if len(found) > 1 and not trouble and recover.is_whole(found):
        checkpoints.remove(path)
    return trouble


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the command; returns its exit code, by which the keeper knows how it went."""
    key, *options = sys.argv[1:] if arguments is None else arguments
    try:
        trouble = _write_own(key, "--partial" in options)
    except MpicolocError as error:
        print_to_stderr(str(error))
        return error.exit_code
    if trouble:
        print_to_stderr(trouble)
    return EnvironmentFault.exit_code if trouble else 0


if __name__ == "__main__":
    sys.exit(main())

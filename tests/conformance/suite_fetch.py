"""Fetches the sources of the two suites into a cache folder, checks them, and unpacks what is needed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from suite_shims import shimlab

TIME_LIMIT_S = 120


class Unreachable(Exception):
    """A source cannot be fetched here."""


@dataclass(frozen=True)
class Source:
    """One archive: where it may be found, its checksum, and the folder that it unpacks to."""

    file: str
    urls: tuple[str, ...]
    sha256: str
    folder: str
    part: str


# Debian's source package 4.0.2-3; the snapshot stays when Debian moves on.
MPICH = Source(
    file="mpich_4.0.2.orig.tar.xz",
    urls=(
        "http://deb.debian.org/debian/pool/main/m/mpich/mpich_4.0.2.orig.tar.xz",
        "http://snapshot.debian.org/archive/debian/20230601T000000Z/pool/main/m/mpich/mpich_4.0.2.orig.tar.xz",
    ),
    sha256="b27039f964afeb6b8a3e009c56b441cbe368c26d6d6476ad3bb7190996875860",
    folder="mpich-4.0.2",
    part="test/mpi/",
)


def default_cache() -> Path:
    """The user's cache folder for the suites."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mpicoloc-suites"


def mpich(cache: Path) -> Path:
    """The folder test/mpi of MPICH's sources; Unreachable if no server gives the archive, nor the cache."""
    archive = cache / MPICH.file
    folder = cache / MPICH.folder / MPICH.part
    with shimlab.once.alone(archive):
        if not archive.exists():
            _download(MPICH, archive)
        if not (folder / "configure").exists():
            _unpack(archive, cache, f"{MPICH.folder}/{MPICH.part}")
    return folder


def mpi4py(cache: Path) -> Path:
    """The folder test of the sources of the mpi4py installed here; Unreachable if pip cannot fetch them."""
    version = metadata.version("mpi4py")
    archive = cache / f"mpi4py-{version}.tar.gz"
    cache.mkdir(parents=True, exist_ok=True)
    if not archive.exists():
        problem = _pip_download(f"mpi4py=={version}", cache)
        if not archive.exists():
            raise Unreachable(f"pip cannot fetch the sources of mpi4py {version}: {problem}")
    folder = cache / f"mpi4py-{version}" / "test"
    if not (folder / "main.py").exists():
        _unpack(archive, cache, f"mpi4py-{version}/test/")
    return folder


def _pip_download(what: str, cache: Path) -> str:
    """Let pip put a source archive into `cache`; what it says if it fails."""
    words = ["--quiet", "--no-deps", "--no-binary", "mpi4py", "--dest", str(cache)]
    # pip asks the archive for its metadata; in isolation it would install what builds need for that
    command = [sys.executable, "-m", "pip", "download", "--no-build-isolation", *words, what]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return done.stderr.strip()[-300:]


def _download(source: Source, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in source.urls:
        try:
            with urllib.request.urlopen(url, timeout=TIME_LIMIT_S) as answer:
                data = answer.read()
        except (urllib.error.URLError, OSError) as error:
            problems.append(f"{url}: {error}")
            continue
        found = hashlib.sha256(data).hexdigest()
        if found != source.sha256:
            problems.append(f"{url}: sha256 {found}, not {source.sha256}")
            continue
        partial = archive.with_suffix(f".{os.getpid()}")
        partial.write_bytes(data)
        partial.replace(archive)
        return
    raise Unreachable("; ".join(problems))


# Python 3.11.0 to 3.11.3, Debian's among them, know no filter.
_SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _unpack(archive: Path, cache: Path, prefix: str) -> None:
    """Unpack what begins with `prefix`, with the times of the archive: make must not think it outdated."""
    folder = cache / f"unpacked-{os.getpid()}"
    with tarfile.open(archive, "r|*") as tar:  # once through: to go back is to begin again
        for member in tar:
            if member.name.startswith(prefix):
                tar.extract(member, folder, **_SAFELY)
    whole = cache / prefix
    whole.parent.mkdir(parents=True, exist_ok=True)
    (folder / prefix).replace(whole)
    shutil.rmtree(folder)

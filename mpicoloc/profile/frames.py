"""The tables of a profile as pandas frames, in which bytes are decoded to text."""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mpicoloc.core.profile import COLUMNS, PHASES, VERDICTS, NetworkLevel, Profile, Table, text
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, printable
from mpicoloc.measure import processor
from mpicoloc.profile import profiles
from mpicoloc.profile.symbolize import Place, offset_in, resolve
from mpicoloc.trace import reader, sums
from mpicoloc.trace.reader import Trace


def frame(array: Table) -> pd.DataFrame:
    """One table as a frame."""
    names = array.dtype.names or ()
    columns = {
        name: _texts(array[name]) if array.dtype[name].kind == "S" else array[name].copy() for name in names
    }
    return pd.DataFrame(columns, columns=list(names), copy=False)


def _texts(cells: NDArray[np.bytes_]) -> NDArray[np.object_]:
    """Texts of a column. Each distinct text is decoded only once: a long table has few distinct texts."""
    row, found = pd.factorize(cells.astype(object))
    return np.array([*map(text, found), ""], dtype=object)[row]


class Frames:
    """The tables of a profile; each access to an attribute returns a new frame.

    Attributes
    ----------
    profile : Profile
        Everything except the tables: ``job``, ``mpi``, ``interference``, ``price``.

    Examples
    --------
    >>> job = mpicoloc.open("mpicoloc-1234.h5")  # doctest: +SKIP
    >>> job.calls.sort_values("time_s").tail(3)  # doctest: +SKIP
    """

    def __init__(self, profile: Profile, path: str | os.PathLike[str] = "") -> None:
        self.profile = profile
        self._path = path

    def __repr__(self) -> str:
        """The job in a few words, and the names of the tables."""
        job, slowdown = self.profile.job, self.profile.interference.slowdown
        facts = [
            f"job {job.id}: {job.command}",
            f"{counted(job.n_ranks, 'rank')} on {counted(job.n_nodes, 'node')} for {job.wall_s:.4g} s",
            f"slowdown {processor.slowdown_words(slowdown)}",
            *(["partial"] if self.profile.partial else []),
        ]
        tables = [name for name, value in vars(Frames).items() if isinstance(value, property)]
        where = f"{printable(os.fspath(self._path))}, " if self._path else ""
        return (
            f"<mpicoloc profile {where}{printable(', '.join(facts))}; tables: "
            f"{', '.join(name for name in tables if name != 'is_traced')}; everything else: .profile>"
        )

    def table(self, name: str) -> pd.DataFrame:
        """Table `name` as it is in the file.

        Raises
        ------
        DataError
            If there is no such table.
        """
        if name not in COLUMNS:
            raise DataError(f"profiles have no table {name!r}; their tables are {', '.join(COLUMNS)}")
        return frame(self.profile.tables[name])

    @property
    def ranks(self) -> pd.DataFrame:
        """One row per rank, with its hostname."""
        ranks, nodes = self.table("ranks"), self.table("nodes")
        ranks.insert(2, "hostname", ranks["i_node"].map(nodes["hostname"]))
        return ranks

    @property
    def nodes(self) -> pd.DataFrame:
        """One row per node."""
        return self.table("nodes")

    @property
    def calls(self) -> pd.DataFrame:
        """One row per MPI function: n, n_timed, bytes, time_s over all ranks, max_s, and mean_s."""
        total = frame(sums.by_function(self.profile.tables["call_sites"]))
        total["bytes"] = total["sent_bytes"] + total["recv_bytes"]
        for name in ("time", "max"):
            total[f"{name}_s"] = total[f"{name}_ns"].astype(float) * 1e-9
        total["mean_s"] = total["time_s"] / total["n"].where(total["n"] > 0)
        return total[["call", "n", "n_timed", "bytes", "time_s", "max_s", "mean_s"]]

    @property
    def call_sites(self) -> pd.DataFrame:
        """One row per rank, thread, call site and function; ``site`` is module+0xoffset."""
        sites = self.table("call_sites")
        sites["bytes"] = sites["sent_bytes"] + sites["recv_bytes"]
        paths = self.table("modules")["path"].tolist()
        place = ["i_module", "offset"]
        row = sites.groupby(place, sort=False).ngroup()
        different = sites[place].drop_duplicates().itertuples(index=False)
        names = [offset_in(paths, i_module, offset) for i_module, offset in different]
        sites["site"] = np.where(sites["i_site"] == 0, "(others)", np.array([*names, ""], dtype=object)[row])
        return sites

    def places(self, sites: pd.DataFrame | None = None) -> pd.DataFrame:
        """Source places of call sites: i_module, offset, function, file, line, and `place`, a text with the
        last three.

        Values are missing, and `place` is empty, if the program file is not on this machine, is not the one
        that ran, or has no debug information; ``attrs["reasons"]`` has a line with the reason for each such
        file. Runs ``addr2line`` of binutils.

        Parameters
        ----------
        sites : DataFrame, optional
            Call sites to look up, with columns i_module and offset; default: all of `call_sites`.
        """
        sites = self.table("call_sites") if sites is None else sites
        found = sites[["i_module", "offset"]].drop_duplicates().reset_index(drop=True)
        modules = [(text(row["path"]), text(row["build_id"])) for row in self.profile.tables["modules"]]
        where, reasons = resolve(modules, list(found.itertuples(index=False, name=None)))
        found[list(Place._fields)] = pd.DataFrame(where, columns=list(Place._fields), dtype=object)
        found["place"] = list(map(str, where))
        found.attrs["reasons"] = reasons
        return found

    @property
    def peers(self) -> pd.DataFrame:
        """Messages that each rank sent to and received from each peer, by size class with its bounds."""
        peers = self.table("peers")
        # Sizes of 64 bits have only these classes, but a damaged file can have others.
        size_class = peers["size_class"].clip(0, 63).astype(float)
        peers["from_bytes"] = np.where(size_class > 0, 2 ** (size_class - 1), 0).astype(np.uint64)
        peers["below_bytes"] = np.where(size_class > 0, 2**size_class, 1).astype(np.uint64)
        return peers

    @property
    def regions(self) -> pd.DataFrame:
        """One row per named region of the application: n, time_s and mpi_s over all ranks and threads."""
        total = frame(sums.by_region(self.profile.tables["regions"]))
        for name in ("time", "mpi"):
            total[f"{name}_s"] = total[f"{name}_ns"].astype(float) * 1e-9
        return total[["name", "n", "time_s", "mpi_s"]]

    @property
    def counters(self) -> pd.DataFrame:
        """Hardware event counts, a row for each rank and event; empty if no event could be counted."""
        return self.table("counters")

    @property
    def bursts(self) -> pd.DataFrame:
        """Cycles by rank, thread, call sites and phase: n, comp_s, mpi_s, mean_s."""
        cycles = self.table("cycles")
        cycles["phase"] = cycles["phase"].map(dict(enumerate(PHASES)))
        keys = ["rank", "lane", "from_site", "to_site", "size_class", "phase"]
        total = (
            cycles.groupby(keys)
            .agg(n=("n", "sum"), comp_s=("comp_ns", "sum"), mpi_s=("mpi_ns", "sum"))
            .reset_index()
        )
        total[["comp_s", "mpi_s"]] = total[["comp_s", "mpi_s"]].astype(float) * 1e-9
        total["mean_s"] = (total["comp_s"] + total["mpi_s"]) / total["n"].where(total["n"] > 0)
        return total

    @property
    def shutters(self) -> pd.DataFrame:
        """One row per shutter, with the verdict as a word."""
        shutters = self.table("shutters")
        shutters["verdict"] = shutters["verdict"].map(dict(enumerate(VERDICTS)))
        return shutters

    @property
    def network(self) -> pd.DataFrame:
        """One row per level of the network, with the fields of NetworkLevel as columns; empty without a
        topology.
        """
        found = self.profile.network
        rows = [] if found is None else [dataclasses.asdict(level) for level in found.levels]
        return pd.DataFrame(rows, columns=[field.name for field in dataclasses.fields(NetworkLevel)])

    @property
    def corunners(self) -> pd.DataFrame:
        """One row per co-runner and node."""
        return self.table("corunners")

    @property
    def events(self) -> pd.DataFrame:
        """The last calls of each rank; empty unless the job was run with ``--trace`` or ``--trace N``."""
        return self.table("events")

    @property
    def is_traced(self) -> bool:
        """Whether the profile has a `trace`."""
        return bool(self._path) and os.path.isdir(reader.folder_of(self._path))

    @functools.cached_property
    def trace(self) -> Trace:
        """Every call of a job that was run with ``--trace all``. The calls are read from disk on demand.

        For a job on several nodes, all messages between nodes are read once, to correct the nodes' clocks.

        Raises
        ------
        DataError
            If the profile has no such trace beside it.
        """
        return reader.aligned(reader.read(self._path, self.profile))


def open_profile(path: str | os.PathLike[str]) -> Frames:
    """Open the profile in `path`; raises the errors of `hdf5.read`."""
    return Frames(profiles.read(path), path)

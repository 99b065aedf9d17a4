"""Where calls are made, in words: function, file and line where they are known, else an offset in a file."""

from __future__ import annotations

from collections import Counter

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, text
from mpicoloc.profile import symbolize


def words(profile: Profile, sites: Table, n_looked_up: int | None = None) -> list[tuple[str, str]]:
    """Name and offset of each call site.

    Sites in one function that call the same of MPI are told apart by their offsets, if not by their lines.

    Result: function, file and line, as far as they are known, or empty; and ``app+0x1234``.
    """
    modules = [(text(row["path"]), text(row["build_id"])) for row in profile.tables["modules"]]
    keys = [(int(row["i_module"]), int(row["offset"])) for row in sites]
    is_site = (sites["i_site"] != 0).tolist()
    paths = [path for path, _ in modules]
    offsets = [
        symbolize.offset_in(paths, *key) if known else "(others)"
        for key, known in zip(keys, is_site, strict=True)
    ]
    found, _ = symbolize.resolve(modules, keys[:n_looked_up])
    found += [symbolize.Place()] * (len(keys) - len(found))
    names = [str(place) if known else "" for place, known in zip(found, is_site, strict=True)]
    alike = Counter(zip(names, sites["call"].tolist(), strict=True))
    return [
        (f"{name} {offset}" if name and alike[name, call] > 1 else name, offset)
        for name, call, offset in zip(names, sites["call"].tolist(), offsets, strict=True)
    ]

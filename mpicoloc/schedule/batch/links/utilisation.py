"""For what part of its time a program keeps the links of each level busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError

Floats = NDArray[np.float64]
_NAMES_TOLD = 5


def of_programs(
    names: Sequence[str], table: Mapping[str, Mapping[int, float]], height: int, source: str
) -> Floats:
    """Utilisation of each level by programs.

    Parameters
    ----------
    names : sequence of str
        Programs of the jobs.
    table : mapping of str to mapping of int to float
        Utilisation of levels by program; a level that is not there is not used.
    height : int
        Levels of switches of the machine; its links have levels 0 (of hosts) to height - 1.
    source : str
        Name of the table, for messages.

    Returns
    -------
    ndarray, shape (n_programs, height)
        Of programs that are not in the table 0: they send nothing that is known. What is above 1 counts as 1,
        as in `network.load.sharing`.

    Raises
    ------
    DataError
        If none of the programs is there, or a number is negative, or a program uses a level that the machine
        lacks.
    """
    if not table.keys() & set(names):
        some = ", ".join(names[:_NAMES_TOLD]) + ", ..." * (len(names) > _NAMES_TOLD)
        raise DataError(f"{source} has none of the programs that the jobs run ({some}): name one of these")
    found = np.zeros((len(names), height))
    for name, levels in table.items():
        for level, value in levels.items():
            if value < 0:
                raise DataError(f"{source}: {name} has {value:g} of level {level}: give a part from 0 to 1")
            if level >= height:
                raise DataError(
                    f"{source}: {name} uses level {level}, the machine's links have levels 0 to "
                    f"{height - 1}: leave it out, or give a --topology with more levels"
                )
            if name in names:
                found[names.index(name), level] = min(value, 1.0)
    return found

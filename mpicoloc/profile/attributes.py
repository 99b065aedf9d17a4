"""Text as an attribute of HDF5, by h5py's lower half: the upper one takes six times as long.

A profile has some 400 of them, units and meanings, and a job waits in MPI_Finalize until they are written.
"""

from __future__ import annotations

import functools

import h5py
import numpy as np


def write_text(owner: h5py.HLObject, name: str, words: str) -> None:
    """Give `owner` an attribute that it does not have yet: text of fixed length, which every reader knows."""
    value = np.array(words.encode() or b"\0", dtype=np.bytes_)
    attribute = h5py.h5a.create(owner.id, name.encode(), _type_of(value.itemsize), _scalar())
    attribute.write(value)


@functools.cache
def _scalar() -> h5py.h5s.SpaceID:
    return h5py.h5s.create(h5py.h5s.SCALAR)


@functools.cache
def _type_of(n_bytes: int) -> h5py.h5t.TypeID:
    return h5py.h5t.py_create(np.dtype(f"S{n_bytes}"), logical=True)

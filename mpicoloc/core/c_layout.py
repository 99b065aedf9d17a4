"""NumPy dtypes of C types, as a cffi extension describes them."""

from __future__ import annotations

from typing import Any

import numpy as np


def dtype_of(ffi: Any, ctype: Any) -> np.dtype[Any]:
    """Same size, same offsets; char arrays become byte strings.

    Parameters
    ----------
    ffi : cffi.FFI
        Of the extension; this module imports none.
    ctype : cffi CType
        A struct, an array or a number, as ``ffi.typeof`` returns it.

    Raises
    ------
    TypeError
        If NumPy has nothing like it, as for a pointer.
    """
    if ctype.kind == "array":
        if ctype.item.cname == "char":
            return np.dtype(f"S{ctype.length}")
        return np.dtype((dtype_of(ffi, ctype.item), (ctype.length,)))
    if ctype.kind == "struct":
        # Raises for an opaque struct; cffi aborts when asked for the fields of one.
        itemsize = ffi.sizeof(ctype)
        fields = dict(ctype.fields)
        return np.dtype(
            {
                "names": list(fields),
                "formats": [dtype_of(ffi, field.type) for field in fields.values()],
                "offsets": [field.offset for field in fields.values()],
                "itemsize": itemsize,
            }
        )
    if ctype.kind != "primitive":
        raise TypeError(f"{ctype.cname} has no place in shared memory")
    if ctype.cname in ("float", "double"):
        return np.dtype(f"f{ffi.sizeof(ctype)}")
    sign = "i" if int(ffi.cast(ctype, -1)) < 0 else "u"
    return np.dtype(f"{sign}{ffi.sizeof(ctype)}")

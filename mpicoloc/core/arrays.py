"""Types of arrays: of real numbers, of whole numbers, of flags, of anything."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Array = NDArray[Any]

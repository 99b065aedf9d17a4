"""What a placement must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Constraints:
    """What a placement must keep.

    Parameters
    ----------
    apart : tuple of (str, str)
        Pairs of jobs that may not share a node, by their ids.
    at_most : mapping of str to float
        Largest slowdown that a job may suffer, by its id.
    whole : tuple of str
        Ids of jobs that have their nodes to themselves.
    """

    apart: tuple[tuple[str, str], ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    whole: tuple[str, ...] = ()

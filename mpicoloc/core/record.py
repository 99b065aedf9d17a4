"""A replacement for `typing.NamedTuple` without the import of `typing`, which would cost every rank 10 ms.

A module imports it in this way, so that type checkers see the original:

    TYPE_CHECKING = False
    if TYPE_CHECKING:
        from typing import NamedTuple
    else:
        from mpicoloc.core.record import NamedTuple
"""

from __future__ import annotations

from operator import itemgetter


class NamedTuple(tuple):
    """Base class of immutable records. The annotations of a subclass are its fields, in that order."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _defaults: dict[str, object]

    def __init_subclass__(cls) -> None:
        """Make a field of each annotation."""
        cls._fields = tuple(cls.__annotations__)
        cls._defaults = {name: cls.__dict__[name] for name in cls._fields if name in cls.__dict__}
        for i, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(i)))

    def __new__(cls, *values: object, **named: object) -> NamedTuple:
        """Check that every field has a value."""
        given = {**cls._defaults, **dict(zip(cls._fields, values, strict=False)), **named}
        if len(values) > len(cls._fields) or given.keys() != set(cls._fields):
            raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, got {', '.join(given)}")
        return tuple.__new__(cls, [given[name] for name in cls._fields])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._asdict().items())})"

    def _asdict(self) -> dict[str, object]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changed: object) -> NamedTuple:
        return type(self)(**{**self._asdict(), **changed})

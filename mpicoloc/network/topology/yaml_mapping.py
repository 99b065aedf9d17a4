"""Strict reader of YAML. Imported only to read YAML, because compute nodes can lack PyYAML."""

from __future__ import annotations

from typing import Any

import yaml

from mpicoloc.core.network import shown
from mpicoloc.errors import DataError


class _Loader(yaml.BaseLoader):
    """Refuses duplicate keys; PyYAML silently takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def load(text: str, source: str) -> Any:
    """The data of a text, in which every scalar is a str.

    Raises `DataError` if the text is not valid YAML.
    """
    try:
        # BaseLoader leaves every scalar as text, and does not convert numbers, dates or "no".
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise DataError(
            f"{source}, line {line}: not valid YAML ({shown(error.problem or 'wrong')})"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: not valid YAML ({shown(type(error).__name__)})") from None

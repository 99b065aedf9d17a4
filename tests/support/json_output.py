"""The documents that commands print with `--json`, as mpicoloc/core/json_output.toml describes them."""

import json
import tomllib
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "mpicoloc" / "core" / "json_output.toml"
TABLES = tomllib.loads(FILE.read_text(encoding="utf-8"))
SHARED = TABLES.pop("shared")
DOCUMENTS = {name: table for name, table in TABLES.items() if "example" in table}


def documented(name):
    """The example of a document."""
    return json.loads(DOCUMENTS[name]["example"])


def keys(value):
    """The keys of a JSON value, at all depths."""
    if isinstance(value, dict):
        return {key: keys(child) for key, child in value.items()}
    return [keys(child) for child in value] if isinstance(value, list) else None


def paths(value, above=""):
    """The path of each key of a JSON value, as `jobs[].id`; those above a key before it."""
    if isinstance(value, dict):
        for key, child in value.items():
            path = f"{above}.{key}".lstrip(".")
            yield path
            yield from paths(child, path)
    elif isinstance(value, list):
        for child in value:
            yield from paths(child, f"{above}[]")


def single(meanings):
    """Meanings by key, where several keys have one."""
    return {key: text for several, text in meanings.items() for key in several.split(", ")}


def key_of(path, meanings):
    """The longest of the keys that describe a path; None without one."""
    found = [key for key in meanings if f".{path}".endswith(f".{key}")]
    return max(found, key=len, default=None)


def without_meaning(name, value):
    """Paths of a document that neither have a meaning nor are inside of something that has one."""
    meanings = single(SHARED) | single(DOCUMENTS[name]["keys"])
    every = set(paths(value))
    described = {path for path in every if key_of(path, meanings)}
    leaves = every - {one for one in every if any(is_inside(path, one) for path in every)}
    return {path for path in leaves - described if not any(is_inside(path, one) for one in described)}


def is_inside(path, above):
    return path.startswith((f"{above}.", f"{above}["))

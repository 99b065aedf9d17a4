"""Every key that commands print with `--json` has one meaning, in mpicoloc/core/json_output.toml."""

from collections import Counter

import json_output
import pytest
from json_output import DOCUMENTS, SHARED, documented, key_of, paths, single, without_meaning


@pytest.mark.parametrize("name", DOCUMENTS)
def test_keys_of_the_example_are_those_with_a_meaning(name):
    every = list(paths(documented(name)))
    assert not without_meaning(name, documented(name))
    assert not [
        key for key in single(DOCUMENTS[name]["keys"]) if not any(key_of(path, [key]) for path in every)
    ]


def test_a_key_without_a_meaning_is_found():
    value = documented("show")
    value["job"]["new"] = 1
    value["bubbles"] = {"new": 1}
    value["interference"]["co_runners"][0]["new"] = [{"other": None}]
    assert without_meaning("show", value) == {"job.new", "interference.co_runners[].new[].other"}


def test_what_several_documents_share_is_said_once():
    shared, users = single(SHARED), Counter()
    for name in DOCUMENTS:
        own, every = single(DOCUMENTS[name]["keys"]), list(paths(documented(name)))
        users.update({key_of(path, shared) for path in every if not key_of(path, own)})
        assert not {key for key, meaning in own.items() if shared.get(key) == meaning}
    assert not {key for key in shared if users[key] < 2}
    said = Counter(pair for table in DOCUMENTS.values() for pair in single(table["keys"]).items())
    assert not [pair for pair, n in said.items() if n > 1]


def test_the_documented_commands_are_those_of_the_command_line():
    from mpicoloc.cli import main

    names = [name.split()[0] for name in json_output.TABLES if name != "record"]
    assert set(names) <= set(main.VERBS)

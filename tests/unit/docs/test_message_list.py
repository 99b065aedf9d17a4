"""The list of messages has those of every error class, of every sort, and of C."""

import re
import sys
from pathlib import Path

import pytest

from mpicoloc import errors
from mpicoloc.bill import ledger

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def message_list():
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    import message_list

    yield message_list
    sys.path.remove(str(ROOT / "docs" / "_ext"))


@pytest.fixture(scope="module")
def page(message_list):
    return message_list.page()


def classes_below(base):
    yield base
    for child in base.__subclasses__():
        if child.__module__.startswith("mpicoloc."):  # other tests define some
            yield from classes_below(child)


def test_every_error_class_and_its_exit_code_are_listed(page):
    classes = list(classes_below(errors.MpicolocError))
    assert ledger.Overtaken in classes and len(classes) > 4
    for error in classes:
        assert re.search(rf"^\| {error.exit_code} \| .*`{error.__name__}`", page, re.MULTILINE), error


def test_every_exit_code_and_sort_has_messages(message_list):
    marks = [message.mark for message in (*message_list.python_messages(), *message_list.c_messages())]
    assert {"1", "2", "3", "4", "line", "note", "-v", "part", "C"} == set(marks)
    assert marks.count("2") > 100 and marks.count("3") > 100 and marks.count("C") > 30


def test_every_folder_that_raises_errors_is_listed(page):
    for folder in (ROOT / "mpicoloc").iterdir():
        if any(re.search(r"raise \w+(Error|Fault)\(", f.read_text()) for f in folder.glob("*.py")):
            assert f"## {folder.name}\n" in page


def test_values_have_names_and_alternatives_stand_side_by_side(message_list):
    tree = message_list.ast.parse("f\"{self.path} has {', '.join(names)}, {'one' if n == 1 else 'many'}\"")
    text = message_list.text_of(tree.body[0].value, {})
    assert text == "{path} has {names}, [one|many]"


def test_a_message_of_c_is_joined_from_its_lines(message_list):
    texts = [message.text for message in message_list.c_messages()]
    assert "mpicoloc: no profile was written: this program did not call MPI_Init" in texts
    end = "it is preloaded in %d of the %d ranks of this node; set LD_PRELOAD for all of them"
    assert any(text.endswith(end) for text in texts)


def test_the_list_names_no_line_of_the_source(page):
    assert not re.search(r"\.(py|c):\d", page)

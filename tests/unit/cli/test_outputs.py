import os
import subprocess
import sys

import pytest
import sample

from mpicoloc.cli.main import main
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.profile import hdf5
from mpicoloc.show import outputs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdf5.write(sample.profile(), "p.h5")
    (tmp_path / "sub").mkdir()
    return tmp_path


@pytest.mark.parametrize("words", [["report"], ["export", "--format", "json"]])
@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("p.h5", "is an input of the command"),
        ("link.h5", "is an input of the command"),
        ("sub", "is a folder"),
        ("nowhere/x", "there is no folder"),
        ("-", "is not a file name"),
        ("", "is not a file name"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_done(folder, capsys, words, out, message):
    os.link("p.h5", "link.h5")
    before = (folder / "p.h5").read_bytes()
    assert main([*words, "p.h5", "--out", out]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert (folder / "p.h5").read_bytes() == before
    assert sorted(os.listdir()) == ["link.h5", "p.h5", "sub"]


def test_links_are_followed_and_devices_stay_what_they_are(folder):
    (folder / "real").write_text("old")
    (folder / "link").symlink_to("real")
    with outputs.text_file("link") as file:
        file.write("new")
    assert (folder / "real").read_text() == "new" and (folder / "link").is_symlink()
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with outputs.text_file("pipe") as file:
        file.write("piped")
    assert os.read(reader, 9) == b"piped"
    os.close(reader)


def test_what_is_half_written_is_not_there(folder):
    with pytest.raises(ZeroDivisionError), outputs.text_file("half") as file:
        file.write("x")
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), outputs.folder("parts") as part:
        open(os.path.join(part, "one"), "w").close()
        raise ZeroDivisionError
    assert sorted(os.listdir()) == ["p.h5", "sub"]
    with outputs.folder("sub") as part:
        open(os.path.join(part, "one"), "w").close()
    assert os.listdir("sub") == ["one"]
    with pytest.raises(UsageError, match="exists already"), outputs.folder("sub"):
        pass


def test_a_disk_that_refuses_is_told(folder):
    with pytest.raises(EnvironmentFault, match=r"cannot write .*/full: No space"):  # noqa: SIM117
        with outputs.text_file("/dev/full") as file:
            file.write("x" * 100_000)


@pytest.mark.parametrize("words", ["show p.h5", "compare p.h5 p.h5", "history .", "price p.h5"])
def test_a_reader_that_goes_away_is_no_answer(folder, words):
    reader, writer = os.pipe()
    os.close(reader)
    argv = [sys.executable, "-m", "mpicoloc.cli.main", *words.split()]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder)}
    done = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, env=env)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("content", [None, b"no trace at all"])
def test_a_trace_of_something_else_beside_the_profile_costs_itself_only(folder, capsys, content):
    (folder / "p.trace").mkdir()
    if content is not None:
        (folder / "p.trace" / "0.mct").write_bytes(content)
    assert main(["export", "p.h5", "--format", "parquet", "--out", "tables"]) == 0
    assert "no trace.parquet" in capsys.readouterr().err
    assert "trace.parquet" not in os.listdir("tables") and "ranks.parquet" in os.listdir("tables")
    assert main(["report", "p.h5", "--out", "page.html"]) == 0
    assert "its trace cannot be read" in (folder / "page.html").read_text()

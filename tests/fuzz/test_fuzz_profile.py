"""Damaged and hostile profiles, traces and indexes: a clear line, no crash, no more memory than is stated."""

import shutil
import sqlite3
import threading
from pathlib import Path

import fuzz_profile
import h5py
import mutations
import numpy as np
import pytest
import traces

from mpicoloc.errors import DataError
from mpicoloc.profile import frames, hdf5, profiles, sandbox
from mpicoloc.trace import node_file, reader

N_FILES = 40


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fuzz_profile.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("is_traced", [False, True])
def test_what_is_sound_is_read_by_all(folder, is_traced):
    """Or nothing would be said of what is not."""
    name = "traced" if is_traced else "sound"
    shutil.copy(f"{name}.h5", fuzz_profile.NAME)
    if is_traced:
        shutil.copytree("traced.trace", "job.trace")
    for argv in fuzz_profile.commands(is_traced):
        assert fuzz_profile.trouble(argv, codes={0}) is None, argv
        shutil.rmtree("out", ignore_errors=True)
        Path("out").unlink(missing_ok=True)


@pytest.mark.parametrize("seed", [0, 1])
def test_damaged_and_hostile_files_cost_one_line(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = [*fuzz_profile.fuzz(tmp_path, seed, n_files=N_FILES, n_commands=1)]
    assert len(found) == N_FILES
    assert [tried for tried in found if tried[-1]] == []


def test_a_seed_gives_the_same_files(folder):
    contents = []
    for _ in range(2):
        shutil.copy("sound.h5", "job.h5")
        mutations.overwrite(np.random.default_rng(5), folder / "job.h5")
        contents.append((folder / "job.h5").read_bytes())
    assert contents[0] == contents[1] != (folder / "sound.h5").read_bytes()


@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "secret"])
@pytest.mark.parametrize("way", ["link", "rows", "virtual"])
def test_nothing_of_another_file_is_opened(folder, target, way):
    """A pipe would make the reader wait for ever."""
    with h5py.File("sound.h5", "r+") as file:
        kind = file["peers"].dtype
        del file["peers"]
        if way == "link":
            file["peers"] = h5py.ExternalLink(target, "/peers")
        elif way == "rows":
            file.create_dataset("peers", (9,), kind, external=[(target, 0, 9 * kind.itemsize)])
        else:
            layout = h5py.VirtualLayout((9,), kind)
            layout[:] = h5py.VirtualSource(target, "peers", (9,))
            file.create_virtual_dataset("peers", layout)
    with pytest.raises(DataError, match=r"is a link|rows of table .* in another file"):
        profiles.read("sound.h5")


def test_tables_are_bounded_all_together(folder, monkeypatch):
    sizes = [table.nbytes for table in profiles.read("sound.h5").tables.values()]
    monkeypatch.setattr(hdf5, "MAX_BYTES", max(sizes))
    with pytest.raises(DataError, match=r"its tables have .* more than a profile can have"):
        profiles.read("sound.h5")


def test_rows_that_are_only_claimed_are_not_made(folder):
    with h5py.File("sound.h5", "r+") as file:
        kind = file["peers"].dtype
        del file["peers"]
        file.create_dataset("peers", (3_000_000,), kind, chunks=(1024,), compression="gzip")
    with pytest.raises(DataError, match="peers has rows that were never written"):
        profiles.read("sound.h5")


def test_a_bomb_takes_no_more_memory_than_is_stated(folder, monkeypatch):
    """A chunk of 40 rows that unfolds to 256 MiB: what reads it ends, not the machine."""
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 1 << 27)
    with h5py.File("sound.h5", "r+") as file:
        kind = file["peers"].dtype
        del file["peers"]
        made = file.create_dataset("peers", (40,), kind, chunks=(40,), compression="gzip")
        made.id.write_direct_chunk((0,), mutations.bomb(1 << 28))
    before = fuzz_profile.peak_bytes()[1]
    with pytest.raises(DataError, match=r"damaged|takes more than 128 MiB"):
        profiles.read("sound.h5")
    assert fuzz_profile.peak_bytes()[1] - before < 1 << 28


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_index_of_a_folder_is_made_anew_and_told_once(folder, seed, capsys):
    from mpicoloc.cli.main import main

    for i in range(12):
        shutil.copy("sound.h5", f"more-{i}.h5")
    assert main(["history", "--csv", "."]) == 0
    first = capsys.readouterr()
    (index,) = (folder / "cache" / "mpicoloc").iterdir()
    rng = np.random.default_rng(seed)
    content = bytearray(index.read_bytes())
    if seed % 2:
        # 44: the number of the file's format
        at, n = (44, 4) if seed == 7 else (int(rng.integers(len(content) - 4096)), 4096)
        content[at : at + n] = rng.bytes(n)
        index.write_bytes(content)
    else:
        wrong = [b"[1]", b"{", 7, b"\xff", "[[", None, -1][seed // 2]
        with sqlite3.connect(index) as found:
            column = "path" if wrong in (7, -1) else "facts"
            found.execute(f"UPDATE profiles SET {column} = ? WHERE rowid = 3", (wrong,))
        found.close()
    assert main(["history", "--csv", "."]) == 0
    again = capsys.readouterr()
    assert again.err in ("", "mpicoloc: the index of profiles was damaged, and is rebuilt\n")
    if again.err:
        assert again.out == first.out
    assert main(["history", "--csv", "."]) == 0
    assert capsys.readouterr().err == ""


def test_no_more_of_a_trace_is_kept_than_is_stated(folder, monkeypatch):
    """Blocks of no bytes that claim many events, messages whose call never comes, and many messages."""
    of_nobody = traces.SEND | node_file.SENT | node_file.MESSAGE
    n = node_file.MAX_EVENTS
    block = traces.events(0, [1] * n, [0] * n, [0] * n, [1] * n, [of_nobody] * n, widths=(0, 0, 0, 0))
    file = folder / "traced.trace" / "0.mct"
    assert len(block) < 200
    file.write_bytes(traces.head(hostname=b"n1") + traces.names() + 8 * block)
    monkeypatch.setattr(reader, "MAX_MESSAGES_OF_A_CALL", 4 * n)
    with pytest.raises(DataError, match="131,072 messages in one call"):
        reader.read_folder("traced.trace").messages()
    monkeypatch.setattr(node_file, "MAX_BLOCKS", 7)
    with pytest.raises(DataError, match="more than a trace can have"):
        reader.read_folder("traced.trace")


def test_clocks_of_more_messages_than_fit_are_left_as_they_are(folder, monkeypatch):
    before = frames.open_profile("traced.h5").trace
    assert before.alignment is not None
    monkeypatch.setattr(reader, "MAX_MESSAGES", 0)
    found = frames.open_profile("traced.h5").trace
    assert found.alignment is None and "not corrected" in found.notes[-1]


def test_a_profile_that_changes_while_it_is_read_is_read_as_one_or_refused(folder):
    """Jobs put a whole file in the place of another; other programs may write into it."""
    other = (folder / "traced.h5").read_bytes()
    whole = (folder / "sound.h5").read_bytes()
    is_over = threading.Event()

    def scribble():
        rng = np.random.default_rng(0)
        while not is_over.is_set():
            way = int(rng.integers(3))
            if way == 0:
                hdf5.replace("job.h5", whole)
            else:
                at = int(rng.integers(len(whole)))
                with open("job.h5", "r+b") as file:
                    file.seek(at)
                    file.write(other[at : at + 4096] if way == 1 else bytes(64))

    shutil.copy("sound.h5", "job.h5")
    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for argv in 5 * [["show", "--json", "job.h5"], ["price", "job.h5", "--rate-su", "1"]]:
            assert fuzz_profile.trouble(argv) is None
    finally:
        is_over.set()
        writer.join()


def test_a_file_in_which_hdf5_turns_in_circles_ends(folder, monkeypatch):
    """As a swap of two pieces of a file has made it do, which the fuzzer found."""
    monkeypatch.setattr(sandbox, "CPU_S", (0, 0))

    def circle():
        while True:
            pass

    with pytest.raises(DataError, match="does not end"):
        sandbox.run_in_child("sound.h5", circle, bytes)
    answers = dict(profiles.parallel_map(["sound.h5"], lambda path, file: circle()))
    assert "does not end" in str(answers["sound.h5"])

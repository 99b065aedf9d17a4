import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import sample
from numpy.lib.recfunctions import repack_fields

import mpicoloc
from mpicoloc.core.profile import ADDED, COLUMNS, ROWS, table
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.profile import frames, hdf5, profiles

PROFILES = Path(__file__).parent / "old_profiles"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mpicoloc-42.h5"


@pytest.mark.parametrize(
    "changes", [{}, {"shared_s": 0.0}, {"n_shutters": 3}, {"partial": True, "notes": ("a", "b")}]
)
def test_what_is_written_is_read(path, changes):
    written = sample.profile(**changes)
    hdf5.write(written, path)
    read = hdf5.read(path)
    for name in ("job", "mpi", "interference", "price", "partial", "notes", "schema_version"):
        assert getattr(read, name) == getattr(written, name)
    for name in COLUMNS:
        assert read.tables[name].tobytes() == written.tables[name].tobytes()


def test_alternatives_large_tables_and_odd_text_survive(path):
    profile = sample.profile()
    other = replace(profile.interference.slowdown, method="ipc-unfiltered")
    events = table(
        "events", {"rank": np.arange(5000), "t_ns": np.arange(5000) + 2**62, "call": ["MPI_Send"] * 5000}
    )
    profile = replace(
        profile,
        job=replace(profile.job, command="a.out 'grün' \n", mpi_library="", id="42"),
        interference=replace(profile.interference, alternatives=(other,)),
        price=None,
        tables={**profile.tables, "events": events},
    )
    hdf5.write(profile, path)
    read = hdf5.read(path)
    assert (read.job, read.interference, read.price) == (profile.job, profile.interference, None)
    assert np.array_equal(read.tables["events"], events)
    with h5py.File(path) as file:
        assert file["events"].compression == "gzip"
        assert file["events"].shuffle


def test_a_table_is_stored_for_any_reader_in_chunks_of_the_size_that_was_measured_best(path):
    many = table("shutters", {"epoch": np.arange(3000)})
    profile = sample.profile()
    hdf5.write(replace(profile, tables={**profile.tables, "shutters": many}), path)
    with h5py.File(path) as file:
        stored = file["shutters"]
        assert stored.chunks == (hdf5.CHUNK_BYTES // many.itemsize,)
        assert file["ranks"].chunks is None and file["ranks"].compression is None
        how = stored.id.get_create_plist()
        numbers = {how.get_filter(i)[0] for i in range(how.get_nfilters())}
    assert numbers == {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE}
    assert hdf5.read(path).tables["shutters"].tobytes() == many.tobytes()


REPACK = """
import sys, h5py, hdf5plugin
with h5py.File(sys.argv[1], "r+") as file:
    rows = file["call_sites"][()]
    del file["call_sites"]
    file.create_dataset("call_sites", data=rows, chunks=True, **hdf5plugin.Zstd())
print(hdf5plugin.PLUGIN_PATH)
"""


@pytest.fixture
def open_folder():
    """A folder that every user may read: root's process reads a profile as nobody."""
    with tempfile.TemporaryDirectory(prefix="mpicoloc-plugin-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_file_repacked_with_a_plugin_names_it_and_the_remedy_which_works(path, open_folder):
    """In other processes: a plugin that is imported here is there for all tests."""
    hdf5.write(sample.profile(), path)
    repack = [sys.executable, "-c", REPACK, path]
    done = subprocess.run(repack, capture_output=True, text=True, timeout=60, check=True)
    show = [sys.executable, "-m", "mpicoloc", "show", path]
    without = subprocess.run(show, capture_output=True, text=True, timeout=60)
    assert (without.returncode, without.stdout, without.stderr.count("\n")) == (3, "", 1)
    assert "table call_sites is compressed by a plugin that is not here: 32015, HDF5 zstd" in without.stderr
    assert "HDF5_PLUGIN_PATH" in without.stderr and "h5repack -f NONE" in without.stderr
    shutil.copy(Path(done.stdout.strip()) / "libh5zstd.so", open_folder)
    environment = {**os.environ, "HDF5_PLUGIN_PATH": str(open_folder)}
    with_it = subprocess.run(show, capture_output=True, text=True, timeout=60, env=environment)
    assert with_it.returncode == 0 and "MPI_Allreduce" in with_it.stdout


def test_the_file_reads_with_h5py_pandas_and_h5dump_and_names_its_units(path):
    hdf5.write(sample.profile(), path)
    with h5py.File(path) as file:
        assert file.attrs["schema_version"] == 1
        assert file["job"].attrs["n_ranks"] == 2
        assert file["job"].attrs["wall_s.unit"] == b"s"
        frame = pd.DataFrame(file["call_sites"][()])
        for name, columns in COLUMNS.items():
            for column in columns:
                assert file[name].attrs[f"{column.name}.unit"] == column.unit.encode()
                assert file[name].attrs[f"{column.name}.description"] == column.meaning.encode()
    assert frame["n"].tolist() == [3, 500, 600]
    if shutil.which("h5dump"):
        dump = subprocess.run(["h5dump", path], capture_output=True, text=True, timeout=60, check=True)
        assert "MPI_Allreduce" in dump.stdout


def test_a_failed_write_leaves_the_old_file_and_no_part(path, monkeypatch):
    hdf5.write(sample.profile(), path)
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(EnvironmentFault, match=r"No space left.*--out"):
        hdf5.write(sample.profile(partial=True), path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path):
    with pytest.raises(EnvironmentFault, match=r"cannot write profile .*No such file"):
        hdf5.write(sample.profile(), tmp_path / "missing" / "p.h5")


def test_files_that_are_no_profile(path, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        hdf5.read(path)
    with pytest.raises(DataError, match="folder"):
        hdf5.read(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="not an HDF5 file"):
        hdf5.read(path)
    path.write_text("no HDF5 at all")
    with pytest.raises(DataError, match="not an HDF5 file"):
        hdf5.read(path)
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with pytest.raises(DataError, match="not a profile of mpicoloc"):
        hdf5.read(path)


@pytest.mark.parametrize("part", ["job", "mpi", "ranks", "interference"])
def test_a_missing_part_is_damage(path, part):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        del file[part]
    with pytest.raises(DataError, match="damaged"):
        hdf5.read(path)


HAS_NOT = "by another version of mpicoloc, or is damaged: table ranks has other columns"


@pytest.mark.parametrize(
    ("name", "lacks", "more", "words"),
    [
        ("ranks", "wall_s", [], HAS_NOT),
        ("ranks", "", [("lustre_bytes", "u8")], HAS_NOT),
        ("peers", "src", [("src", "S9")], r"damaged: .* the wrong type"),
        ("peers", "src", [("src", "f8")], r"damaged: .* the wrong type"),
    ],
)
def test_a_table_of_other_columns_is_refused(path, name, lacks, more, words):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        old = file[name][()]
        kept = [(column, old.dtype[column]) for column in old.dtype.names if column != lacks]
        new = np.zeros(len(old), [*kept, *more])
        for column, _ in kept:
            new[column] = old[column]
        del file[name]
        file[name] = new
    with pytest.raises(DataError, match=words):
        mpicoloc.open(path)


@pytest.mark.parametrize("name", sorted(ADDED))
def test_an_older_profile_lacks_columns_that_were_added(path, name):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        old = file[name][()]
        kept = [column for column in old.dtype.names if column not in ADDED[name]]
        del file[name]
        file[name] = repack_fields(old[kept])
    found, written = hdf5.read(path).tables[name], sample.profile().tables[name]
    assert len(found) and all((found[column] == written[column]).all() for column in kept)
    assert not any(found[column].any() for column in ADDED[name])


def test_an_opened_profile_says_what_it_is(path):
    profile = sample.profile()
    hdf5.write(profile, path)
    said = repr(mpicoloc.open(path))
    for words in (path.name, "job 42", "lmp -in in.lj", "2 ranks", "slowdown 1.", "call_sites", ".profile"):
        assert words in said
    assert "\n" not in said and "partial" not in said and len(said) < 500
    lost = replace(profile, partial=True, interference=replace(profile.interference, slowdown=None))
    hdf5.write(replace(lost, job=replace(lost.job, command="a\x1b[31mb")), path)
    said = repr(mpicoloc.open(path))
    assert "partial" in said and "slowdown not measured" in said and "\x1b" not in said


@pytest.mark.parametrize("name", COLUMNS)
def test_each_table_and_column_says_what_it_is(name):
    assert len(ROWS[name].split()) >= 4, "what a row is"
    assert set(ROWS) == set(COLUMNS)
    columns = COLUMNS[name]
    assert len({column.name for column in columns}) == len(columns)
    for column in columns:
        assert column.unit in {"1", "s", "ns", "bytes"}, column
        assert len(column.meaning) > 3 and np.dtype(column.type).kind in "iufS", column
        suffix = {"_s": "s", "_ns": "ns", "_bytes": "bytes"}
        wanted = [unit for end, unit in suffix.items() if column.name.endswith(end)]
        assert not wanted or column.unit == wanted[0], column


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ([("name", h5py.string_dtype())], {}, "a column of an unsupported type"),
        ([("src", "i4", (1 << 12,))], {}, "a column of an unsupported type"),
        ([("src", "i4")], {"shape": (1 << 33,)}, "34,359,738,368 bytes"),
        ([("src", "i4")], {"shape": (10,), "chunks": (1 << 28,), "maxshape": (None,)}, "1,073,741,824 bytes"),
        ([("src", "i4")], {"shape": (3, 3)}, "not a table"),
    ],
)
def test_tables_that_are_too_large_or_of_other_types_are_damage(path, columns, options, words):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        del file["peers"]
        file.create_dataset("peers", dtype=np.dtype(columns), **{"shape": (2,), "chunks": True, **options})
    with pytest.raises(DataError, match=f"damaged: .*({words})"):
        len(mpicoloc.open(path).peers)


def test_large_tables_are_read_when_they_are_used_and_only_of_the_file_that_was_opened(path, monkeypatch):
    monkeypatch.setattr(profiles, "AT_ONCE_BYTES", 0)
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        company = file["corunners"][()]
        company["overlap_s"] = np.inf
        file["corunners"][...] = company
    job = mpicoloc.open(path)
    assert len(job.call_sites) == 3
    with pytest.raises(DataError, match="overlap_s of table corunners has a value that is not a number"):
        len(job.corunners)
    hdf5.write(sample.profile(partial=True), path)
    assert len(job.call_sites) == 3
    with pytest.raises(DataError, match="has changed since it was opened"):
        len(job.peers)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("job", "command", 7),
        ("job", "n_ranks", "two"),
        ("job", "wall_s", np.nan),
        ("mpi", "n_calls", 2.5),
        ("price", "fair_su", np.inf),
        ("interference/slowdown", "n", [1, 2]),
        ("/", "schema_version", np.inf),
        ("/", "schema_version", 2),
    ],
)
def test_a_fact_of_another_kind_is_damage(path, group, name, value):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        file[group].attrs[name] = value
    words = "schema version 2, but this mpicoloc reads 1" if value == 2 else "damaged"
    with pytest.raises(DataError, match=words):
        hdf5.read(path)


def test_a_number_in_a_table_that_is_none_is_damage(path):
    hdf5.write(sample.profile(), path)
    with h5py.File(path, "r+") as file:
        rows = file["corunners"][()]
        rows["overlap_s"] = np.nan
        file["corunners"][...] = rows
    with pytest.raises(DataError, match="overlap_s"):
        hdf5.read(path)


def test_any_truncation_or_overwrite_is_a_data_error_or_harmless(path):
    hdf5.write(sample.profile(), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(60):
        broken = bytearray(whole)
        if i % 2:
            del broken[int(rng.integers(len(whole))) :]
        else:
            at = int(rng.integers(len(whole) - 64))
            broken[at : at + 64] = rng.bytes(64)
        path.write_bytes(broken)
        try:
            list(mpicoloc.open(path).profile.tables.values())
        except DataError as error:
            assert "\n" not in str(error)


def test_frames_decode_text_and_add_up(path):
    hdf5.write(sample.profile(), path)
    job = mpicoloc.open(path)
    assert job.call_sites["site"].tolist() == ["(others)", "lmp+0x1234", "libx.so+0x77"]
    assert job.calls["call"].tolist() == ["MPI_Allreduce", "MPI_Send"]
    assert job.calls["time_s"].tolist() == pytest.approx([5.0, 3e-6])
    assert job.ranks["hostname"].tolist() == ["n1", "n1"]
    assert set(job.bursts["phase"]) == {"corun", "solo"}
    assert job.peers[["from_bytes", "below_bytes"]].to_numpy().tolist() == [[0, 1], [8, 16], [1, 2]]
    assert set(job.shutters["verdict"]) == {"valid"}
    assert job.events.empty
    assert len(job.corunners) == len(job.nodes) == 1
    with pytest.raises(DataError, match="no table 'x'"):
        job.table("x")


def test_frames_of_an_empty_profile(tmp_path):
    empty = replace(sample.profile(), tables={})
    job = frames.Frames(empty)
    names = "ranks nodes calls call_sites peers bursts shutters corunners events network"
    for name in names.split():
        assert getattr(job, name).empty

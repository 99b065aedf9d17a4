"""Profiles of somebody else: what they say reaches no terminal, and what they unfold to no machine."""

import os
import pickle
import re
import struct
from dataclasses import replace

import h5py
import numpy as np
import pytest
import sample
from hypothesis import given, strategies as st

from mpicoloc.cli.main import main
from mpicoloc.core.profile import table
from mpicoloc.errors import MALFORMED, DataError, Refused
from mpicoloc.profile import bundle, hdf5, sandbox, signature

ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "p.h5"
    hdf5.write(sample.profile(), path)
    return path


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command; its exit code and all that it wrote."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        code = main([str(word) for word in argv])
        out = capsys.readouterr()
        return code, out.out + out.err

    return call


def key(folder, letter="k"):
    path = folder / f"{letter}.key"
    path.write_text(letter * 32)
    path.chmod(0o600)
    return path


def test_texts_of_a_profile_are_not_obeyed_by_the_terminal(tmp_path, call):
    profile = sample.profile(notes=(ESCAPE,))
    tables = dict(profile.tables)
    tables["corunners"] = table("corunners", {"i_node": [0], "job_id": [ESCAPE], "overlap_s": [1.0]})
    sites = tables["call_sites"].copy()
    sites["call"] = ESCAPE.encode()
    tables["call_sites"] = sites
    tables["modules"] = table("modules", {"path": [ESCAPE, ESCAPE]})
    found = replace(profile.interference, meter=ESCAPE, meter_reason=ESCAPE)
    found = replace(found, slowdown=replace(found.slowdown, method=ESCAPE))
    job = replace(profile.job, id=ESCAPE, command=ESCAPE, mpi_library=ESCAPE)
    price = replace(profile.price, pricing=ESCAPE)
    hdf5.write(replace(profile, job=job, tables=tables, interference=found, price=price), "p.h5")
    with h5py.File("p.h5", "r+") as file:
        signature.add(file, b"k" * 32, 1.0)
        file["signature"].attrs["key_id"] = np.bytes_(ESCAPE.encode())
    argvs = [["show", "p.h5"], ["price", "p.h5"], ["verify", "p.h5", "--key-file", key(tmp_path)]]
    for argv in argvs:
        _, words = call(*argv)
        assert "owned" in words and "\x1b" not in words and "\x07" not in words, argv


FILES = {
    "group": lambda file: file.__setitem__(ESCAPE, h5py.SoftLink("/ranks")),
    "attribute": lambda file: file.attrs.__setitem__(ESCAPE, np.void(b"1")),
    "table": lambda file: file.create_dataset(ESCAPE, data=np.void(b"1")),
    "type": lambda file: file.__setitem__(ESCAPE, np.dtype("i4")),
    "algorithm": lambda file: file["signature"].attrs.__setitem__("algorithm", np.bytes_(ESCAPE.encode())),
    "key": lambda file: file["signature"].attrs.__setitem__("key_id", np.bytes_(ESCAPE.encode())),
    "pricing": lambda file: file["price"].attrs.__setitem__("pricing", np.bytes_(f"{ESCAPE}:f".encode())),
}


@pytest.mark.parametrize("name", FILES)
def test_names_in_a_refused_file_are_not_obeyed_either(path, call, tmp_path, name):
    signature.sign(path, b"o" * 32, 1.0)
    with h5py.File(path, "r+") as file:
        FILES[name](file)
    argv = ["price", path] if name == "pricing" else ["verify", path, "--key-file", key(tmp_path)]
    code, words = call(*argv)
    assert code != 0 and words.count("\n") == 1
    assert "owned" in words and "\x1b" not in words and "\x07" not in words


def test_no_error_is_obeyed(call):
    """The last net: what a message quotes, it may have from anywhere."""
    code, words = call("show", f"{ESCAPE}.h5")
    assert code == 3 and "owned" in words and "\x1b" not in words
    code, words = call("show", "\udcff.h5")
    assert code == 3 and "?.h5" in words


def test_a_column_of_texts_without_a_length_is_refused(path):
    """In memory it is addresses, which are other ones in each process."""
    kind = np.dtype([("n", "i4"), ("name", h5py.string_dtype())])
    with h5py.File(path, "r+") as file:
        file.create_dataset("new", data=np.array([(1, "a")], dtype=kind))
    with pytest.raises(DataError, match="/new has a column of variable-length strings"):
        signature.snapshot(path)


def share(path, name, n_cells):
    """Let all cells of a table be the text of the first."""
    with h5py.File(path) as file:
        start = file[name].id.get_offset()
    content = bytearray(path.read_bytes())
    content[start : start + 16 * n_cells] = content[start : start + 16] * n_cells
    path.write_bytes(content)


def test_texts_that_share_their_bytes_are_counted_each(path, monkeypatch):
    n_cells, letters = 3000, "x" * 30000
    with h5py.File(path, "r+") as file:
        file.create_dataset("new", shape=(n_cells,), dtype=h5py.string_dtype())[0] = letters
        file["new"][1:] = "y"
    share(path, "new", n_cells)
    with h5py.File(path) as file:
        assert file["new"][n_cells - 1] == letters.encode()
    monkeypatch.setattr(signature, "MAX_CONTENT_BYTES", 30 << 20)
    with pytest.raises(DataError, match="more than 30 MiB of content"):
        signature.snapshot(path)


def test_no_file_takes_more_memory_than_it_may(path, monkeypatch):
    """An attribute is read as a whole."""
    n_cells = 3000
    with h5py.File(path, "r+", libver="latest") as file:
        space = h5py.h5s.create_simple((n_cells,))
        kind = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
        attribute = h5py.h5a.create(file["job"].id, b"new", kind, space)
        attribute.write(np.array(["x" * 100000, *[f"y{i}" for i in range(n_cells - 1)]], dtype=object))
    content = path.read_bytes()
    # A text's length, the address of its heap and its number there: those of the first, for all.
    first = re.search(struct.pack("<I", 100000) + b".{12}", content, re.S)
    at = first.start()
    path.write_bytes(content[:at] + first[0] * n_cells + content[at + 16 * n_cells :])
    with h5py.File(path) as file:
        assert file["job"].attrs["new"][n_cells - 1] == "x" * 100000  # 300 MB in all
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 100 << 20)
    with pytest.raises(DataError, match=r"p\.h5"):
        signature.snapshot(path)
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 2 << 30)
    signature.snapshot(path)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


@pytest.mark.parametrize(
    "answer", [pickle.dumps((True, Bomb())), b"", b"\0" * 7, b"[" * 100000, b"\xff" * 50]
)
def test_an_answer_that_is_none_is_damage_and_never_code(path, monkeypatch, tmp_path, answer):
    """As of a process that the file has taken over."""
    monkeypatch.chdir(tmp_path)
    size = len(answer).to_bytes(8, "little")
    for said in (answer, size + answer):
        monkeypatch.setattr(signature, "_looked_at", lambda *_, said=said: [said])
        with pytest.raises(DataError, match="is damaged"):
            signature.snapshot(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("said", [b"-", b"-[", b'-["SystemExit", "x"]', b"?", b"-3"])
def test_an_error_that_is_none_is_damage(path, monkeypatch, said):
    monkeypatch.setattr(sandbox, "_GOOD", b"")
    with pytest.raises(DataError, match="is damaged"):
        sandbox.run_in_child(str(path), lambda: [said], bytes)


def test_errors_come_back_as_they_were(path):
    def work():
        raise Refused("it is 1 o'clock")

    with pytest.raises(Refused, match="it is 1 o'clock"):
        sandbox.run_in_child(str(path), work, bytes)


PARCEL = b"".join(bundle.pack_profile(sample.profile(n_shutters=2), {"a": [1]}))


def test_what_is_packed_is_unpacked():
    before = sample.profile(n_shutters=2, notes=("ä",))
    after, more = bundle.unpack_profile(memoryview(b"".join(bundle.pack_profile(before, {"a": [1]}))))
    assert more == {"a": [1]}
    for name in ("job", "mpi", "interference", "price", "partial", "notes"):
        assert getattr(after, name) == getattr(before, name)
    for name, rows in before.tables.items():
        assert after.tables[name].tobytes() == rows.tobytes() and not after.tables[name].flags.writeable


@given(at=st.integers(0, 4000), bytes_=st.binary(min_size=1, max_size=6), cut=st.booleans())
def test_a_changed_parcel_is_a_profile_or_none(at, bytes_, cut):
    changed = PARCEL[:at] + bytes_ + (b"" if cut else PARCEL[at + len(bytes_) :])
    try:
        profile, _ = bundle.unpack_profile(memoryview(changed))
    except (DataError, *MALFORMED):
        return
    assert isinstance(profile.job.n_cores, int) and isinstance(profile.job.id, str)


def test_the_key_is_not_read_by_a_process_that_has_children_with_files(path, tmp_path, call, monkeypatch):
    order = []
    for name in ("snapshot", "read_key"):
        work = getattr(signature, name)
        monkeypatch.setattr(signature, name, lambda *args, n=name, w=work: (order.append(n), w(*args))[1])
    call("verify", path, "--key-file", key(tmp_path))
    assert order == ["snapshot"]

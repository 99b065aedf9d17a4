"""A signature holds for the content, however the file is laid out, and for nothing else."""

import os
import shutil
import stat
import subprocess
import time

import h5py
import numpy as np
import pytest
import sample
from hypothesis import HealthCheck, given, settings, strategies as st

from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.profile import hdf5, sandbox, signature

KEY = b"k" * 32
NOW_S = 1.7e9


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mpicoloc-42.h5"
    hdf5.write(sample.profile(), path)
    return path


@pytest.fixture
def signed(path):
    signature.sign(path, KEY, NOW_S)
    return path


def verdict(path, key=KEY):
    return signature.verify(signature.snapshot(path), key)


def test_signed_and_unsigned(path):
    assert not verdict(path).is_good and verdict(path).reason == "unsigned"
    before, digest = hdf5.read(path), signature.snapshot(path).digest
    path.chmod(0o640)
    signature.sign(path, KEY, NOW_S)
    assert verdict(path).is_good
    assert verdict(path).signature.signed_unix_s == NOW_S
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (hdf5.read(path).job, hdf5.read(path).price) == (before.job, before.price)
    assert signature.snapshot(path).digest == digest  # it is the same profile
    assert os.listdir(path.parent) == [path.name]


def test_another_key_and_signing_again(signed):
    other = b"o" * 32
    assert verdict(signed, other).reason.startswith("signed with another key")
    signature.sign(signed, other, NOW_S + 1)
    assert verdict(signed, other).is_good and not verdict(signed).is_good


def test_a_profile_can_be_signed_when_it_is_written(tmp_path):
    path = tmp_path / "p.h5"
    hdf5.write(sample.profile(), path, lambda file: signature.add(file, KEY, NOW_S))
    assert verdict(path).is_good


@pytest.mark.parametrize(
    "options", [[], ["-l", "CONTI"], ["-f", "cycles:GZIP=9", "-l", "cycles:CHUNK=50"], ["-L"]]
)
def test_another_layout_is_the_same_content(signed, tmp_path, options):
    if shutil.which("h5repack") is None:
        pytest.skip("h5repack is not installed")
    packed = tmp_path / "packed.h5"
    subprocess.run(["h5repack", *options, signed, packed], check=True, timeout=60)
    assert packed.read_bytes() != signed.read_bytes()
    assert verdict(packed).is_good
    assert signature.snapshot(packed).digest == signature.snapshot(signed).digest


def attribute(group, name, value):
    def change(file):
        file[group].attrs[name] = value

    return change


def cell(table, column, value):
    def change(file):
        rows = file[table][()]
        rows[column][0] = value
        file[table][...] = rows

    return change


def more_rows(file):
    rows, attributes = file["corunners"][()], dict(file["corunners"].attrs)
    del file["corunners"]
    file.create_dataset("corunners", data=np.concatenate([rows, rows]))
    file["corunners"].attrs.update(attributes)


def rename(file):
    file.move("shutters", "shutter")


FORGERIES = {
    "slowdown": attribute("interference/slowdown", "high", 9.0),
    "unit": attribute("job", "wall_s.unit", np.bytes_(b"ms")),
    "partial": attribute("/", "partial", 1),
    "new attribute": attribute("job", "discount", 1),
    "no attribute": lambda file: file["job"].attrs.pop("mode"),
    "cell": cell("ranks", "wall_s", 1.0),
    "text": cell("corunners", "job_id", b"44"),
    "rows": more_rows,
    "new table": lambda file: file.create_dataset("new", data=[1]),
    "no table": lambda file: file.pop("events"),
    "new group": lambda file: file.create_group("new"),
    "signed at": attribute("signature", "signed_unix_s", 1.0),
    "code": attribute("signature", "code", np.bytes_(b"0" * 64)),
    "no code": lambda file: file["signature"].attrs.pop("code"),
    "algorithm": attribute("signature", "algorithm", np.bytes_(b"none")),
    "narrower": attribute("job", "n_cores", np.int32(2)),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_every_change_shows(signed, name):
    with h5py.File(signed, "r+") as file:
        FORGERIES[name](file)
    try:
        found = verdict(signed)
    except DataError:
        assert name == "no table"  # no profile any more
        return
    assert not found.is_good and found.reason


def test_moving_a_value_to_another_name_shows(signed):
    with h5py.File(signed, "r+") as file:
        facts = file["job"].attrs
        facts["id"], facts["command"] = facts["command"], facts["id"]
    assert not verdict(signed).is_good


def unfolding(file):
    for _ in range(40):
        group = file.create_group("a")
        file["b"] = group
        file = group


REFUSED = {
    "elsewhere": lambda file: file.__setitem__("elsewhere", h5py.SoftLink("/ranks")),
    "elsewhere in": lambda file: file.__setitem__("elsewhere in", h5py.ExternalLink("other.h5", "/ranks")),
    "no profile has so many": unfolding,
    "MiB of content": lambda file: file.create_dataset("x", shape=(1 << 50,), chunks=(1 << 20,), dtype="u8"),
    "": lambda file: file.__setitem__("job/again", file["job"]),
}


@pytest.mark.parametrize("words", REFUSED)
def test_content_that_lies_elsewhere_or_unfolds_without_end_is_refused(path, words):
    with h5py.File(path, "r+") as file:
        REFUSED[words](file)
    with pytest.raises(DataError, match=words):
        signature.snapshot(path)


def test_a_pipe_does_not_keep_a_script_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    with pytest.raises(DataError, match="is not a file"):
        signature.snapshot(tmp_path / "pipe.h5")


def test_a_signature_that_holds_stands_for_the_same_content(signed, tmp_path, monkeypatch):
    """Bytes are changed anywhere in the file: it is damaged, or does not verify, or says just the same."""
    monkeypatch.setattr(sandbox, "CPU_S", (0, 0))  # some changes send the HDF5 library round in a circle
    content, before = signed.read_bytes(), signature.snapshot(signed)
    rng = np.random.default_rng(7)
    path, seen = tmp_path / "changed.h5", set()
    enough_s = time.monotonic() + 60.0  # such circles take long on a busy machine
    for i in range(150):
        if i >= 40 and seen == {"damaged", True, False} and time.monotonic() > enough_s:
            break
        changed = bytearray(content)
        for at in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[at] ^= 1 << rng.integers(0, 8)
        path.write_bytes(changed)
        try:
            found = signature.snapshot(path)
            is_good = signature.verify(found, KEY).is_good
        except DataError:
            seen.add("damaged")
            continue
        seen.add(is_good)
        if is_good:
            assert found.digest == before.digest
            assert (found.profile.job, found.profile.price) == (before.profile.job, before.profile.price)
            for name, rows in before.profile.tables.items():
                assert found.profile.tables[name].tobytes() == rows.tobytes()
    assert seen == {"damaged", True, False}


@pytest.mark.parametrize("end", [os.abort, lambda: os._exit(0), lambda: 1 / 0], ids=["abort", "exit", "bug"])
def test_what_crashes_the_reader_is_damage(signed, monkeypatch, capfd, end):
    """Some files make the HDF5 library free memory that it does not have."""
    monkeypatch.setattr(hdf5, "read", lambda *_: end())
    with pytest.raises(DataError, match="crashes or does not end"):
        signature.snapshot(signed)
    assert capfd.readouterr().err == ""


def texts(row):
    return np.array(row, dtype=h5py.string_dtype())


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]),
                min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))  # fmt: skip
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8),
    st.lists(st.integers(0, 255), min_size=1, max_size=4).map(lambda row: np.array(row, dtype="u1")),
    st.lists(st.sampled_from(["", "a", "B", "text", "1"]), max_size=3).map(texts),
)
TREES = st.dictionaries(NAMES, VALUES, max_size=4)


def content(tree, order):
    """Digest of a file with these attributes, written in that order."""
    with h5py.File.in_memory() as file:
        for name in sorted(tree, reverse=order):
            file.attrs[name] = tree[name]
        return signature.sha256(file, lambda path, name: False)


def plain(tree):
    return {
        name: ("array", value.tolist()) if isinstance(value, np.ndarray) else (type(value), str(value))
        for name, value in tree.items()
    }


def test_a_text_and_a_list_of_texts_are_not_the_same():
    """Not even where the list says what would follow the text."""
    one = {"A": "3", "B": texts(["C", "text", "v"])}
    other = {"A": texts(["B", "text", "3"]), "C": "v"}
    assert content(one, False) != content(other, False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(one=TREES, other=TREES)
def test_one_content_has_one_digest(one, other):
    assert content(one, False) == content(one, True)
    assert (content(one, False) == content(other, False)) == (plain(one) == plain(other))


def key_file(folder, mode=0o600, key=KEY):
    path = folder / "site.key"
    path.write_bytes(key + b"\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o666, 0o610])
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path, mode):
    with pytest.raises(EnvironmentFault, match="by others"):
        signature.read_key(key_file(tmp_path, mode))


def test_a_key_of_somebody_else_is_refused(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path = key_file(tmp_path)
    os.chown(path, 12345, -1)
    with pytest.raises(EnvironmentFault, match="belongs to user 12345"):
        signature.read_key(path)


def test_what_is_no_key_is_refused(tmp_path):
    assert signature.read_key(key_file(tmp_path)) == KEY, "without its newline"
    with pytest.raises(UsageError, match="no key file"):
        signature.read_key(tmp_path / "missing")
    with pytest.raises(UsageError, match="has 5 bytes"):
        signature.read_key(key_file(tmp_path, key=b"short"))
    with pytest.raises(UsageError, match="is not a file"):
        signature.read_key(tmp_path)

"""The Python view of the contract has the layout that the C compiler chose."""

import os
import subprocess
import sys

import numpy as np
import pytest

from mpicoloc.errors import DataError
from mpicoloc.pmpi import contract
from mpicoloc.trace import node_file

ffi = contract.ffi
STRUCTS = [name for name in ffi.list_types()[0] if name != "mc_agent"]  # which is opaque


@pytest.mark.parametrize("name", STRUCTS)
def test_dtype_has_the_layout_of_the_compiler(name):
    ctype, derived = ffi.typeof(name), contract.dtype(name)
    assert derived.itemsize == ffi.sizeof(ctype)
    assert list(derived.names) == [field for field, _ in ctype.fields]
    for field, declared in ctype.fields:
        assert derived.fields[field][1] == declared.offset
        assert derived.fields[field][0].itemsize == ffi.sizeof(declared.type)


def test_structs_of_the_header_are_all_there():
    assert {"mc_segment", "mc_node", "mc_board", "mc_lane", "mc_counters"} <= set(STRUCTS)


def test_counter_table_is_the_counter_struct():
    names = [counter.name for counter in contract.counters()]
    assert names == list(contract.dtype("mc_counters").names)
    assert all(counter.unit and counter.meaning for counter in contract.counters())


def test_constants_are_attributes():
    assert contract.MC_OK == 0
    assert contract.MC_E_SHM < 0
    with pytest.raises(AttributeError):
        contract.MC_NO_SUCH_CONSTANT  # noqa: B018


def test_shm_path_follows_the_option(monkeypatch, tmp_path):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path))
    assert contract.shm_path("k", "3.seg") == f"{tmp_path}/mpicoloc.k.3.seg"


def make_segment(path, **fields):
    """A segment file of the right size with `fields` set."""
    segment = np.zeros(1, contract.dtype("mc_segment"))
    segment["magic"], segment["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    segment["size_bytes"] = segment.nbytes
    for name, value in fields.items():
        segment[name] = value
    path.write_bytes(segment.tobytes())
    return path


def test_map_file_is_read_only_and_live(tmp_path):
    path = make_segment(tmp_path / "mpicoloc.k.0.seg", world_rank=7)
    segment = contract.map_file(path)
    assert segment["world_rank"] == 7
    with pytest.raises(ValueError, match="read-only"):
        segment["world_rank"] = 8
    offset = contract.dtype("mc_segment").fields["world_rank"][1]
    with open(path, "r+b") as file:
        os.pwrite(file.fileno(), np.int32(9).tobytes(), offset)
    assert segment["world_rank"] == 9


def test_foreign_and_cut_files_are_refused(tmp_path):
    short = tmp_path / "short.seg"
    short.write_bytes(b"\0" * 100)
    with pytest.raises(DataError, match="is truncated"):
        contract.map_file(short)
    with pytest.raises(DataError, match="version"):
        contract.map_file(make_segment(tmp_path / "old.seg", abi_version=99))
    with pytest.raises(DataError, match="not a file of mpicoloc"):
        contract.read_segment(__file__)


def test_read_segment_settles_pending_cycles_on_its_copy(tmp_path):
    lane = np.zeros((), contract.dtype("mc_lane"))
    lane["head"]["n_owners"], lane["head"]["n_pending"] = 1, 2
    lane["cycles"]["key"][5] = 1
    for i_pending, i_window in enumerate((0, 1)):
        lane["head"]["pending"][i_pending] = (i_window, 5, ((100, 10, 1), 7, 110))
    sampling = np.zeros((), contract.dtype("mc_sampling"))
    sampling["n_windows"] = 2
    sampling["windows"]["epoch"][:2] = 1, 2
    sampling["windows"]["verdict"][:2] = contract.MC_VERDICT_VALID, contract.MC_VERDICT_UNKNOWN
    lanes = np.zeros(contract.MC_N_LANES, contract.dtype("mc_lane"))
    lanes[0] = lane
    path = make_segment(tmp_path / "mpicoloc.k.0.seg", lanes=lanes, sampling=sampling)
    before = path.read_bytes()
    segment, _ = contract.read_segment(path)
    solo = segment["lanes"]["cycles"]["solo"]
    assert solo["cell"]["comp_ns"].sum() == 100
    assert solo["cut_ns"].sum() == 7 and solo["done_ns"].sum() == 110
    assert path.read_bytes() == before


def test_a_row_is_read_only_if_its_key_was_there_in_an_earlier_copy(tmp_path, monkeypatch):
    lanes = np.zeros(contract.MC_N_LANES, contract.dtype("mc_lane"))
    path = tmp_path / "mpicoloc.k.0.seg"
    copy = contract.copy_sparse

    def copy_and_go_on(file, n_bytes):
        content = copy(file, n_bytes)
        lanes["sites"]["key"][0, 6] = lanes["sites"]["n"][0, 5] = 7
        make_segment(path, lanes=lanes, state=state)
        return content

    monkeypatch.setattr(contract, "copy_sparse", copy_and_go_on)
    for state in (contract.MC_RANK_RUNNING, contract.MC_RANK_FINALIZING):
        lanes[:] = 0
        lanes["head"]["n_owners"][0] = lanes["sites"]["key"][0, 5] = 1
        make_segment(path, lanes=lanes, state=state)
        sites = contract.read_segment(path, has_events=False)[0]["lanes"]["sites"][0]
        assert np.flatnonzero(sites["key"]).tolist() == [5]
        # Of a rank that runs, the second copy is the one that is read; of one at its end there is one copy.
        assert sites["n"][5] == (7 if state == contract.MC_RANK_RUNNING else 0)


def test_whoever_waits_is_told_of_the_profile_when_the_files_are_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(tmp_path))
    node = np.zeros(1, contract.dtype("mc_node"))
    node["magic"], node["abi_version"] = contract.MC_MAGIC, contract.MC_ABI_VERSION
    node["size_bytes"] = node.nbytes
    (tmp_path / "mpicoloc.k.node").write_bytes(node.tobytes())
    make_segment(tmp_path / "mpicoloc.k.0.seg")
    (tmp_path / "mpicoloc.k.7.seg").touch()
    mapped = {what: contract.map_file(contract.shm_path("k", what)) for what in ("node", "0.seg")}
    contract.tell_profile("k", contract.MC_PROFILE_FAILED, "grün" + "." * 9999)
    assert [record["profile"] for record in mapped.values()] == [contract.MC_PROFILE_FAILED] * 2
    complaint = contract.text(mapped["0.seg"]["complaint"])
    assert complaint.startswith("grün.") and len(complaint.encode()) == contract.MC_COMPLAINT_LEN - 1
    assert not list(tmp_path.iterdir())
    contract.tell_profile("k", contract.MC_PROFILE_WRITTEN)  # nobody is left


def test_import_needs_no_numpy():
    code = "import sys, mpicoloc.pmpi.contract; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 0


def test_structs_of_another_size_are_refused(tmp_path):
    path = make_segment(tmp_path / "mpicoloc.k.0.seg", size_bytes=8)
    with pytest.raises(DataError, match="unexpected size"):
        contract.map_file(path)


def test_a_text_ends_where_it_ends_though_a_longer_one_stood_there():
    assert contract.text(b"short\0er before") == "short"


def test_bits_of_events_in_files_are_those_of_the_contract():
    """The file's format is fixed by its own version: other bits in the contract need a translation there."""
    names = ("SENT", "RECEIVED", "MESSAGE", "ONE_SIDED", "CALL", "SITE", "LANE_SHIFT")
    for name in names:
        assert getattr(node_file, name) == getattr(contract, f"MC_EVENT_{name}"), name
    event = contract.dtype("mc_event")
    tail = [event.fields[name][1] - event.fields["peer"][1] for name in node_file.KIND.names]
    assert tail == [node_file.KIND.fields[name][1] for name in node_file.KIND.names]

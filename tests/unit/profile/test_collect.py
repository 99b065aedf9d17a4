"""From files in shared memory to a profile, with files made by hand."""

import os

import node_parts
import numpy as np
import pytest
from rank_files import KEY, S, lane, write_node, write_rank

from mpicoloc.core.profile import VERDICTS
from mpicoloc.errors import DataError
from mpicoloc.pmpi import contract
from mpicoloc.profile import assemble, collect as collect_module
from mpicoloc.profile.bundle import pack_part, unpack_part
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge

NAMES = ["", "MPI_Allreduce", "MPI_Recv", "MPI_Send"]


@pytest.fixture(autouse=True)
def shared_memory(monkeypatch, tmp_path):
    shm = tmp_path / "shm"
    shm.mkdir()
    monkeypatch.setenv("MPICOLOC_SHM_DIR", str(shm))
    for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS", "MPICOLOC_RATE_SU", "MPICOLOC_PRICING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(collect_module, "call_names", lambda shim, notes: dict(enumerate(NAMES)))
    return shm


def test_a_whole_job(shared_memory):
    write_node()
    for rank in (0, 1):
        write_rank(rank)
    profile = merge([collect(KEY)])
    assert not profile.partial
    assert profile.tables["nodes"]["cpus"] == b"0-1"
    assert (profile.job.id, profile.job.n_ranks, profile.job.n_cores, profile.job.mode) == (
        "job", 2, 2, "wrap"
    )  # fmt: skip
    assert profile.job.wall_s == pytest.approx(4.0)
    assert profile.mpi.n_calls == 60
    assert profile.mpi.time_frac == pytest.approx(0.25)
    sites = profile.tables["call_sites"]
    assert set(sites["call"]) == {b"MPI_Allreduce", b"MPI_Recv", b"MPI_Send"}
    assert set(profile.tables["modules"]["path"][sites["i_module"]]) == {b"/bin/app"}
    assert profile.tables["cycles"]["comp_ns"].sum() == 2 * 3 * S
    assert profile.tables["corunners"]["overlap_s"] == pytest.approx(3.0)
    assert profile.tables["corunners"]["cpu_s"] == pytest.approx(2.0)
    assert (profile.interference.n_taken, profile.interference.n_used) == (2, 1)
    assert profile.price.runtime_su == pytest.approx(2 * 4 / 3600)


def test_messages_sent_and_received_by_peer():
    one_way = lane(n=0, sent=0, received=0)
    one_way["peers"][3] = (9, 1, 4, 0, 0, 7, 63)  # nothing was sent to this peer
    write_rank(0, lanes=[lane(n=10, sent=80, received=40), one_way])
    write_rank(1)
    profile = merge([collect(KEY)])
    assert profile.mpi.recv_bytes == (40 + 8 * 10) + (80 + 8 * 10)
    assert profile.tables["ranks"]["n_recv"].tolist() == [17, 10]
    peers = profile.tables["peers"]
    mine = peers[peers["src"] == 0]
    assert (mine["n"].sum(), mine["bytes"].sum()) == (10, 80)
    assert (mine["n_recv"].sum(), mine["recv_bytes"].sum()) == (17, 103)


def test_threads_add_up():
    write_rank(0, n_ranks=1, lanes=[lane(n=10), lane(n=5)])
    profile = merge([collect(KEY)])
    assert profile.tables["ranks"]["n_calls"] == 45
    assert set(profile.tables["call_sites"]["lane"]) == {0, 1}


def test_a_killed_rank_makes_the_profile_partial():
    write_node()
    write_rank(0)
    write_rank(1, state=contract.MC_RANK_RUNNING, t_finalize=0, pid=0)
    profile = merge([collect(KEY)])
    assert profile.partial
    assert profile.tables["ranks"]["state"].tolist() == [b"finalized", b"lost"]
    assert profile.tables["ranks"]["wall_s"][1] == pytest.approx(5.0)  # the agent saw it last then
    assert any("MPI_Finalize: 1" in note for note in profile.notes)


def test_rows_that_are_being_made_are_not_there_yet():
    """A row's key and name are written first; its numbers may be read a moment later than these."""
    new = lane()
    new["sites"][9]["n"], new["sites"][9]["time_ns"] = 1, 100
    new["peers"][9]["n"] = new["collectives"][9]["n"] = new["parts"][9]["n"] = 1
    new["cycles"][9]["corun"][0]["n"] = 1
    write_rank(0, n_ranks=1, lanes=[new])
    write_rank(1)
    for name, rows in collect(KEY).tables.items():
        if name in ("call_sites", "peers", "collectives", "parts", "cycles"):
            own = rows[rows["src" if name in ("peers", "parts") else "rank"] == 0]
            other = rows[rows["src" if name in ("peers", "parts") else "rank"] == 1]
            assert len(own) == len(other)
    assert merge([collect(KEY)]).mpi.n_calls == 60


def test_a_missing_rank_and_node_file_are_noted():
    write_rank(0, n_ranks=3)
    profile = merge([collect(KEY)])
    assert profile.partial
    assert profile.interference.slowdown is None
    assert any("1 of 3 ranks" in note for note in profile.notes)
    assert any("no node agent" in note for note in profile.notes)


def test_what_was_not_watched_is_noted(monkeypatch):
    write_node(n_uncounted=88)
    write_rank(0)
    write_rank(1)
    assert any("did not count 88 threads" in note for note in collect(KEY).facts["notes"])
    monkeypatch.setattr(contract, "MC_N_NODE_RANKS", 1)
    assert any("watched only 1 of the 2 ranks" in note for note in collect(KEY).facts["notes"])


def test_a_node_file_that_no_agent_wrote_claims_nothing():
    write_node(t_last=10 * S, shared_ns=0, n_shutters=0)  # t_open
    write_rank(0, n_ranks=1)
    profile = merge([collect(KEY)])
    assert profile.interference.slowdown is None
    assert any("no node agent" in note for note in profile.notes)


def test_a_damaged_segment_does_not_cost_the_others(shared_memory):
    write_rank(0)
    (shared_memory / f"mpicoloc.{KEY}.1.seg").write_bytes(b"x" * 100)
    profile = merge([collect(KEY)])
    assert len(profile.tables["ranks"]) == 1
    assert any("truncated" in note for note in profile.notes)


def test_nothing_there():
    with pytest.raises(DataError, match=KEY):
        collect(KEY)


def test_parts_travel_between_nodes():
    write_node()
    for rank in (0, 1):
        write_rank(rank)
    part = collect(KEY)
    again = unpack_part(b"".join(pack_part(part)))
    assert again.facts == part.facts
    for name, array in part.tables.items():
        assert again.tables[name].tobytes() == array.tobytes()  # NaN and all


def test_nodes_are_put_below_each_other():
    write_node()
    for rank in (0, 1):
        write_rank(rank, n_ranks=4, n_nodes=2)
    part = collect(KEY)
    profile = merge([part, part])
    assert profile.tables["nodes"].shape == (2,)
    assert profile.tables["shutters"]["i_node"].tolist() == [0, 0, 1, 1]
    assert profile.tables["call_sites"]["i_module"].max() == 1
    assert profile.job.n_cores == 4


@pytest.mark.parametrize(
    ("verdicts", "merged"),
    [
        (("valid", "valid"), ("valid", "valid")),
        (("bubbled", "bubbled"), ("bubbled", "bubbled")),
        (("bubbled", "elsewhere"), ("elsewhere", "elsewhere")),
        (("valid", "bubbled"), ("elsewhere", "elsewhere")),
        (("moved", "bubbled"), ("moved", "elsewhere")),
    ],
)
def test_a_shutter_of_several_nodes_counts_on_all_or_none(verdicts, merged):
    parts = [node_parts.part(first) for first in (0, 2)]
    for part, verdict in zip(parts, verdicts, strict=True):
        shutters = part.tables["shutters"].copy()
        shutters["common"][:1], shutters["verdict"][:1] = 7, VERDICTS.index(verdict)
        part.tables["shutters"] = shutters
    found = merge(parts).tables["shutters"]
    assert [VERDICTS[row["verdict"]] for row in found if row["common"] == 7] == list(merged)


def test_cores_are_those_the_job_was_given(monkeypatch):
    write_rank(0, n_ranks=1)
    assert collect(KEY).facts["n_cores"] == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert collect(KEY).facts["n_cores"] == 2  # no more than its ranks may use


def test_processors_that_have_no_room_in_the_list_are_not_cut_off():
    write_node()
    every_other = np.full(16, 0x5555555555555555, "u8")
    write_rank(0, n_ranks=1, cpu_mask=every_other)
    assert collect(KEY).tables["nodes"]["cpus"] == b""
    write_rank(0, n_ranks=1, cpu_mask=~np.zeros(16, "u8"))
    assert collect(KEY).tables["nodes"]["cpus"] == b"0-1023"


def test_trace_comes_in_time_order():
    path = write_rank(0, n_ranks=1, n_events_max=4)
    events = np.zeros(4, contract.dtype("mc_event"))
    events["t_ns"], events["call"] = [30, 0, 10, 20], 3
    with open(path, "ab") as file:
        file.write(events.tobytes())
    table = merge([collect(KEY)]).tables["events"]
    assert table["t_ns"].tolist() == [10, 20, 30]
    assert set(table["call"]) == {b"MPI_Send"}


def test_same_job_same_interval():
    write_node()
    write_rank(0, n_ranks=1)
    part = collect(KEY)
    assert merge([part]).interference == merge([part]).interference


def test_a_bad_price_option_costs_no_profile(monkeypatch):
    write_rank(0, n_ranks=1)
    monkeypatch.setenv("MPICOLOC_RATE_SU", "cheap")
    monkeypatch.setenv("MPICOLOC_PRICING", "barter")
    profile = merge([collect(KEY)])
    assert (profile.price.rate_su, profile.price.pricing) == (1.0, "fair")
    assert sum("; using " in note for note in profile.notes) == 2


def test_assemble_writes_where_the_job_said(tmp_path):
    out = tmp_path / "here.h5"
    write_node()
    write_rank(0, n_ranks=1, out_path=os.fsencode(out))
    assert assemble.main([KEY]) == 0
    assert out.exists()


def test_assemble_falls_back_to_the_temporary_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write_node()
    write_rank(0, n_ranks=1, out_path=b"/proc/nowhere/p.h5")
    assert assemble.main([KEY, "--partial"]) == 4
    assert (tmp_path / "p.h5").exists()
    told = capsys.readouterr().err
    assert str(tmp_path / "p.h5") in told and "choose another place with --out" in told


def test_assemble_falls_back_to_a_new_name_where_somebody_holds_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "p.h5").mkdir()  # refuses to be replaced, as another user's file in a sticky folder does
    write_node()
    write_rank(0, n_ranks=1, out_path=b"/proc/nowhere/p.h5")
    assert assemble.main([KEY]) == 4
    (written,) = tmp_path.glob("*-p.h5")
    assert capsys.readouterr().err.endswith(f"so it is in {written}\n")


def test_assemble_without_data_says_so(capsys):
    assert assemble.main(["nokey"]) == 3
    assert "nokey" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"), [("no_such_module:f", "ModuleNotFoundError"), ("math:pi", "not a function")]
)
def test_a_price_function_that_fails_costs_no_profile(monkeypatch, text, words):
    monkeypatch.setenv("MPICOLOC_PRICING", text)
    write_rank(0, n_ranks=1)
    profile = merge([collect(KEY)])
    assert profile.price.pricing == "fair"
    assert any(words in note and "using fair" in note for note in profile.notes)


def test_the_site_signs_what_it_writes_and_a_bad_key_costs_no_profile(monkeypatch, tmp_path):
    from mpicoloc.profile import hdf5, signature

    key = tmp_path / "site.key"
    key.write_text("k" * 32)
    monkeypatch.setenv("MPICOLOC_KEY_FILE", str(key))
    for mode, is_good in ((0o600, True), (0o644, False)):
        key.chmod(mode)
        write_rank(0, n_ranks=1, out_path=str(tmp_path / "p.h5").encode())
        path, trouble = assemble.write([collect(KEY)])
        assert trouble == ""
        assert signature.verify(signature.snapshot(path), b"k" * 32).is_good == is_good
        notes = hdf5.read(path).notes
        assert any("unsigned: key file" in note for note in notes) != is_good


def test_variables_without_effect_are_noted_in_the_profile(monkeypatch, tmp_path):
    from mpicoloc.profile import hdf5

    monkeypatch.setenv("MPICOLOC_TRCE", "1")
    monkeypatch.setenv("MPICOLOC_TRACE", "al")
    monkeypatch.setenv("MPICOLOC_RATE_SU", "cheap")
    write_rank(0, n_ranks=1, out_path=str(tmp_path / "p.h5").encode())
    assemble.write([collect(KEY)])
    notes = hdf5.read(tmp_path / "p.h5").notes
    assert any("did you mean MPICOLOC_TRACE?" in note for note in notes)
    assert "MPICOLOC_TRACE must be a whole number or all, got 'al'; the default is used" in notes
    assert sum("MPICOLOC_RATE_SU must be" in note for note in notes) == 1


def test_what_cannot_be_signed_costs_no_profile(monkeypatch, tmp_path):
    """For example a trace that is larger than what is signed."""
    from mpicoloc.profile import hdf5, signature

    key = tmp_path / "site.key"
    key.write_text("k" * 32)
    key.chmod(0o600)
    monkeypatch.setenv("MPICOLOC_KEY_FILE", str(key))
    monkeypatch.setattr(signature, "MAX_CONTENT_BYTES", 100)
    write_rank(0, n_ranks=1, out_path=str(tmp_path / "p.h5").encode())
    assert assemble.write([collect(KEY)]) == (str(tmp_path / "p.h5"), "")
    assert any("unsigned: more than" in note for note in hdf5.read(tmp_path / "p.h5").notes)
    assert signature.facts(tmp_path / "p.h5") is None


USAGE = {"minor_faults": 100, "major_faults": 1, "voluntary_switches": 1000, "involuntary_switches": 20}


def used(scale, migrations=0, n_migrating=0, run_delay_ns=0, n_scheduled=0):
    told = np.zeros((), contract.dtype("mc_usage"))
    told["is_known"], told["cpu_ns"] = 1, scale * S // 2
    told["n_migrating"], told["migrations"] = n_migrating, migrations
    told["n_scheduled"], told["run_delay_ns"] = n_scheduled, run_delay_ns
    for name, value in USAGE.items():
        told[name] = scale * value
    return told


def test_what_a_rank_used_is_without_what_came_before_the_end_of_init():
    write_rank(0, used_at_init=used(1, 5, 3, S, 3), used_at_finalize=used(4, 7, 3, 3 * S, 3))
    write_rank(1, used_at_init=used(1), used_at_finalize=used(4))
    first, second = collect(KEY).tables["ranks"]
    for row in (first, second):
        assert {name: row[name] for name in USAGE} == {name: 3 * value for name, value in USAGE.items()}
        assert row["cpu_s"] == pytest.approx(1.5)
    assert first["migrations"] == 2
    assert first["run_delay_s"] == pytest.approx(2.0)
    assert np.isnan(second["migrations"]) and np.isnan(second["run_delay_s"])
    found = merge([collect(KEY)]).interference
    assert (found.cpu_s, found.run_delay_s) == (pytest.approx(1.5), pytest.approx(2.0)), "of the same rank"


def test_a_rank_that_runs_used_what_the_kernel_tells_since_init():
    from mpicoloc.profile import machine

    def ticks(pid):
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])

    running = {"state": contract.MC_RANK_RUNNING, "t_finalize": 0}
    own = {"pid": os.getpid(), "pid_start_ticks": ticks(os.getpid())}
    before = used(0)
    before["minor_faults"] = machine.usage(os.getpid())["minor_faults"] - 7
    before["voluntary_switches"] = 1 << 40  # of threads that have ended
    before["cpu_ns"] = machine.usage(os.getpid())["cpu_s"] * S + 100 * S
    write_rank(0, **running, **own, used_at_init=before)
    write_rank(1, **running, **own)  # not yet out of MPI_Init
    write_rank(2, **running, used_at_init=before)  # gone
    first, second, third = collect(KEY).tables["ranks"]
    assert 7 <= first["minor_faults"] < 100000
    assert np.isnan(first["voluntary_switches"])
    assert first["cpu_s"] == 0
    assert np.isnan([[row[name] for name in machine.USED] for row in (second, third)]).all()
    assert first["peak_rss_bytes"] > 1e6

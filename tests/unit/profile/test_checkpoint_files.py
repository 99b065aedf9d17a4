"""Parts of a profile on disk: written whole or not at all, and doubted when they are read."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import sample
from hypothesis import HealthCheck, given, settings, strategies as st
from node_parts import START_S, part

from mpicoloc.cli.main import main
from mpicoloc.core.profile import COLUMNS, table
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.profile import bundle, checkpoints, hdf5, recover
from mpicoloc.profile.bundle import NodePart, pack_part
from mpicoloc.profile.checkpoints import MAGIC, save
from mpicoloc.profile.merge import merge


@pytest.fixture
def out(tmp_path):
    return tmp_path / "job.h5"


def test_two_nodes_make_one_partial_profile(out, capsys):
    for first, at_s in ((2, START_S + 70), (0, START_S + 60)):
        save(part(first, out=out), at_s)
    assert sorted(os.listdir(out.with_suffix(".parts"))) == ["0.part", "2.part"]
    assert main(["recover", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    profile = hdf5.read(out)
    assert profile.partial
    assert profile.tables["ranks"]["rank"].tolist() == [0, 1, 2, 3]
    assert profile.mpi.n_calls == 2 * sample.profile().mpi.n_calls
    told = "made from the last checkpoints of 2 of 2 nodes, dated "
    assert told + "2023-11-14 22:14:20 UTC to 2023-11-14 22:14:30 UTC" in profile.notes


def test_a_node_that_is_missing_is_told(out):
    save(part(0, out=out), START_S + 60)
    assert main(["recover", str(out)]) == 0
    notes = hdf5.read(out).notes
    assert "only 2 of 4 ranks are in this profile: 1 of 2 nodes sent their parts" in notes
    assert any(note.startswith("made from the last checkpoints of 1 of 2 nodes") for note in notes)


def test_parts_of_several_disks(tmp_path, out):
    places = []
    for first in (0, 2):
        folder = tmp_path / f"disk{first}"
        folder.mkdir()
        save(part(first, out=folder / "job.h5"), START_S + 60)
        places.append(str(folder / "job.parts"))
    assert main(["recover", *places, "--out", str(out)]) == 0
    assert len(hdf5.read(out).tables["ranks"]) == 4
    assert main(["recover", *(f"{place}/{i}.part" for place, i in zip(places, (0, 2), strict=True))]) == 0
    assert len(hdf5.read(tmp_path / "disk0/job.h5").tables["ranks"]) == 4


def test_other_runs_are_left_out(out, capsys):
    save(part(0, out=out), START_S + 60)
    save(part(2, out=out, start_unix_s=START_S - 3600), START_S - 3000)
    save(part(4, out=out, job_id="41"), START_S + 60)
    assert main(["recover", str(out)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "2.part is from another run" in said[0] + said[1]
    assert "4.part is of another job" in said[0] + said[1]
    assert hdf5.read(out).tables["ranks"]["rank"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (sample.profile(), "is complete"),
        (merge([part(job_id="41")], partial=True), "is of another job, 41"),
        (merge([part(0), part(2)], partial=True), "but the checkpoints only"),
    ],
    ids=["whole", "other", "more"],
)
def test_what_is_better_stays(out, capsys, there, why):
    save(part(0, out=out), START_S + 60)
    hdf5.write(there, out)
    before = out.read_bytes()
    assert main(["recover", str(out)]) == 1
    assert why in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main(["recover", str(out), "--out", str(out) + ".2"]) == 0


def test_what_is_there_is_said(out, tmp_path, capsys):
    assert main(["recover", str(out)]) == 3
    assert "before its first checkpoint" in capsys.readouterr().err
    path = save(part(0, out=out), START_S)
    for wrong in (out, out.with_suffix(".parts")):
        assert main(["show", str(wrong)]) == 3
        assert f"mpicoloc recover {wrong}" in capsys.readouterr().err
    (tmp_path / "0.part").write_bytes(Path(path).read_bytes())
    assert main(["recover", str(tmp_path / "0.part")]) == 2
    assert "give --out" in capsys.readouterr().err


def test_a_copy_that_fails_leaves_the_one_before(out):
    path = save(part(0, out=out), START_S)
    before = Path(path).read_bytes()

    def broken():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoints.write(str(out), 0, broken())
    assert os.listdir(out.with_suffix(".parts")) == ["0.part"]
    assert Path(path).read_bytes() == before


def test_a_link_in_the_way_is_not_followed(out, tmp_path):
    folder = out.with_suffix(".parts")
    folder.mkdir()
    (tmp_path / "precious").write_text("mine")
    (folder / "0.part.new").symlink_to(tmp_path / "precious")
    save(part(0, out=out), START_S)
    assert (tmp_path / "precious").read_text() == "mine"
    assert recover.read_part(str(folder / "0.part")).facts["job_id"] == "42"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89HDF\r\n\x1a\n",
        MAGIC,
        MAGIC + b"no zlib",
        MAGIC + zlib.compress(b"".join(pack_part(part())))[:-5],
        MAGIC + zlib.compress(b"".join(pack_part(part()))) + b"more",
        MAGIC + zlib.compress(b"".join(pack_part(part()))[:-1]),
        MAGIC + zlib.compress(b"".join(pack_part(part(n_ranks="four")))),
        MAGIC + zlib.compress(b"".join(pack_part(part(notes=[1])))),
        *(MAGIC + zlib.compress(b"".join(bundle.pack(facts, part().tables))) for facts in ([], None)),
        MAGIC + zlib.compress(b"".join(pack_part(NodePart({n: table(n) for n in COLUMNS}, part().facts)))),
    ],
)  # fmt: skip
def test_a_damaged_part_is_one_line(out, content, capsys):
    path = save(part(0, out=out), START_S)
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(DataError, match=r"0\.part"):
        recover.read_part(path)
    assert main(["recover", str(out)]) == 3
    said = capsys.readouterr().err
    assert "0.part" in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_part_that_unfolds_is_refused(out, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 1 << 20)
    path = save(part(0, out=out), START_S)
    with open(path, "wb") as file:
        file.write(MAGIC + zlib.compress(bytes(1 << 24)))
    with pytest.raises(DataError, match="damaged"):
        checkpoints.read(path)


def test_a_number_that_is_none_is_refused(out):
    wrong = part(0, out=out)
    ranks = wrong.tables["ranks"].copy()
    ranks["wall_s"] = np.inf
    wrong.tables["ranks"] = ranks
    with pytest.raises(DataError, match="wall_s"):
        recover.read_part(save(wrong, START_S))


PLAIN = b"".join(pack_part(part(n_ranks=2, n_nodes=1)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(0, len(PLAIN)), new=st.binary(min_size=1, max_size=8), cut=st.booleans())
def test_whatever_is_in_a_part_there_is_a_profile_or_one_error(tmp_path, at, new, cut):
    path = tmp_path / "0.part"
    changed = PLAIN[:at] + new + (b"" if cut else PLAIN[at + len(new) :])
    path.write_bytes(MAGIC + zlib.compress(changed, 1))
    try:
        profile, _ = recover.recover([str(path)])
    except MpicolocError:
        return
    assert profile.partial


def test_nodes_without_coordinators_come_together(out):
    """The node of rank 0 waits for the last part of each other one, but not for long."""
    now_s = [0.0]

    def sleep(duration_s):
        now_s[0] += duration_s
        if now_s[0] > 1.0:
            assert recover.gather(part(2, out=out)) == []

    save(part(2, out=out), START_S + 60)
    found = recover.gather(part(0, out=out), lambda: now_s[0], sleep)
    assert [p.facts["world_rank"] for p in found] == [0, 2]
    assert recover.is_whole(found)
    assert now_s[0] < recover.WITHIN_S
    # The other one has died.
    save(part(2, out=out), START_S + 60)
    found = recover.gather(part(0, out=out), lambda: now_s[0], lambda s: now_s.__setitem__(0, now_s[0] + s))
    assert [p.facts["until_unix_s"] for p in found] == [0.0, START_S + 60]
    assert not recover.is_whole(found)


def test_nodes_that_cannot_write_are_alone(tmp_path):
    (tmp_path / "job.parts").write_text("a file")
    for first in (0, 2):
        own = part(first, out=tmp_path / "job.h5")
        assert recover.gather(own) == [own]

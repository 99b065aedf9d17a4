"""Profiles that are signed when a Slurm job ends, and profiles that are not."""

import json
import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sample import profile

from mpicoloc.cli.main import main
from mpicoloc.core.profile import dtype
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.profile import hdf5, signature
from mpicoloc.slurm import client, close

KEY = b"0123456789abcdef0123456789abcdef"
UID = os.getuid()
SUBMITTED_S = 1_763_000_000
START = client.Start(7, UID, SUBMITTED_S, SUBMITTED_S + 5, True, "7")


@pytest.fixture
def job(tmp_path):
    """Profiles of job 7, steps 0 and batch, in `out`; an empty spool."""
    (tmp_path / "out").mkdir()
    (tmp_path / "spool").mkdir()
    of_7 = profile()
    of_7 = replace(of_7, job=replace(of_7.job, id="7"))
    for step in ("0", "batch"):
        hdf5.write(of_7, tmp_path / "out" / f"7.{step}.h5")
    return tmp_path


def pattern(folder):
    return f"{folder}/out/%j.%s.h5"


def names(found):
    return [os.path.basename(path) for path, _ in found]


def sign(folder, start=START, name="7.0.h5"):
    found = str(folder / "out" / name), start.name(name.split(".")[1])
    return close.sign(found, start, KEY, str(folder / "spool"), 1.0)


def write_anew(folder, name="7.0.h5"):
    """As a later start of the job does, after all that was signed by now."""
    os.utime(folder / "out" / name, (4e9, 4e9))


def test_profiles_are_found_by_job_owner_and_step(job):
    for name in ("8.0.h5", "7.x.h5", "7.0.h5.h5", "7.1\n.h5"):
        (job / "out" / name).touch()
    os.symlink(job / "out" / "8.0.h5", job / "out" / "7.1.h5")
    (job / "out" / "7.2.h5").mkdir()
    found = close.find_profiles(pattern(job), START)
    assert names(found) == ["7.0.h5", "7.batch.h5"]
    assert close.find_profiles(pattern(job), replace(START, uid=UID + 1)) == []
    assert close.find_profiles(f"{job}/out/%u%%%j*.%s.h5", START) == []
    (job / "out" / f"{UID}%7*.0.h5").touch()
    assert len(close.find_profiles(f"{job}/out/%u%%%j*.%s.h5", START)) == 1
    (job / str(UID)).mkdir(mode=0o700)
    (job / str(UID) / "7.0.h5").touch()
    assert names(close.find_profiles(f"{job}/%u/%j.%s.h5", START)) == ["7.0.h5"]
    os.utime(job / "out" / "7.0.h5", (0, START.since_unix_s - 1))
    assert names(close.find_profiles(pattern(job), START)) == ["7.batch.h5"], "of this start only"


def test_what_was_signed_for_one_start_is_not_signed_for_the_next(job):
    again = replace(START, submitted_unix_s=SUBMITTED_S + 9, since_unix_s=SUBMITTED_S + 9)
    assert sign(job) is not None
    assert sign(job, again) is None, "Slurm's second may be that in which the file was written"
    assert sign(job, again, "7.batch.h5") is not None
    write_anew(job)
    assert sign(job, again) is not None


def test_each_profile_is_signed_once_and_told_together(job):
    spool = str(job / "spool")
    for found in close.find_profiles(pattern(job), START):
        to = close.sign(found, START, KEY, spool, 1.0)
        assert signature.verify(signature.snapshot(to), KEY).is_good
        os.utime(found[0], (4e9, 4e9))
        assert close.sign(found, START, KEY, spool, 2.0) is None, "the user has changed it"
    assert [os.path.basename(path) for path in close.signed_profiles(spool, START)] == [
        f"7.{SUBMITTED_S}.{step}.h5" for step in ("0", "batch")
    ]
    told = close.price_so_far(spool, START)
    assert told["n_profiles"] == 2
    assert told["profile_runtime_su"] == pytest.approx(2 * profile().price.runtime_su)
    assert told["slowdown"][0] == profile().interference.slowdown.value


def test_a_job_that_starts_again_or_has_an_old_number_is_another(job):
    again = replace(START, submitted_unix_s=SUBMITTED_S + 200)
    for start in (START, again, replace(START, submitted_unix_s=SUBMITTED_S * 10)):
        assert sign(job, start) is not None
        write_anew(job)
        assert close.price_so_far(str(job / "spool"), start)["n_profiles"] == 1
    assert len(list((job / "spool").glob("*.h5"))) == 3


@pytest.mark.parametrize(
    ("out", "found"),
    [
        ("/%j.%s.h5", {"7.0.h5": "0", "7.batch.h5": "batch"}),
        ("/%s/%j.h5", {"0/7.h5": "0", "1/7.h5": "1"}),
        ("/%s/%j.%s", {"2/7.2": "2"}),
    ],
)
def test_names_in_the_spool_are_by_step_wherever_the_pattern_has_it(tmp_path, out, found):
    for path in ("7.0.h5", "7.batch.h5", "0/7.h5", "1/7.h5", "2/7.2", "2/7.3", "7.h5"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    out = f"{tmp_path}{out}"
    wanted = {f"{tmp_path}/{path}": START.name(step) for path, step in found.items()}
    assert dict(close.find_profiles(out, START)) == wanted
    assert len(set(wanted.values())) == len(wanted)
    for path, step in found.items():
        assert close.profile_path(out, START, step) == f"{tmp_path}/{path}"


@pytest.mark.parametrize("out", ["/x/%j.h5", "/x/%j", "/x/%j.%%s.h5", "/%u/%j.s"])
def test_where_steps_would_share_a_file_nothing_is_signed(job, out, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(job))  # Slurm is not asked
    command = ["slurm", "close", "7", "--uid", str(UID), "--key-file", "none", "--spool", str(job / "spool")]
    assert main([*command, "--out", out]) == 2
    assert f"{out!r} has no %s" in capsys.readouterr().err and not list((job / "spool").iterdir())


def test_a_job_has_room_for_so_many_profiles_and_bytes(job, monkeypatch):
    size = (job / "out" / "7.0.h5").stat().st_size
    monkeypatch.setattr(close, "MAX_PROFILES", 1)
    assert sign(job)
    with pytest.raises(DataError, match="is not signed: its job already has 1 signed"):
        sign(job, name="7.batch.h5")
    write_anew(job)
    assert sign(job, replace(START, submitted_unix_s=1)), "another start has room of its own"
    monkeypatch.setattr(close, "MAX_PROFILES", 9)
    monkeypatch.setattr(close, "MAX_BYTES", 2 * size)
    with pytest.raises(DataError, match="signed profiles would exceed"):
        sign(job, name="7.batch.h5")


def test_a_file_that_is_too_large_is_not_even_read(job, monkeypatch):
    large = 200 << 20
    os.truncate(job / "out" / "7.0.h5", large)
    for name, what in (("MAX_BYTES", "signed profiles would exceed"), ("MAX_FILE_BYTES", "has more than")):
        monkeypatch.setattr(close, name, large - 1)
        tracemalloc.start()
        try:
            with pytest.raises(DataError, match=what):
                sign(job)
            assert tracemalloc.get_traced_memory()[1] < large / 10
        finally:
            tracemalloc.stop()


def test_what_unfolds_to_more_memory_than_there_is_is_not_signed(job, monkeypatch):
    large = profile()
    events = np.zeros(4 << 20, dtype("events"))
    large = replace(large, tables={**large.tables, "events": events}, job=replace(large.job, id="7"))
    hdf5.write(large, job / "out" / "7.1.h5")
    assert (job / "out" / "7.1.h5").stat().st_size < events.nbytes / 50
    monkeypatch.setattr(close, "MEMORY_BYTES", events.nbytes // 2)
    with pytest.raises(DataError):
        sign(job, name="7.1.h5")
    assert sign(job)
    monkeypatch.undo()
    assert sign(job, name="7.1.h5")
    assert close.price_so_far(str(job / "spool"), START)["n_profiles"] == 2


DAY_S = 86400.0


def test_what_was_half_written_is_removed_later(job):
    spool, now_s = job / "spool", 100 * DAY_S
    ages_s = {".mpicoloc-a.h5.part": 9000.0, ".mpicoloc-b.h5.part": 1000.0,
              ".mpicoloc-prices-7.1.json": 40 * DAY_S, ".mpicoloc-prices-8.1.json": 20 * DAY_S,
              "7.h5": 90 * DAY_S, ".else": 90 * DAY_S}  # fmt: skip
    for name, age_s in ages_s.items():
        (spool / name).touch()
        os.utime(spool / name, (now_s - age_s,) * 2)
    close.sweep_spool(str(spool), now_s)
    gone = {".mpicoloc-a.h5.part", ".mpicoloc-prices-7.1.json"}
    assert {path.name for path in spool.iterdir()} == ages_s.keys() - gone, "a step may run for weeks"


def test_each_profile_is_read_once_however_many_steps_end(job, monkeypatch):
    """The job's next step waits for it."""
    spool, read, as_before = job / "spool", [], close.read_signed

    def counted(paths, start):
        read.extend(map(os.path.basename, paths))
        return as_before(paths, start)

    def so_far():
        read.clear()
        return close.price_so_far(str(spool), START), list(read)

    monkeypatch.setattr(close, "read_signed", counted)
    assert so_far() == (None, [])
    sign(job)
    first = os.path.basename(close.signed_profiles(str(spool), START)[0])
    one, without = map(close.price_of_profile, (profile(), replace(profile(), price=None)))
    assert close.sum_prices([one, without])["profile_fair_su"] is None, "not measured in every step"
    one = close.sum_prices([one])
    assert so_far() == (one, [first])
    assert so_far() == (one, []), "a step without a profile"
    sign(job, name="7.batch.h5")
    both = close.sum_prices([close.price_of_profile(profile())] * 2)
    second = os.path.basename(close.signed_profiles(str(spool), START)[1])
    assert so_far() == (both, [second])
    os.utime(spool / first, (4e9, 4e9))
    assert so_far() == (both, [first]), "it may be another one"
    for text in ("", "[]", '{"7.h5": {}}'):
        next(spool.glob(".mpicoloc-prices-*")).write_text(text)
        assert so_far() == (both, [first, second])
    (spool / second).write_bytes(b"no profile")
    assert so_far()[0] == one
    close.remove_cache(str(spool), START)
    assert not list(spool.glob(".mpicoloc-prices-*"))


def test_the_profile_of_another_job_or_user_is_not_signed(job):
    path = job / "out" / "9.0.h5"
    path.write_bytes((job / "out" / "7.0.h5").read_bytes())
    with pytest.raises(DataError, match="from job '7', not from 9"):
        sign(job, replace(START, job=9), "9.0.h5")
    of_other = profile()
    hdf5.write(replace(of_other, job=replace(of_other.job, id="7", user="somebody")), job / "out" / "7.0.h5")
    with pytest.raises(DataError, match="from user 'somebody', not"):
        sign(job)
    assert not list((job / "spool").iterdir())


def test_a_link_and_a_file_of_somebody_else_are_not_signed(job):
    link = job / "out" / "7.5.h5"
    link.symlink_to(job / "out" / "7.0.h5")
    with pytest.raises(DataError, match="cannot be read"):
        sign(job, name="7.5.h5")
    with pytest.raises(DataError, match="not a file of user"):
        sign(job, replace(START, uid=UID + 1))
    assert not list((job / "spool").iterdir())


JOB = {"JobID": "7", "UserID": "1000", "SubmitTime": "1763000000", "StartTime": "1763000005",
       "StateCompact": "R", "ArrayJobID": "7", "ArrayTaskID": "N/A", "HetJobID": "0"}  # fmt: skip
PRICE = '{"mpicoloc":{"n_profiles":1}}'


def squeue(comment, account="(null)", **changes):
    """As squeue prints a job: columns of so many bytes, cut off."""
    row = JOB | changes
    cells = [(row.get(name, ""), client._WIDTH) for name in client._FIELDS]
    cells += [(comment, client.COMMENT_WIDTH), (account, client._WIDTH)]
    return b"".join(os.fsencode(text)[:width].ljust(width) for text, width in cells) + b"\n"


def started(*lines, job=7):
    return client.parse_start(b"".join(lines).decode(errors="surrogateescape"), job, 1000)


SHARE = f"mpicoloc share 7 on {','.join(f'node{i:04}' for i in range(64))} limit 1440"


@pytest.mark.parametrize("note", [SHARE, "two\nlines", "Gr\u00fc\u00dfe \u2615", "", "x" * 5000])
def test_bytes_and_line_breaks_of_a_note_do_not_move_what_follows(note):
    found = started(squeue("other", JobID="6"), squeue(note, "chem"))
    assert (found.admin_comment, found.fields["Account"]) == (note, "chem")


def test_an_account_cannot_look_like_another_job():
    account = "x\n" + "7".ljust(100) + "1000"
    assert started(squeue("", account, JobID="6"), squeue("mine")).admin_comment == "mine"
    with pytest.raises(EnvironmentFault, match="no job 8"):
        started(squeue("", account), job=8)


def told(monkeypatch, folder, comment, **changes):
    """The new AdminComment, after a price is written to a job that had `comment`."""
    scontrol = folder / "scontrol"
    scontrol.write_text(f"#!/bin/sh\nprintf '%s' \"$3\" > {folder}/told\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    assert close.write_admin_comment(started(squeue(comment, **changes)), {"n_profiles": 2})
    return (folder / "told").read_text().removeprefix("AdminComment=")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "{}"),
        ("(null)", "{}"),
        (PRICE, "{}"),
        ("exclusive", "exclusive {}"),
        (f"exclusive {PRICE}", "exclusive {}"),
        (f"mpicoloc share 7 on n1 limit 1440 {PRICE}", "mpicoloc share 7 on n1 limit 1440 {}"),
        (f"note {PRICE} of ours", "note {} of ours"),
        ('{"mpicoloc": cut', '{"mpicoloc": cut {}'),
    ],
)
def test_a_price_leaves_what_others_wrote(monkeypatch, tmp_path, before, after):
    assert told(monkeypatch, tmp_path, before) == after.replace("{}", '{"mpicoloc":{"n_profiles":2}}')


@pytest.mark.parametrize(
    ("comment", "error"),
    [("x" * 20_000, DataError), ('{"mpicoloc":{"n_profiles":2}} of ours', FileNotFoundError)],
)
def test_a_comment_that_may_be_cut_or_has_the_price_is_not_written(monkeypatch, tmp_path, comment, error):
    with pytest.raises(error):
        told(monkeypatch, tmp_path, comment)
    assert not (tmp_path / "told").exists()


@given(st.text(alphabet='ab {}":,1\n'), st.text(alphabet='ab {}":,1\n'))
def test_the_last_price_is_the_only_one_and_all_else_stays(before, after):
    once = close.with_price(f"{before} {PRICE} {after}", PRICE)
    assert once == " ".join(filter(None, (before.strip(), PRICE, after.strip())))
    new = json.dumps({"mpicoloc": {"n_profiles": 2}})
    assert close.with_price(once, new) == once.replace(PRICE, new)

"""The pairing service treats each profile as an unverified claim by a user about that user's own jobs."""

import dataclasses
import json
import os
import pwd

import contention
import pytest
import sample
from slurm_programs import answering

from mpicoloc.cli.main import main
from mpicoloc.core.profile import Estimate, table
from mpicoloc.core.slowdown import Machine, MeasuredTable
from mpicoloc.pairing import model_file
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.pairing.training.fitting import fit_kind
from mpicoloc.profile import hdf5, history
from mpicoloc.slurm import client, job_history, service

HOW = service.ServiceSettings(Partitions("whole", "shared"), Rules("blossom", prior_slowdown=1.3), None)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Three full nodes, two jobs F and G that wait; see `answering`."""
    return answering(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path):
    """Profiles of root's jobs F and G."""
    (tmp_path / "profiles").mkdir()
    for name in "FG":
        write(tmp_path / "profiles", name)
    return tmp_path / "profiles"


def write(folder, name, file=None, ranks=None, nodes=None, beside=None, **changes):
    """A profile of a job of that name, with these facts, columns of its ranks, nodes, and job beside it."""
    profile = sample.profile()
    made = sample.job(**{"id": name, "user": "root", "batch_name": name, "n_ranks": 4, **changes})
    tables = dict(profile.tables)
    if ranks:
        columns = {field: tables["ranks"][field] for field in tables["ranks"].dtype.names}
        tables["ranks"] = table("ranks", columns | ranks)
    if nodes:
        tables["nodes"] = table("nodes", nodes)
    if beside:
        tables["corunners"] = table("corunners", {"i_node": [0], "job_id": [beside], "overlap_s": [60.0]})
    hdf5.write(dataclasses.replace(profile, job=made, tables=tables), folder / f"{file or name}.h5")


def submit(slurm, *names):
    """One more waiting job of each of these names, as the one called F."""
    answer = json.loads((slurm / "squeue.json").read_text())
    (like,) = (row for row in answer["jobs"] if row["name"] == "F")
    answer["jobs"] += [like | {"job_id": 100 + i, "name": name} for i, name in enumerate(names)]
    (slurm / "squeue.json").write_text(json.dumps(answer))


def look(folder, *words):
    """A service that looks once and says what it would do."""
    words = ("pair", "--watch", "--once", "--dry-run", *(words or ("--prior-slowdown", "1.3")))
    return main([*words, "--profiles", str(folder)])


@pytest.mark.parametrize(
    "said",
    [{"ranks": {"peak_rss_bytes": [-1e9, -1e9]}}, {"wall_s": 1.7e308}, {"wall_s": 1e300}, {"n_cores": 2**60},
     {"ranks": {"peak_rss_bytes": [1e300, 1e300]}}],
    ids=str,
)  # fmt: skip
def test_who_says_what_cannot_be_stops_pairing_for_himself_alone(slurm, folder, capsys, said):
    for name in ("bad", "worse"):
        write(folder, name, **said)
    submit(slurm, "bad", "worse")
    assert look(folder) == 0
    told = capsys.readouterr()
    assert "4 on n1: to share with 5\n" in told.out
    assert told.err.count(": jobs with such profiles are not paired") == 1
    assert len(told.err.splitlines()) == 1


def test_a_job_does_not_run_longer_than_its_time_limit_whatever_its_profiles_say(slurm, folder):
    for name in "FG":
        write(folder, name, wall_s=3e6)
    known = job_history.ProfileHistory(str(folder))
    known.update()
    now = client.snapshot()
    seen = []

    class Told(MeasuredTable):
        """Slowdown table that notes the run time of each target that the plan asks about."""

        def predict(self, target, co_runners):
            seen.append(target.runtime_s)
            return Estimate(1.3, 1.2, 1.4, 9, "1", "measured")

    service.decide_actions(now, known, dataclasses.replace(HOW, model=Told({})))
    assert set(seen) == {600.0}


def test_profiles_and_nodes_of_another_machine_than_the_models_are_named(slurm, folder, capsys):
    """Of two jobs one ran on the model's machine, the other one on one with half of its processors."""
    for name, n_cpus in (("F", 8), ("G", 4)):
        node = {"hostname": ["n1"], "cpu_model": ["Epyc"], "n_cpus": [n_cpus], "memory_bytes": [2.0**34]}
        write(folder, name, nodes=node)
    model = fit_kind(contention.World(8).training(), "elastic net")
    model_file.write(dataclasses.replace(model, machine=Machine("Epyc", 8, 2.0**34)), slurm / "model")
    assert look(folder, "--model", str(slurm / "model")) == 0
    told = capsys.readouterr()
    assert "to share" not in told.out
    ours, theirs = "Epyc, 8 CPUs, 16 GiB", "Epyc, 4 CPUs, 16 GiB"
    assert f"profiles in {folder} are from {theirs}, but the model is from {ours}" in told.err
    assert f"node n1 has 4 CPUs, but the model is from {ours}" in told.err
    known = job_history.ProfileHistory(str(folder), Machine("Epyc", 8, 2.0**34))
    known.update()
    jobs = {job.name: job for job in client.snapshot().jobs}
    assert [known.features_of(jobs[name], 0.0) is not None for name in "FG"] == [True, False]


def test_jobs_of_one_name_that_run_different_programs_are_not_known(slurm, folder):
    wait = {job.name: job for job in client.snapshot().jobs}["F"]
    commands = ("/opt/lmp -in a", "/usr/bin/lmp -in b", "other")
    for i, (command, is_known) in enumerate(zip(commands, (True, True, False), strict=True)):
        write(folder, "F", file=f"F{i}", id=str(i), command=command)
        known = job_history.ProfileHistory(str(folder))
        known.update()
        assert (known.features_of(wait, 0.0) is not None) == is_known, command


def test_a_look_asks_for_what_has_changed_only(slurm, folder, monkeypatch):
    wait = {job.name: job for job in client.snapshot().jobs}["F"]
    known = job_history.ProfileHistory(str(folder))

    def runtime_s():
        known.update()
        found = known.features_of(wait, 0.0)
        return found and found.runtime_s

    asked, ask = [], history._changed_rows
    monkeypatch.setattr(history, "_changed_rows", lambda *words: asked.append(ask(*words)) or asked[-1])
    alone = runtime_s()
    assert runtime_s() == alone and [len(rows) for rows, _ in asked] == [2]
    write(folder, "F", wall_s=600.0)
    assert runtime_s() == pytest.approx(10 * alone), "the file is another one now"
    write(folder, "F", file="later", id="8", wall_s=1200.0, start_unix_s=1.75e9)
    assert runtime_s() == pytest.approx(15 * alone)
    (folder / "F.h5").unlink()
    assert runtime_s() == pytest.approx(20 * alone)
    (folder / "later.h5").unlink()
    assert runtime_s() is None
    assert [len(rows) for rows, _ in asked] == [2, 1, 1, 0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_nobody_speaks_for_another_user(slurm, folder, capsys):
    stranger = pwd.getpwnam("nobody").pw_uid
    os.chown(folder / "G.h5", stranger, -1)
    write(folder, "F", file="forged", id="9", wall_s=5.0, start_unix_s=1.79e9)
    os.chown(folder / "forged.h5", stranger, -1)
    known = job_history.ProfileHistory(str(folder))
    known.update()
    jobs = {job.name: job for job in client.snapshot().jobs}
    assert known.features_of(jobs["G"], 0.0) is None
    assert known.features_of(jobs["F"], 0.0).runtime_s > 5
    theirs = dataclasses.replace(jobs["G"], user="nobody")
    assert known.features_of(theirs, 0.0) is None, "the file tells of another user"
    write(folder, "G", user="nobody")
    os.chown(folder / "G.h5", stranger, -1)
    known.update()
    assert known.features_of(theirs, 0.0) is not None
    assert look(folder) == 0
    assert (
        f"forged.h5 is from a job of root, but the file belongs to user {stranger}" in capsys.readouterr().err
    )


def met(folder, start_s=1.7e9):
    """F and G ran beside each other, and took half as long again."""
    write(folder, "F", file="met-F", id="142", beside="143", start_unix_s=start_s)
    write(folder, "G", file="met-G", id="143-0", beside="142", start_unix_s=start_s + 10)


def slowdowns(known, kinds):
    return {
        tuple(name for _, name, _ in pair): [round(each.value, 1) for each in found]
        for pair, found in known.measured_pairs(kinds).items()
    }


def test_what_jobs_suffered_beside_each_other_is_known_of_their_kinds(slurm, folder):
    met(folder)
    known = job_history.ProfileHistory(str(folder))
    known.update()
    both = {("F", "G"): [1.5], ("G", "F"): [1.5]}
    f, g = (job.kind for job in client.snapshot().jobs if job.name in "FG")
    assert slowdowns(known, {f, g}) == slowdowns(known, [g, f]) == both
    assert slowdowns(known, {f}) == {}
    os.unlink(folder / "met-G.h5")  # it says who 143 was
    known.update()
    assert slowdowns(known, {f, g}) == {}
    met(folder)
    known.update()
    assert slowdowns(known, {f, g}) == both
    write(folder, "G", file="met-G", id="143", start_unix_s=1.7e9 + 70)  # another job of that number
    known.update()
    assert slowdowns(known, {f, g}) == {}


@pytest.mark.parametrize(
    ("cpus", "by_layout"),
    [
        # G has two of eight processors and uses one: a job with four would have cost F twice as much.
        (("0-3", "4-5"), {"": (1.5, 1.5), "cores": (2.0, 1.5), "spread": (2.0, 1.5), "turns": ()}),
        (("0-3", "0-3"), {"": (1.5, 1.5), "cores": (), "spread": (), "turns": (1.5, 1.5)}),
        (("0-7", "0-7"), {"cores": (1.5, 1.5), "turns": (1.5, 1.5)}),  # not known
    ],
)
def test_slowdowns_of_another_layout_are_left_out(slurm, folder, cpus, by_layout):
    for name, beside, own, n_cores in zip("FG", ("143", "142"), cpus, (4, 1), strict=True):
        node = {"hostname": ["n1"], "cpu_model": ["Epyc"], "n_cpus": [8], "memory_bytes": [2.0**34]}
        facts = {"id": f"{285 - int(beside)}", "start_unix_s": 1.7e9, "n_cores": n_cores, "n_nodes": 1}
        write(folder, name, file=f"met-{name}", beside=beside, nodes=node | {"cpus": [own]}, **facts)
    f, g = (job.kind for job in client.snapshot().jobs if job.name in "FG")
    for layout, values in by_layout.items():
        known = job_history.ProfileHistory(str(folder), layout=layout)
        known.update()
        pairs = zip((("F", "G"), ("G", "F")), values, strict=bool(values))
        assert slowdowns(known, {f, g}) == {pair: [value] for pair, value in pairs}


def test_whom_a_job_met_is_not_known_where_two_say_it(slurm, folder):
    """A stranger wrote a profile with the other job's number before that one had ended."""
    met(folder)
    write(folder, "evil", user="nobody", id="143", start_unix_s=1.7e9, wall_s=3e5)
    known = job_history.ProfileHistory(str(folder))
    known.update()
    f, g = (job.kind for job in client.snapshot().jobs if job.name in "FG")
    of_g = {("G", "F"): [1.5]}
    assert slowdowns(known, {f, g, ("nobody", "evil", 4)}) == of_g
    (folder / "evil.h5").unlink()
    known.update()
    assert slowdowns(known, {f, g}) == of_g | {("F", "G"): [1.5]}


@pytest.mark.parametrize("wall_s", [0.0, 1.7e308])
def test_a_job_that_cannot_have_been_stops_nobody(slurm, folder, capsys, wall_s):
    """It is older than those by which its kind is known."""
    for i in range(job_history.N_RUNS + 1):
        write(folder, "F", file=f"F{i}", id=str(900 + i), start_unix_s=1.76e9 + 1000 * i)
    for i in range(2):
        facts = {"id": f"142-{i}", "n_ranks": 2 if wall_s > 1 else 4, "start_unix_s": 1.5e9 + i}
        write(folder, "F", file=f"bad{i}", beside="143", wall_s=wall_s, **facts)
    assert look(folder) == 0
    told = capsys.readouterr()
    assert "to share" in told.out
    assert "has impossible times or slowdowns: such jobs count as alone" in told.err


@pytest.mark.parametrize(("assumed", "is_before", "is_after"), [(2.5, False, True), (1.3, True, True)])
def test_what_was_measured_of_a_pair_counts_more_than_what_is_assumed(
    slurm, folder, capsys, assumed, is_before, is_after
):
    for is_paired in (is_before, is_after):
        assert look(folder, "--prior-slowdown", str(assumed)) == 0
        assert ("to share with" in capsys.readouterr().out) == is_paired
        met(folder)

"""`mpicoloc fit` and `mpicoloc predict`, on profiles of a simulated machine whose truth is known."""

import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import contention
import once
import pytest
from json_output import documented

pytest.importorskip("sklearn", reason="the extra schedule is not installed")

from mpicoloc.cli import main as cli
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import Machine, merged
from mpicoloc.pairing import model_file, terminal as report, terminal as report_model, training_sets
from mpicoloc.pairing.corun import Slowdown
from mpicoloc.pairing.features import TABLE_3, run_of
from mpicoloc.profile import hdf5

ROOT = Path(__file__).resolve().parents[3]
N_PROGRAMS = 6
LIMIT_S = 250
QUICK = ("--trials", "0", "--kind", "two factors", "--kind", "elastic net")


def simulated_jobs():
    spec = importlib.util.spec_from_file_location("simulated_jobs", ROOT / "examples" / "simulated_jobs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(folder):
    """Profiles, the model fitted to them, and what was said."""
    folder.mkdir()
    for name, profile in simulated_jobs().simulated(N_PROGRAMS):
        hdf5.write(profile, folder / f"{name}.h5")
    (folder / "broken.h5").write_bytes(b"no profile")
    return call(folder, "fit", "--profiles", ".", "--out", "m", "--save-training", "t.npz", "--json", *QUICK)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of its own with what is made once in a run, and what was said."""
    first = once.folder(tmp_path_factory) / "fitted"
    said = once.value(first.with_suffix(".said"), lambda: make(first))
    return shutil.copytree(first, tmp_path_factory.mktemp("profiles") / "own"), said


@pytest.fixture(scope="module")
def folder(made):
    return made[0]


@pytest.fixture(scope="module")
def fitted(made):
    return made[1]


def call(folder, *words):
    command = [sys.executable, "-m", "mpicoloc", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def complaint(capsys, *words):
    code = cli.main([*words])
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return code, text


def test_fit_learns_from_profiles_and_says_what_it_left_out(folder, fitted):
    assert fitted.returncode == 0, fitted.stderr
    n_pairs = N_PROGRAMS * (N_PROGRAMS + 1)
    read = f"{n_pairs + N_PROGRAMS} profiles: {n_pairs} slowdowns beside one other job, {N_PROGRAMS} alone"
    assert read in fitted.stderr
    assert "broken.h5 is not an HDF5 file" in fitted.stderr
    card = json.loads(fitted.stdout)
    assert card["training"]["sources"] == {"production": n_pairs}
    assert card["machine"]["cpu_model"] == "a simulated processor"
    assert {"mpicoloc", "sklearn"} <= set(card["versions"])
    assert card["scores"][0]["kind"] == card["kind"]
    assert all(feature["meaning"] and feature["unit"] for feature in card["features"])


def test_fit_looks_at_table_3_only_where_told(folder, fitted):
    words = ("--training", "t.npz", "--features", "table3", "--out", "generic", "--json", *QUICK)
    card = json.loads(call(folder, "fit", *words).stdout)
    names = {feature["name"] for feature in card["features"]}
    assert names <= set(TABLE_3)
    assert not {feature["name"] for feature in json.loads(fitted.stdout)["features"]} <= set(TABLE_3)


def test_predict_tells_of_each_pair_and_pair_plans_with_it(folder, fitted):
    done = call(folder, "predict", "--model", "m", *(f"alone-{i}.h5" for i in range(4)), "--json")
    told = json.loads(done.stdout)
    found = {(row["target"], row["co_runner"]): row["slowdown"] for row in told["slowdowns"]}
    assert len(found) == 12
    assert all(1 <= row["low"] <= row["value"] <= row["high"] for row in found.values())
    assert [job["program"] for job in told["jobs"]] == ["app0", "app1", "app2", "app3"]
    (folder / "queue.json").write_text(done.stdout)
    plan = call(folder, "pair", "queue.json", "--slowdowns", "queue.json", "--json")
    assert plan.returncode == 0, plan.stderr
    assert all(f"alone-{i}" in plan.stdout for i in range(4))


def test_measured_and_predicted_slowdowns_have_the_documented_shape(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    wanted = documented("predict")
    assert cli.main(["predict", "--model", "m", "alone-0.h5", "alone-1.h5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    measured = report.campaign_json(
        [Slowdown("a", "b", Estimate(1.2, 1.0, 1.5, 4, "1", "co-run"))], {"a": "x x4"}, "cores"
    )
    assert told.keys() == wanted.keys()
    assert told["jobs"][0].keys() == wanted["jobs"][0].keys()
    for found in (told, measured):
        for row in found["slowdowns"]:
            assert row.keys() == wanted["slowdowns"][0].keys()
            assert row["slowdown"].keys() == wanted["slowdowns"][0]["slowdown"].keys()


def test_predict_tells_of_several_co_runners(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert cli.main(["predict", "--model", "m", "--together", *(f"alone-{i}.h5" for i in range(4))]) == 0
    assert "alone-1 app1, alone-2 app2, alone-3 app3" in " ".join(capsys.readouterr().out.split())


def test_the_card_is_for_people(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert cli.main(["predict", "--model", "m", "--card"]) == 0
    text = capsys.readouterr().out
    assert "a simulated processor, 4 CPUs, 16 GiB" in text
    assert all(name in text for name in ("intensity", "(DI)", "(chosen)", "error new", "cost new", "-v"))
    assert "R2" not in text and "burst_s_mean" not in text and max(map(len, text.splitlines())) <= 80
    assert cli.main(["predict", "--model", "m", "--card", "-v"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("R2 new", "under new", "inside new", "error new", "burst_s_mean"))


@pytest.mark.parametrize(
    ("is_noise", "said"), [(True, "'intensity (DI)' came first by luck"), (False, "the baseline 'intensity")]
)
def test_a_baseline_that_is_kept_says_why(is_noise, said, capsys, tmp_path):
    # Noise in which one that looks at a feature happens to be first.
    world = contention.World(6, seed=4 if is_noise else 0, noise=0.05)
    world.true = lambda i, j: 1.3 if is_noise else 1 + world.pressure[i] + world.pressure[j]
    training_sets.write_file(world.training(), tmp_path / "t.npz")
    words = ["--training", str(tmp_path / "t.npz"), "--kind", "two factors", "--trials", "0"]
    assert cli.main(["fit", *words, "--out", str(tmp_path / "m")]) == 0
    assert said in capsys.readouterr().err


def test_intervals_that_hold_less_than_they_should_are_told(folder, fitted, capsys):
    card = model_file.card(model_file.read(folder / "m"))
    for held, is_told in ((0.873, True), (0.95, False), (None, False)):
        report_model.show_card({**card, "held": held})
        assert ("hold 87.3 % of new programs" in capsys.readouterr().out) == is_told


def test_a_training_set_grows(folder, fitted, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    (tmp_path / "new").mkdir()
    for name in ("0-beside-1.h5", "1-beside-0.h5", "alone-0.h5", "alone-1.h5"):
        old = hdf5.read(folder / name)
        job = dataclasses.replace(old.job, start_unix_s=1.9e9)
        hdf5.write(dataclasses.replace(old, job=job), tmp_path / "new" / name)
    words = ["fit", "--training", "t.npz", "--profiles", str(tmp_path / "new"), *QUICK]
    assert cli.main([*words, "--out", str(tmp_path / "m"), "--save-training", str(tmp_path / "t.npz")]) == 0
    n_before, n_after = (len(training_sets.read_file(path).rows) for path in ("t.npz", tmp_path / "t.npz"))
    assert n_after == n_before + 2


def test_profiles_of_jobs_on_the_same_processors_are_not_mixed_with_others(capsys, tmp_path):
    for name, profile in simulated_jobs().simulated(N_PROGRAMS):
        one, _, other = name.partition("-beside-")
        other = one if other == "itself" else other
        if other:
            has_second_half = (int(one) + int(other)) % 2 and one > other
            nodes = profile.tables["nodes"].copy()
            nodes["cpus"] = "2-3" if has_second_half else "0-1"
            profile = dataclasses.replace(profile, tables={**profile.tables, "nodes": nodes})
        hdf5.write(profile, tmp_path / f"{name}.h5")
    words = ["fit", "--profiles", str(tmp_path), "--out", str(tmp_path / "m")]
    code, text = complaint(capsys, *words)
    assert code == 3 and "18 slowdowns of jobs on separate processors and 24 of jobs" in text
    code, text = complaint(capsys, *words, "--layout", "near")
    assert code == 2 and "--layout must be turns or cores, got 'near'" in text
    assert cli.main([*words, *QUICK, "--layout", "turns", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["layout"] == "turns"
    assert "24 slowdowns beside one other job, 6 alone, 18 of another layout" in told.err


def test_what_is_given_twice_counts_once(folder, fitted, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    words = ["fit", "--training", "t.npz", "--profiles", ".", "--profiles", ".", "--training", "t.npz"]
    assert cli.main([*words, *QUICK, "--out", str(tmp_path / "m"), "--json"]) == 0
    told = capsys.readouterr()
    n_rows = N_PROGRAMS * (N_PROGRAMS + 1)
    assert f"{2 * n_rows} slowdowns were given more than once, but count only once" in told.err
    assert json.loads(told.out)["training"]["sources"] == {"production": n_rows}


def test_the_pairing_service_refuses_a_model_of_jobs_on_processors_of_their_own(
    folder, fitted, capsys, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    learnt = training_sets.read_file(folder / "t.npz")
    training_sets.write_file(dataclasses.replace(learnt, layout="cores"), "t.npz")
    assert cli.main(["fit", "--training", "t.npz", *QUICK, "--out", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layout"] == "cores"
    assert cli.main(["predict", "--model", "m", "--card"]) == 0
    assert "each job on processors of its own" in " ".join(capsys.readouterr().out.split())
    code, text = complaint(capsys, "predict", "--model", "m", "--layout", "turns", str(folder / "alone-0.h5"))
    assert code == 2 and "m is of the layout cores, so its slowdowns do not apply to turns" in text
    monkeypatch.setenv("PATH", "")  # without Slurm the service ends at once
    for model, code in (("m", 2), (str(folder / "m"), 4)):
        found, text = complaint(capsys, "pair", "--watch", "--once", "--profiles", ".", "--model", model)
        assert found == code
        assert ("m is of the layout cores, so its slowdowns do not apply to turns" in text) == (code == 2)


def test_a_profile_of_another_machine_is_refused(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    other = dataclasses.replace(model_file.read("m"), machine=Machine("POWER9", 44, 2.0**38))
    model_file.write(other, "other")
    code, text = complaint(capsys, "predict", "--model", "other", "alone-0.h5")
    assert code == 3
    assert "alone-0.h5 was measured on a simulated processor, 4 CPUs, 16 GiB" in text


def test_a_model_that_is_none_is_one_line(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    whole = (folder / "m").read_bytes()
    (folder / "cut").write_bytes(whole[: len(whole) // 2])
    for name, words in (("cut", "damaged"), ("alone-0.h5", "damaged or is not"), ("none", "no such file")):
        code, text = complaint(capsys, "predict", "--model", name, "alone-0.h5")
        assert code == 3
        assert words in text
    code, text = complaint(capsys, "predict", "--model", "m", "broken.h5")
    assert (code, "broken.h5 is not an HDF5 file" in text) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["fit", "--out", "m"], 2, "nothing to learn from"),
        (["fit", "--out", "m", "--profiles", ".", "--trials", "-1"], 2, "--trials must be a whole number"),
        (["fit", "--out", "m", "--training", "{t}", "--kind", "oracle"], 2, "--kind must be one of"),
        (["fit", "--out", "m", "--profiles", "nowhere"], 3, "no such folder: nowhere"),
        (["fit", "--out", "m", "--campaign", "nowhere"], 3, "no campaign in nowhere"),
        (["fit", "--out", "m", "--training", "nowhere"], 3, "no such file: nowhere"),
        (["predict", "--model", "m"], 2, "give either the profiles of the jobs to predict"),
    ],
)
def test_a_wrong_call_is_one_line(words, code, said, folder, fitted, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = [word.format(t=folder / "t.npz") for word in words]
    found, text = complaint(capsys, *words)
    assert found == code
    assert said in text


def test_too_few_slowdowns_are_told(folder, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few").mkdir()
    assert cli.main(["fit", "--profiles", "few", "--out", "m"]) == 3
    assert "0 slowdowns of 0 programs are too few for a model" in capsys.readouterr().err


def test_without_scikit_learn_the_remedy_is_told(folder, fitted, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "mpicoloc.pairing.training.fitting", raising=False)
    code, text = complaint(capsys, "fit", "--training", "t.npz", "--out", "m2")
    assert code == 4
    assert "[schedule]'" in text


def test_a_campaign_is_learnt_from(tmp_path):
    """Runs as `mpicoloc campaign` notes them: b is restarted beside a."""
    jobs = simulated_jobs()
    use, need = [0.9, 0.5], [1.0, 0.5]
    (tmp_path / "profiles").mkdir()
    lines, start = [], 1.0

    def noted(names, i_round, walls):
        nonlocal start
        runs = []
        first = i_round % 2 if len(names) == 1 else 0
        for place, (name, wall_s) in enumerate(zip(names, walls, strict=True), first):
            path = f"profiles/{len(lines)}-{place}.h5"
            hdf5.write(jobs.profile(f"{len(lines)}", "ab".index(name), use, need, wall_s), tmp_path / path)
            told = {"program": name, "place": place, "begin_unix_s": start, "wall_s": wall_s}
            runs.append(told | {"is_whole": True, "profile": path})
        made = {"round": i_round, "names": names, "digests": {}, "runs": runs, "took_s": max(walls)}
        lines.append(json.dumps(made | {"places": [[0], [1]], "meter": "none"}))
        start += 1e3

    for i_round, scatter in enumerate((0.99, 1.01)):
        noted(["a"], i_round, [100.0 * scatter])
        noted(["b"], i_round, [100.0 / scatter])
        # The places change, and the second one is slower.
        walls = [140.0 * scatter, 140.0]
        noted(["ab", "ba"][i_round], i_round, [walls, walls[::-1]][i_round])
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    found = training_sets.from_campaign(str(tmp_path))
    pairs = {(found.jobs[row["target"]].id, found.jobs[row["co_runner"]].id): row for row in found.rows}
    assert set(pairs) == {("a", "b"), ("b", "a")}
    assert pairs["a", "b"]["slowdown"] == pytest.approx(1.4, rel=0.01)
    assert pairs["a", "b"]["source"] == b"campaign"
    job = found.jobs[pairs["a", "b"]["target"]]
    assert (job.id, job.program) == ("a", "app0")
    assert job.runtime_s == pytest.approx(100, rel=0.01)
    assert job.values["sent_bps_mean"] == pytest.approx(1e8 * use[0], rel=0.01)
    # The same programs met in production.
    estimate = Estimate(1.4, 1.3, 1.5, 40, "1", "burst")
    shared = [
        jobs.profile("1", 0, use, need, 100.0, estimate, "2"),
        jobs.profile("2", 1, use, need, 100.0, estimate, "1"),
        *(jobs.profile(f"alone-{i}", i, use, need, 100.0) for i in range(2)),
    ]
    production, _ = training_sets.from_production(list(map(run_of, shared)))
    both = merged([found, production, found])
    assert len(both.rows) == 4
    assert (found.layout, production.layout, both.layout) == ("cores", "", "cores")
    assert both.programs == ["app0", "app1"]
    # Profiles of a campaign that is given are not given once more.
    assert training_sets.profile_paths([str(tmp_path)] * 2, []) == sorted(
        map(str, (tmp_path / "profiles").iterdir())
    )
    assert training_sets.profile_paths([str(tmp_path)], [str(tmp_path)]) == []

"""`mpicoloc price`, `sign` and `verify` as a user calls them."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import sample
from json_output import documented, keys

from mpicoloc.bill.repricing import SCHEMES
from mpicoloc.cli.main import main
from mpicoloc.profile import hdf5


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Profiles of a shared run, of one that was not measured, and of a run alone."""
    monkeypatch.chdir(tmp_path)
    shared = sample.profile()
    hdf5.write(shared, "shared.h5")
    hdf5.write(sample.profile(n_shutters=2), "unmeasured.h5")
    alone = sample.profile(shared_s=0.0)
    hdf5.write(replace(alone, job=sample.job(wall_s=40.0)), "solo.h5")
    hdf5.write(replace(alone, job=sample.job(n_ranks=3)), "other.h5")
    (tmp_path / "site.key").write_text("k" * 32)
    (tmp_path / "site.key").chmod(0o600)
    (tmp_path / "open.key").write_text("k" * 32)
    (tmp_path / "open.key").chmod(0o644)
    return tmp_path


@pytest.fixture
def prices(files, capsys):
    def call(*argv):
        assert main(["price", *argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def test_a_price_is_that_of_the_profile_with_the_documented_keys(prices, files):
    assert keys(prices("shared.h5")) == keys(documented("price"))
    (entry,) = prices("shared.h5")["prices"]
    profile = hdf5.read("shared.h5")
    assert entry["price_su"]["runtime"]["value"] == pytest.approx(profile.price.runtime_su)
    for end, name in (("value", "fair_su"), ("low", "fair_low_su"), ("high", "fair_high_su")):
        assert entry["price_su"]["fair"][end] == pytest.approx(getattr(profile.price, name))
    assert entry["price_su"]["oracle"] is None and entry["true_slowdown"] is None
    assert entry["discount_frac"]["fair"] == pytest.approx(profile.price.discount_frac)


def test_another_rate_and_another_function(prices):
    (entry,) = prices("shared.h5", "--rate-su", "2.5", "--pricing", "runtime")["prices"]
    assert (entry["rate_su"], entry["pricing"]) == (2.5, "runtime")
    assert entry["price_su"]["fair"]["value"] == pytest.approx(2.5 * 2 * 60 / 3600)
    assert entry["discount_frac"]["fair"] == 0.0


@pytest.mark.parametrize(("memory", "factor"), [("1GB", 1), ("16GB", 1), ("24GB", 1.5), ("20GB", 1.25)])
def test_a_job_pays_for_its_share_of_memory_if_it_is_larger(prices, files, memory, factor, capsys):
    """Two of a node's eight cores, and of 64 GB."""
    with_size("sized.h5")
    (entry,) = prices("sized.h5", "--memory", memory)["prices"]
    assert (entry["job"]["n_cores"], entry["rate_su"]) == (2, factor)
    assert entry["price_su"]["runtime"]["value"] == pytest.approx(factor * 2 * 60 / 3600)
    words = ["--ledger", "books", "--json"]
    assert main(["ledger", "open", "lab", "--grant", "10", *words]) == 0
    charge = ["charge", "lab", "sized.h5", "--memory", memory, "--rate-su", "1", "--pricing", "runtime"]
    assert main(["ledger", *charge, *words]) == 0
    capsys.readouterr()
    assert main(["ledger", "statement", "lab", *words]) == 0
    facts = json.loads(capsys.readouterr().out)["lines"][-1]["facts"]
    assert (facts["n_cores"], facts["billing_per_cpu"]) == (2, factor)
    assert facts["runtime_su"] == entry["price_su"]["runtime"]["value"]


def test_memory_that_no_node_has_is_refused(files, capsys):
    with_size("sized.h5")
    assert main(["price", "sized.h5", "--memory", "65GB"]) == 3
    assert "--memory is 65,000,000,000 bytes, but a node has 64,000,000,000" in capsys.readouterr().err
    assert main(["price", "shared.h5", "--memory", "1GB"]) == 3
    assert "the profile does not have the memory of its nodes: leave out --memory" in capsys.readouterr().err


def with_size(path):
    profile = hdf5.read("shared.h5")
    nodes = profile.tables["nodes"].copy()
    nodes["n_cpus"], nodes["memory_bytes"] = 8, 64e9
    hdf5.write(replace(profile, tables={**profile.tables, "nodes": nodes}), path)


def test_variables_count_as_they_do_for_jobs_and_for_the_ledger(prices, monkeypatch):
    monkeypatch.setenv("MPICOLOC_RATE_SU", "2.5")
    monkeypatch.setenv("MPICOLOC_PRICING", "runtime")
    assert prices("shared.h5") == prices("shared.h5", "--rate-su", "2.5", "--pricing", "runtime")
    (entry,) = prices("shared.h5", "--rate-su", "3")["prices"]
    assert (entry["rate_su"], entry["pricing"]) == (3.0, "runtime"), "a flag comes before a variable"
    monkeypatch.setenv("MPICOLOC_RATE_SU", "")
    monkeypatch.delenv("MPICOLOC_PRICING")
    (entry,) = prices("shared.h5")["prices"]
    assert (entry["rate_su"], entry["pricing"]) == (1.0, "fair"), "else what the profile says"


def test_a_bad_variable_is_named(files, capsys, monkeypatch):
    monkeypatch.setenv("MPICOLOC_RATE_SU", "cheap")
    assert main(["price", "shared.h5"]) == 2
    assert "MPICOLOC_RATE_SU must be a number (SU per core and hour), got 'cheap'" in capsys.readouterr().err


@pytest.mark.parametrize("truth", [("--solo", "40"), ("--solo", "40.0"), ("--solo", "solo.h5")])
def test_the_oracle_knows_the_run_alone(prices, truth):
    (entry,) = prices("shared.h5", *truth)["prices"]
    assert entry["true_slowdown"] == pytest.approx(1.5)
    assert entry["price_su"]["oracle"]["value"] == pytest.approx(2 * 60 / 3600 / 1.5**2)
    assert entry["relative_frac"]["runtime"]["value"] == pytest.approx(1.5)
    assert entry["relative_frac"]["oracle"]["value"] == pytest.approx(1 / 1.5)


def test_advice_has_the_prices_of_this_call(files, capsys):
    profile = hdf5.read("shared.h5")
    nodes = profile.tables["nodes"].copy()
    nodes["n_cpus"] = 8
    hdf5.write(replace(profile, tables={**profile.tables, "nodes": nodes}), "half.h5")
    assert main(["price", "half.h5", "--rate-su", "10"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "advice: if time matters more than the price, ask for whole nodes" in words
    whole_su = 10 * 8 / 3600 * profile.job.wall_s / profile.interference.slowdown.value
    assert f"whole nodes (8 processors) would cost {whole_su:.4g} SU at the same rate" in words
    assert words.endswith(f"the job's 2 cores cost {10 * profile.price.fair_su:.4g} SU")
    assert main(["price", "half.h5", "--solo", "59"]) == 0
    assert "advice" not in capsys.readouterr().out, "the true slowdown is another"
    assert main(["price", "solo.h5", "half.h5"]) == 0
    assert "advice for job 42: if time matters more" in " ".join(capsys.readouterr().out.split())


def test_what_was_not_measured_is_null(prices):
    (entry,) = prices("unmeasured.h5")["prices"]
    assert entry["slowdown"] is entry["price_su"]["fair"] is entry["price_su"]["solo"] is None
    assert entry["discount_frac"] == {"fair": None, "oracle": None}
    assert set(entry["relative_frac"].values()) == {None}
    assert entry["charged_su"] == pytest.approx(2 * 60 / 3600)


def test_the_distribution_is_over_profiles(prices):
    found = prices("shared.h5", "unmeasured.h5", "--solo", "40", "--solo", "48")["distribution"]
    assert found["runtime"] == {"mean": pytest.approx(1.375), "min": 1.25, "max": 1.5, "n": 2}
    assert found["fair"]["n"] == 1
    assert set(found) == set(SCHEMES)


def test_a_person_sees_a_dash_for_what_is_not_known(files, capsys):
    assert main(["price", "unmeasured.h5"]) == 0
    text = capsys.readouterr().out
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line.strip()}
    assert rows["fair"][-3:] == rows["oracle"][-3:] == ["-", "-", "-"]
    assert "to charge: 0.0333333 SU" in text
    assert main(["price", "shared.h5", "unmeasured.h5", "--solo", "solo.h5"]) == 0
    text = capsys.readouterr().out
    assert "mean" in text and "150.0%" in text


WRONG = [
    (["price"], 2, "PROFILE"),
    (["price", "missing.h5"], 3, "missing.h5"),
    (["price", "site.key"], 3, "not an HDF5 file"),
    (["price", "shared.h5", "--rate-su", "-1"], 2, "--rate-su"),
    (["price", "shared.h5", "--pricing", "barter"], 2, "--pricing"),
    (["price", "shared.h5", "--pricing", "no_such_module:f"], 2, "no_such_module"),
    (["price", "shared.h5", "--solo", "0"], 2, "--solo"),
    (["price", "shared.h5", "--solo", "-3"], 2, "--solo"),
    (["price", "shared.h5", "--solo", "40", "--solo", "41"], 2, "given once"),
    (["price", "shared.h5", "--solo", "shared.h5"], 3, "not a solo run"),
    (["price", "shared.h5", "--solo", "other.h5"], 3, "give a run of the same job"),
    (["price", "shared.h5", "--solo", "missing.h5"], 3, "missing.h5"),
    (["sign", "shared.h5"], 2, "--key-file is missing"),
    (["sign", "shared.h5", "--key-file", "missing.key"], 2, "missing.key"),
    (["sign", "site.key", "--key-file", "site.key"], 3, "not an HDF5 file"),
    (["sign", "shared.h5", "--key-file", "site.key", "--out", "no/folder/x.h5"], 4, "no/folder/x.h5"),
    (["sign", "shared.h5", "--key-file", "open.key"], 4, "open.key"),
    (["verify", "shared.h5"], 2, "--key-file is missing"),
]


@pytest.mark.parametrize(("argv", "code", "words"), WRONG, ids=[" ".join(row[0]) for row in WRONG])
def test_a_wrong_call_is_one_line(files, capsys, argv, code, words):
    assert main(argv) == code
    out = capsys.readouterr()
    assert out.out == "" and out.err.count("\n") == 1 and words in out.err


def test_a_profile_cannot_make_the_operator_run_code(files, capsys):
    """The name of the price function in a profile is its writer's word."""
    (files / "site_trap.py").write_text("open('sprung', 'w')\n\ndef f(*_):\n    return 0.0\n")
    profile = hdf5.read("shared.h5")
    name = f"{files}/site_trap.py:f"
    hdf5.write(replace(profile, price=replace(profile.price, pricing=name)), "trap.h5")
    assert main(["price", "trap.h5"]) == 2
    assert not (files / "sprung").exists()
    assert f"--pricing {name}" in capsys.readouterr().err
    assert main(["price", "trap.h5", "--pricing", name]) == 0


def test_sign_and_verify(files, capsys, monkeypatch):
    assert main(["verify", "shared.h5", "--key-file", "site.key"]) == 1
    assert "unsigned" in capsys.readouterr().out
    assert main(["sign", "shared.h5", "--key-file", "site.key", "--out", "signed.h5"]) == 0
    assert capsys.readouterr().out == "signed.h5\n"
    monkeypatch.setenv("MPICOLOC_KEY_FILE", "site.key")
    assert main(["verify", "signed.h5", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["is_good"] and answer["reason"] is None and answer["job"] == "42"
    assert main(["verify", "shared.h5", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["is_good"] and answer["signature"] is None
    for name, has_row in (("signed.h5", True), ("shared.h5", False)):
        assert main(["show", name]) == 0
        assert ("signed with key" in capsys.readouterr().out) == has_row


def test_help_needs_no_large_import():
    code = "import sys; from mpicoloc.cli import main; from mpicoloc.bill import sign, verify;"
    code += "main.build_parser('price');"
    code += "print(*{'h5py', 'pandas', 'sqlalchemy', 'numpy'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"

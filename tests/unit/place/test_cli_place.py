"""mpicoloc place, and predict and pair by curves: answers, and one clear line for what is wrong."""

import json

import pytest
from json_output import documented, without_meaning

from mpicoloc.cli import main

JOBS = "id,program,n_nodes\na,lu,4\nb,cg,4\nc,ep,4\nd,mg,4\n"
CURVES = """\
program,score,level_1,level_2,level_4,level_6,level_8,policy
lu,4.6,1.02,1.05,1.18,1.32,1.42,n-max
cg,3.9,1.05,1.12,1.29,1.45,1.6,n-plus-1-max
ep,0.4,1,1,1.01,1.01,1.02,all-max
mg,5,1.06,1.14,1.36,1.57,1.75,interpolate
"""
PAIRS = "target,co_runner,slowdown,low,high\n" + "".join(
    f"{one},{other},{1.2 if 'mg' in (one, other) else 1.1},1.05,1.4\n"
    for one in ("lu", "cg", "ep", "mg")
    for other in ("lu", "cg", "ep", "mg")
)
FULL = ("jobs.csv", "--curves", "curves.csv", "--nodes", "8", "--slots", "2")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"jobs.csv": JOBS, "curves.csv": CURVES, "pairs.csv": PAIRS}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def placed(capsys, *words):
    assert main.main(["place", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *words):
    code = main.main(list(words))
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0
    return code, error


def test_the_answer_has_the_keys_that_others_read(folder, capsys):
    found = placed(capsys, *FULL, "--seed", "3")
    assert found["objective"] == pytest.approx(sum(one["value"] for one in found["slowdowns"].values()))
    assert found["bound"] == found["objective"] and found["gap_frac"] == 0 and found["wall_s"] >= 0
    assert {name: len(set(nodes)) for name, nodes in found["placement"].items()} == dict.fromkeys("abcd", 4)
    used = [node for nodes in found["placement"].values() for node in nodes]
    assert max(used.count(node) for node in used) <= 2 and set(used) <= set(range(8))
    wanted = documented("place")
    assert list(found) == list(wanted) and list(found["slowdowns"]["a"]) == list(wanted["slowdowns"]["a"])
    assert not without_meaning("place", found)


def test_no_other_way_to_meet_is_better(folder, capsys):
    """The fifteen ways of four jobs that fill eight nodes, by hand: lu and cg together, ep and mg."""
    found = placed(capsys, *FULL)
    lu, cg, ep, mg = (found["slowdowns"][name]["value"] for name in "abcd")
    assert lu == pytest.approx(1.05 + 0.13 * 1.9 / 2)
    assert cg == pytest.approx(1.29 + 0.16 * 0.6 / 2)
    assert ep == pytest.approx(1.01)
    assert mg == pytest.approx(1.06 * 0.4 + 0.6)


def test_annealing_has_a_bound_and_the_same_seed_the_same_answer(folder, capsys):
    rows = "".join(f"j{i},{('lu', 'cg', 'ep', 'mg')[i % 4]},4\n" for i in range(40))
    (folder / "jobs.csv").write_text(f"id,program,n_nodes\n{rows}")
    words = ("jobs.csv", "--curves", "curves.csv", "--nodes", "80", "--slots", "2", "--sweeps", "5")
    first, again = (placed(capsys, *words, "--seed", "7") for _ in range(2))
    assert first["placement"] == again["placement"]
    assert first["bound"] <= first["objective"] and first["method"] == "annealing"
    assert first["gap_frac"] == pytest.approx(first["objective"] / first["bound"] - 1)


def test_equal_nodes_are_chosen_by_their_links(folder, capsys):
    (folder / "used.csv").write_text("program,level_1\nlu,0.6\ncg,0.5\nep,0.1\nmg,0.1\n")
    words = ("--topology", "XGFT(2;4,2;1,1)", "--utilisation", "used.csv")
    found, plain = placed(capsys, *FULL, *words), placed(capsys, *FULL)
    assert (found["n_link_pairs"], plain["n_link_pairs"]) == (0, None)
    assert found["objective"] == plain["objective"]
    switches = {name: {node // 4 for node in nodes} for name, nodes in found["placement"].items()}
    assert all(len(one) == 1 for one in switches.values())
    assert main.main(["place", *FULL, *words]) == 0
    assert "0 pairs of jobs share links" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--utilisation", "used.csv"), 2, "give --topology, too"),
        (("--topology", "XGFT(1;4;1)"), 2, "--nodes 8: the topology has 4 hosts"),
        (("--topology", "XGFT(2;4,2;1,1)", "--utilisation", "none.csv"), 2, "none.csv cannot be read"),
    ],
)
def test_what_is_wrong_with_a_topology_is_one_line(folder, capsys, words, code, said):
    found, error = refused(capsys, "place", *FULL, *words)
    assert found == code
    assert said in error


@pytest.mark.parametrize("objective", ["speedup", "worst"])
def test_other_objectives(folder, capsys, objective):
    found = placed(capsys, *FULL, "--objective", objective)
    values = [one["value"] for one in found["slowdowns"].values()]
    expected = max(values) if objective == "worst" else sum(1 / value for value in values)
    assert found["objective"] == pytest.approx(expected)


def test_conditions_are_kept(folder, capsys):
    found = placed(capsys, "jobs.csv", "--curves", "curves.csv", "--nodes", "12", "--apart", "a,b",
                   "--whole", "d", "--at-most", "c=1.01")  # fmt: skip
    nodes = {name: set(where) for name, where in found["placement"].items()}
    assert not nodes["a"] & nodes["b"]
    assert not nodes["d"] & (nodes["a"] | nodes["b"] | nodes["c"])
    assert found["slowdowns"]["d"]["value"] == 1 and found["slowdowns"]["c"]["value"] <= 1.01


def test_measured_pairs_serve_as_well(folder, capsys):
    found = placed(capsys, "jobs.csv", "--slowdowns", "pairs.csv", "--nodes", "8")
    assert found["objective"] == pytest.approx(2 * 1.2 + 2 * 1.1)
    one = found["slowdowns"]["d"]
    assert (one["low"], one["value"], one["high"]) == pytest.approx((1.05, 1.2, 1.4))


def test_a_matrix_tells_how_few_disturbed_nodes_count(folder, capsys):
    (folder / "jobs.csv").write_text("id,program,n_nodes\na,lu,2\nb,mg,1\n")
    words = ("jobs.csv", "--curves", "curves.csv", "--nodes", "2", "--slots", "2")
    alone = placed(capsys, *words)["slowdowns"]["a"]["value"]
    (folder / "t.csv").write_text("program,level,nodes_1,nodes_2\n" + "".join(
        f"lu,{level},{1 + 0.01 * level},{1 + 0.05 * level}\n" for level in range(1, 9)))  # fmt: skip
    one = placed(capsys, *words, "--propagation", "t.csv")["slowdowns"]["a"]["value"]
    assert one == pytest.approx(1.05) and alone == pytest.approx(1.25)


def test_every_job_gets_its_files_and_the_placement_is_drawn(folder, capsys):
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    words = ("jobs.csv", "--curves", "curves.csv", "--hosts", "n[0-7]", "--files", "hosts")
    found = placed(capsys, *words, "--ranks-per-node", "2", "--figures", "pictures")
    assert found["placement"]["a"] == (folder / "hosts" / "a.nodelist").read_text().strip().split(",")
    assert len((folder / "hosts" / "b.rankfile").read_text().splitlines()) == 8
    assert (folder / "hosts" / "c.openmpi").read_text().startswith(f"{found['placement']['c'][0]} slots=2")
    assert {path.suffix for path in (folder / "pictures").iterdir()} == {".svg", ".png", ".csv"}
    rows = (folder / "pictures" / "placement.csv").read_text().splitlines()
    assert rows[0] == "node,slot,job,program,slowdown" and len(rows) == 17


def test_the_table_names_jobs_and_nodes(folder, capsys):
    assert main.main(["place", *FULL]) == 0
    out = capsys.readouterr().out
    assert "0, 1, 2, 3" in out and "the best of all placements" in out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--nodes", "7"), 3, "the jobs need 16 slots, but 7 nodes with 2 slots each have 14"),
        (("--nodes", "3"), 3, "job 'a' needs 4 nodes, but there are 3"),
        ((), 2, "give either --nodes N or --hosts"),
        (("--nodes", "0"), 2, "--nodes must be a whole number of at least 1"),
        (("--hosts", "n[0-6],n3"), 2, "--hosts names n3 twice"),
        (("--nodes", "8", "--objective", "best"), 2, "unknown objective 'best'"),
        (("--nodes", "8", "--apart", "a"), 2, "--apart 'a' must name two jobs"),
        (("--nodes", "8", "--apart", "a,x"), 2, "a constraint names job 'x'"),
        (("--nodes", "8", "--at-most", "a"), 2, "--at-most 'a' must have the form JOB=X"),
        (("--nodes", "8", "--at-most", "a=0.5"), 2, "slowdown of job 'a' must be at least 1, got 0.5"),
        (("--nodes", "8", "--at-most", "a=1", "--at-most", "b=1"), 3, "no placement meets all constraints"),
        (("--nodes", "8", "--whole", "a"), 2, "and the others at least 6 more, but there are 8"),
        (("--nodes", "8", "--files", "x"), 2, "--files needs the names of the nodes"),
        (("--nodes", "8", "--slowdowns", "pairs.csv"), 2, "give either --curves FILE or --slowdowns FILE"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_in_one_line(folder, capsys, words, code, told):
    found = refused(capsys, "place", "jobs.csv", "--curves", "curves.csv", *words)
    assert found[0] == code and told in found[1]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--slowdowns", "pairs.csv", "--propagation", "m.csv"), 2, "--propagation needs --curves"),
        (("--curves", "endless.csv"), 3, "row 1: score must be a finite number, got 'inf'"),
        (("--curves", "curves.csv", "--files", "x", "--ranks-per-node", "0"), 2, "--ranks-per-node must be"),
    ],
)
def test_bad_flags_and_files_are_refused_before_the_search(folder, capsys, words, code, told):
    (folder / "endless.csv").write_text(CURVES.replace("4.6", "inf"))
    found = refused(capsys, "place", "jobs.csv", "--hosts", "n[0-7]", *words)
    assert found[0] == code and told in found[1], found


def test_curves_without_intervals_give_none(folder, capsys):
    """If nothing tells how uncertain a number is, it has no interval, rather than one without a width."""
    found = placed(capsys, *FULL)["slowdowns"].values()
    assert [(one["low"], one["high"]) for one in found] == [(None, None)] * 4
    for words in (["place", *FULL], ["predict", "--curves", "curves.csv", "lu", "cg"]):
        assert main.main(words) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert " to 1." not in text and "-: the job is alone, or the file has no low and high ends" in text
    assert main.main(["predict", "--curves", "curves.csv", "--json", "lu", "cg"]) == 0
    (folder / "told.json").write_text(capsys.readouterr().out)
    assert main.main(["pair", "told.json", "--slowdowns", "told.json", "--cautious"]) == 0
    header, *lines = CURVES.splitlines()
    (folder / "curves.csv").write_text(
        "\n".join(
            [f"{header},score_low,score_high", *(f"{line},3,5.5" for line in lines if line[:2] != "ep")]
        )
    )
    capsys.readouterr()
    assert main.main(["predict", "--curves", "curves.csv", "lu", "cg"]) == 0
    text = capsys.readouterr().out
    assert "1.115 to 1.285" in text and "no interval" not in text


def test_a_program_without_a_curve_is_told(folder, capsys):
    (folder / "jobs.csv").write_text(JOBS + "e,ft,1\n")
    code, told = refused(capsys, "place", "jobs.csv", "--curves", "curves.csv", "--nodes", "9")
    assert code == 3 and "no curve of program 'ft': measure it" in told


def test_a_curve_that_falls_is_told_and_used(folder, capsys):
    (folder / "curves.csv").write_text(CURVES.replace("1.36,1.57", "1.36,1.30"))
    assert main.main(["place", *FULL]) == 0
    assert "curve of mg falls by 0.060 up to level 6" in capsys.readouterr().err


def test_curves_answer_for_pairs(folder, capsys):
    assert main.main(["predict", "--curves", "curves.csv", "--json", "lu", "mg"]) == 0
    rows = json.loads(capsys.readouterr().out)["slowdowns"]
    assert [row["target"] for row in rows] == ["lu", "mg"]
    assert rows[0]["slowdown"]["value"] == pytest.approx(1.25)
    (folder / "queue.csv").write_text("id,program,runtime_s\n1,lu,100\n2,ep,100\n3,new,100\n")
    assert main.main(["pair", "queue.csv", "--curves", "curves.csv", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [group["jobs"] for group in groups] == [["1", "2"], ["3"]]
    assert groups[0]["duration_s"] == pytest.approx(101)


def test_a_spread_job_gains_what_it_costs_itself(folder, capsys):
    def predicted(*words):
        assert main.main(["predict", "--curves", "curves.csv", "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)["slowdowns"][0]["slowdown"]["value"]

    gained = predicted("--layout", "spread", "lu", "ep")
    assert gained == pytest.approx(predicted("lu", "ep") / predicted("lu")) and gained < 1
    assert predicted("--layout", "spread", "lu") == 1
    assert predicted("--layout", "cores", "lu", "ep") == predicted("lu", "ep")
    code, told = refused(capsys, "predict", "--curves", "curves.csv", "--layout", "turns", "lu", "ep")
    assert code == 2 and "curves.csv is of the layout cores, so its slowdowns do not apply to turns" in told


def test_predict_needs_one_source(folder, capsys):
    assert refused(capsys, "predict", "lu", "mg")[0] == 2
    assert refused(capsys, "predict", "--curves", "curves.csv", "--model", "m.npz", "lu")[0] == 2
    code, told = refused(capsys, "predict", "--curves", "curves.csv", "lu", "ft")
    assert code == 3 and "no curve of program 'ft'" in told


def test_curves_become_a_model_file(folder, capsys):
    assert main.main(["fit", "--curves", "curves.csv", "--out", "m.npz"]) == 0
    shown = capsys.readouterr().out
    assert main.main(["predict", "--model", "m.npz", "--card"]) == 0
    assert capsys.readouterr().out == shown and "capped-sum" in shown and "n-plus-1-max" in shown
    assert main.main(["predict", "--model", "m.npz", "--card", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "bubble"
    code, told = refused(capsys, "fit", "--curves", "curves.csv", "--training", "t.npz", "--out", "m.npz")
    assert code == 2 and "--curves needs no slowdowns" in told


_DEGRADED = "row 1: {} must be T_co/T_solo, got 0.3: for a degradation D"
_PERCENT = "row 1: {} must be T_co/T_solo, got 30: for P percent longer write 1 + P / 100"
_CURVE = "program,score,level_8\nlu,4,{}\n"
_PAIR = "target,co_runner,slowdown\nlu,lu,{}\n"
_MATRIX = "program,level,nodes_1,nodes_2\nlu,1,1.1,{}\n"


@pytest.mark.parametrize(("number", "words"), [("0.3", _DEGRADED), ("30", _PERCENT)])
@pytest.mark.parametrize(
    ("column", "text", "verb"),
    [
        ("level_8", _CURVE, ("place", "jobs.csv", "--nodes", "8", "--curves")),
        ("level_8", _CURVE, ("pair", "queue.csv", "--curves")),
        ("level_8", _CURVE, ("predict", "lu", "--curves")),
        ("level_8", _CURVE, ("fit", "--out", "m.npz", "--curves")),
        ("slowdown", _PAIR, ("place", "jobs.csv", "--nodes", "8", "--slowdowns")),
        ("slowdown", _PAIR, ("pair", "queue.csv", "--slowdowns")),
        ("nodes_2", _MATRIX, (*("place", *FULL), "--propagation")),
    ],
)
def test_degradations_and_percentages_are_no_slowdowns(folder, capsys, column, text, verb, number, words):
    (folder / "queue.csv").write_text("id,program,runtime_s\n1,lu,5\n2,lu,5\n")
    (folder / "table.csv").write_text(text.format(number))
    code, error = refused(capsys, *verb, "table.csv")
    assert code == 3 and words.format(column) in error
    is_told = number == "30" and column != "nodes_2"  # a matrix has no columns for intervals
    assert error.endswith("; a slowdown that large needs the ends of its interval") == is_told


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (("0.6", "0.55", "0.8"), "got 0.6: for a degradation D = 1 - T_solo/T_co write 1 / (1 - D)"),
        (("12", "5", "3"), "got 12: for P percent longer write 1 + P / 100"),
        (("0.97", "0.99", "0.9"), ""),
        (("0.6", "1.2", "1.1"), ""),
        (("12", "5", "1.9"), ""),
        (("3.6", "2.9", "2"), ""),
    ],
)
def test_a_column_of_degradations_or_percentages_is_judged_as_a_whole(folder, capsys, numbers, words):
    pairs = zip(("lu,cg", "cg,lu", "cg,cg"), numbers, strict=True)
    rows = "".join(f"{pair},{number}\n" for pair, number in pairs)
    (folder / "table.csv").write_text(f"target,co_runner,slowdown\n{rows}")
    (folder / "queue.csv").write_text("id,program,runtime_s\n1,lu,5\n2,cg,5\n")
    verb = ("pair", "queue.csv", "--slowdowns", "table.csv")
    if words:
        code, error = refused(capsys, *verb)
        assert code == 3 and f"row 1: slowdown must be T_co/T_solo, {words}" in error
    else:
        assert main.main(list(verb)) == 0, capsys.readouterr().err


def test_the_upper_end_alone_is_no_interval(folder, capsys):
    (folder / "table.csv").write_text("target,co_runner,slowdown,high\nlu,lu,30,31\n")
    code, error = refused(capsys, "place", "jobs.csv", "--nodes", "8", "--slowdowns", "table.csv")
    assert code == 3 and "got 30: for P percent longer" in error


def test_noise_below_1_and_a_large_slowdown_with_its_interval_are_slowdowns(folder, capsys):
    curve = "program,score,level_4,level_8,level_8_low,level_8_high\nlu,4,0.8,25,24,26\n"
    (folder / "curves.csv").write_text(curve)
    assert main.main(["predict", "--curves", "curves.csv", "lu"]) == 0, capsys.readouterr().err


def test_spread_jobs_take_twice_the_nodes(folder, capsys):
    (folder / "jobs.csv").write_text("id,program,n_nodes\na,lu,2\nb,ep,2\n")
    for source in ("curves", "pairs"):
        words = ("jobs.csv", f"--{'slowdowns' if source == 'pairs' else source}", f"{source}.csv")
        found = placed(capsys, *words, "--nodes", "4", "--layout", "spread", "--objective", "worst")
        assert found["placement"] == {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}
        lu = found["slowdowns"]["a"]
        if source == "curves":
            main.main(["predict", "--curves", "curves.csv", "--layout", "spread", "lu", "ep", "--json"])
            wanted = json.loads(capsys.readouterr().out)["slowdowns"][0]
            assert wanted["layout"] == "spread"
            assert lu["value"] == pytest.approx(wanted["slowdown"]["value"]) and lu["value"] < 1
        else:
            assert [lu[end] for end in ("value", "low", "high")] == pytest.approx([1, 1.05 / 1.4, 1.4 / 1.05])
    code, told = refused(capsys, "place", *FULL[:5], "--slots", "3", "--layout", "spread")
    assert code == 2 and "--layout spread puts two jobs on a node" in told

"""The page of simulated sharing policies, and the figures on it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from test_shared_simulation import log_of

from mpicoloc.batch import allocation, comparison, order, page
from mpicoloc.batch.comparison import Case, Centre
from mpicoloc.batch.inputs import of_hosts, workload
from mpicoloc.batch.shared_simulation import Slowdowns
from mpicoloc.bill.price import tariff
from mpicoloc.core.network import Topology
from mpicoloc.errors import UsageError


def centre(packs=False, order_name="easy"):
    """Two jobs of four nodes that come together, of users 1 and 2, for 1,000 s and 400 s."""
    log = replace(log_of([0, 0], [1000, 400], [4, 4], user=[1, 2]), number=np.array([11, 12]))
    machine = of_hosts(Topology((2, 2), (1, 2), (1e9, 1e9)), np.arange(4), "</script> four")
    work = workload(log, 8, 4)
    chosen = allocation.named("first-available")
    return Centre(work, machine, order_name, order.named(order_name), chosen, packs)


def all_runs(slowdowns=(1.5,)):
    cases = [
        Case(i, np.zeros(2, np.int64), Slowdowns(np.array([[s]]), np.array([[s]])))
        for i, s in enumerate(slowdowns)
    ]
    return list(comparison.run_all(centre(), ["none", "blind", "model"], cases))


def test_figures_of_two_jobs_that_share_are_exact():
    """1,000 s and 400 s at 1.5: ends at 1,200 s and 600 s in place of 1,000 s and 1,400 s."""
    found = page.of_runs(centre(), all_runs(), [tariff(1.0, "fair"), tariff(1.0, "runtime")])
    none, blind, model = found
    assert none.figures["completion_s"].value == 1400
    assert none.figures["lost_node_hours"].value == 0
    assert none.figures["saved_frac"] is None
    assert blind.figures["completion_s"].value == pytest.approx(1200)
    # Eq. 2.3: 4 nodes x (200 s + 200 s).
    assert blind.figures["lost_node_hours"].value == pytest.approx(4 * 400 / 3600)
    # Busy for 1,200 s in place of 1,400 s, of 1,400 s.
    assert blind.figures["saved_frac"].value == pytest.approx(200 / 1400)
    assert model.figures["effectiveness"].value == pytest.approx(1)
    assert blind.figures["effectiveness"] is None
    # 32 cores: by run time (1,200 + 600) s; fair (1,000/1,200 x 1,000 + 400/600 x 400) s.
    assert blind.charged_su["runtime"].value == pytest.approx(32 * 1800 / 3600)
    assert blind.charged_su["fair"].value == pytest.approx(32 * (1e6 / 1200 + 160000 / 600) / 3600)
    assert blind.users["fair"] == pytest.approx({1: 32 * 1e6 / 1200 / 3600, 2: 32 * 160000 / 600 / 3600})
    assert none.charged_su["fair"].value == pytest.approx(none.charged_su["runtime"].value)
    assert page.sentences(found)[1] == "Sharing by model would have saved 14.3 % of this machine."


def test_figures_over_seeds_have_intervals_in_json_and_words():
    found = page.of_runs(centre(), all_runs((1.4, 1.5)), [tariff(1.0, "fair")])
    told = json.loads(json.dumps(page.as_json(found), allow_nan=False))["policies"][2]
    assert told["saved_frac"]["n"] == 2
    assert told["saved_frac"]["low"] < told["saved_frac"]["value"] < told["saved_frac"]["high"]
    assert "95 % interval" in page.sentences(found)[1]
    assert page.as_json(found)["policies"][0]["saved_frac"] is None


def test_the_page_holds_all_jobs_and_asks_for_nothing():
    runs = all_runs()
    found = page.of_runs(centre(), runs, [tariff(1.0, "fair")])
    text = page.page("log <b>", centre(), runs, found)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert [policy["name"] for policy in data["policies"]] == ["none", "blind", "model"]
    blind = data["policies"][1]
    assert blind["number"] == [11, 12]
    assert blind["nodes"] == [[0, 4], [0, 4]]
    assert blind["end"] == [1200, 600]
    assert blind["slowdown"] == [1.2, 1.5]
    assert data["racks"] == [0, 2, 4]
    assert "log &lt;b&gt;" in text and "<b>" not in text
    assert not re.search(r"https?:|//[a-z]|@import|src=", text.replace("// Neighbours", ""))
    assert text.count("<polyline") == 3 + 2 * 3


def test_a_long_log_is_drawn_where_jobs_waited_longest(monkeypatch):
    monkeypatch.setattr(page, "N_DRAWN", 1)
    (run,) = comparison.run_all(
        centre(), ["none"], [Case(0, np.zeros(2, np.int64), Slowdowns(*np.ones((2, 1, 1))))]
    )
    begin_s, end_s = page._window([run])
    assert (begin_s, end_s) == (0, 1)
    data = page._data(centre().workload, centre().machine, [run], (begin_s, end_s))
    assert data["policies"][0]["number"] == [11]


def test_a_mean_over_time_is_exact():
    """2 from time 1 on, 4 from 3 on."""
    found = page.mean_in_bins(np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([0.0, 2.0, 4.0, 6.0]))
    assert found.tolist() == [1, 3, 4]


@pytest.mark.parametrize(
    ("names", "order_name", "words"),
    [
        (["half"], "easy", "sharing 'half' is unknown: give one or more of none, blind, model, service"),
        (["model", "model"], "easy", "names model twice"),
        (["none", "model"], "conservative", "give one of the orders fcfs and easy"),
    ],
)
def test_policies_that_do_not_go_are_told(names, order_name, words):
    with pytest.raises(UsageError, match=words):
        comparison.check_names(names, order_name)

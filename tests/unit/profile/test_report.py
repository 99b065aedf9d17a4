"""`mpicoloc report`: what its figures are of, the page around them, and what it does with odd profiles."""

import contextlib
import csv
import re
from dataclasses import replace
from datetime import datetime
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import sample
import traces
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.figure import Figure as Picture

from mpicoloc.cli.main import main
from mpicoloc.core.profile import COLUMNS, Network, NetworkLevel, dtype, table
from mpicoloc.errors import DataError
from mpicoloc.measure.advice import advice
from mpicoloc.profile import figures as messages, figures as mpi, figures as profile_figures, hdf5, page
from mpicoloc.show import drawing, figures
from mpicoloc.trace import node_file, times

HOSTILE = "</title><script>alert(1)</script>&<img src=x onerror=alert(1)>\x1b[2J$x^$"
NETWORK = Network("XGFT(2;4,2;1,2)", "moderate", "all", 2, (
    NetworkLevel(0, 1e9, 1e7, 1e9, 0.01), NetworkLevel(1, 5e8, 5e6, 1e9, 0.3)))  # fmt: skip


def changed(profile, **tables):
    """The profile with some columns of its tables replaced, or whole tables."""
    out = dict(profile.tables)
    for name, columns in tables.items():
        out[name] = out[name].copy() if isinstance(columns, dict) else columns
        for key, values in columns.items() if isinstance(columns, dict) else ():
            out[name][key] = values
    return replace(profile, tables=out)


def many(n_ranks, n_nodes):
    """A job of many ranks in a ring."""
    rank = np.arange(n_ranks)
    nodes = np.repeat(sample.profile().tables["nodes"], n_nodes)
    nodes["hostname"] = [f"n{i}".encode() for i in range(n_nodes)]
    ranks = np.repeat(sample.profile().tables["ranks"][:1], n_ranks)
    ranks["rank"], ranks["i_node"] = rank, rank * n_nodes // n_ranks
    sites = np.repeat(sample.profile().tables["call_sites"][:1], n_ranks * 10)
    sites["rank"] = np.repeat(rank, 10)
    sites["call"] = [f"MPI_{i}".encode() for i in range(10)] * n_ranks
    sites["time_ns"] = np.arange(len(sites)) * 1000
    peers = table("peers", {"src": rank, "dst": (rank + 1) % n_ranks, "size_class": np.full(n_ranks, 11),
                            "n": np.full(n_ranks, 2), "bytes": np.full(n_ranks, 3000)})  # fmt: skip
    made = changed(sample.profile(), nodes=nodes, ranks=ranks, call_sites=sites, peers=peers)
    return replace(made, job=sample.job(n_ranks=n_ranks, n_nodes=n_nodes))


def traced(profile):
    events = {"rank": [0, 1], "t_ns": [10**9, 3 * 10**9], "duration_ns": [10**9, 2 * 10**9],
              "bytes": [1000, 4000], "peer": [1, 0], "call": ["MPI_Send", "MPI_Isend"]}  # fmt: skip
    return changed(profile, events=table("events", events))


def made(profile):
    return {part.name: part for _, parts in profile_figures.figures(profile) for part in parts}


def column(figure, name):
    return [row[figure.header.index(name)] for row in figure.rows]


@pytest.fixture(scope="module")
def full():
    return replace(traced(sample.profile()), network=NETWORK)


@pytest.fixture(scope="module")
def full_page(full):
    return page.page(full, profile_figures.figures(full))


def test_figures_are_of_the_profile_s_numbers(full):
    found = made(full)
    assert all(isinstance(figure, figures.Figure) for figure in found.values())
    peers, sites, ranks = (full.tables[name] for name in ("peers", "call_sites", "ranks"))
    assert sum(column(found["matrix"], "sent_bytes")) == peers["bytes"].sum()
    assert sum(column(found["message-sizes"], "n_messages")) == peers["n"].sum()
    assert sum(column(found["calls"], "time_s")) == pytest.approx(sites["time_ns"].sum() * 1e-9)
    assert sum(column(found["call-sites"], "time_s")) == pytest.approx(sites["time_ns"].sum() * 1e-9)
    assert column(found["call-sites"], "site") == ["libx.so+0x77", "lmp+0x1234", "(others)"]
    by_rank = [sum(row[1:]) for row in found["calls-by-rank"].rows]
    assert sum(by_rank) == pytest.approx(sites["time_ns"].sum() * 1e-9)
    assert column(found["imbalance"], "outside_mpi_s") == (ranks["comp_ns"] * 1e-9).tolist()
    assert sum(column(found["wall-time"], "time_s")) == pytest.approx(full.job.wall_s)
    assert column(found["shutters"], "verdict").count("valid") == full.interference.n_used
    assert column(found["network"], "utilisation_frac") == [0.01, 0.3]
    last, final = found["slowdown"].rows[-1], full.interference.slowdown
    assert last == (final.n, final.value, final.low, final.high)
    assert column(found["slowdown-by-rank"], "rank") == [0], "rank 1 has no cycles"
    sent = sum(column(found["timeline"], "sent_bps")) * found["timeline"].rows[1][0]
    assert sent == pytest.approx(5000)
    window_s = 4 / mpi.N_WINDOWS
    assert sum(column(found["rank-timeline"], "time_frac")) * window_s == pytest.approx(1 + 2)
    assert {row[0]: row[2] for row in found["rank-timeline"].rows} == {0: "MPI_Send", 1: "MPI_Isend"}
    assert max(row[1] for row in found["rank-timeline"].rows if row[0] == 0) < 1


def test_what_is_got_was_sent_by_the_other_rank():
    sent = {"src": [0, 0], "dst": [1, 1], "size_class": [3, 4], "n": [1, 0], "bytes": [5, 0]}
    got = {"n_recv": [0, 2], "recv_bytes": [0, 20], "n_got": [0, 2], "got_bytes": [0, 20]}
    peers = table("peers", sent | got)
    found = made(changed(sample.profile(), peers=peers))
    assert found["matrix"].rows == (("0", "1", 1, 5), ("1", "0", 2, 20))
    assert [row[2] for row in found["message-sizes"].rows] == [1, 2]


def test_a_job_of_one_rank_that_sends_to_itself():
    peers = table("peers", {"src": [0], "dst": [0], "n": [1], "bytes": [5], "size_class": [3]})
    one = replace(many(1, 1), job=sample.job(n_ranks=1))
    found = made(changed(one, peers=peers, ranks=one.tables["ranks"], cycles=table("cycles")))
    assert found["matrix"].rows == (("0", "0", 1, 5),)
    for name in ("matrix", "imbalance", "calls-by-rank"):
        assert page.inlined(found[name])


def test_what_was_not_measured_is_a_gap_with_a_reason():
    bare = replace(sample.profile(), tables={}, network=None)
    bare = replace(bare, interference=replace(bare.interference, slowdown=None, reason="too few shutters"))
    found = made(bare)
    assert all(isinstance(part, figures.Gap) for part in found.values())
    assert "too few shutters" in found["slowdown"].reason
    assert "--trace" in found["timeline"].reason and "MPICOLOC_TOPOLOGY" in found["network"].reason
    text = page.page(bare, profile_figures.figures(bare))
    assert "<svg" not in text
    assert text.count("Not in this profile") == len({part.reason for part in found.values()}) + 1, (
        "a line for each reason of a section; that there is no trace is said in two"
    )


def test_a_job_alone_has_one_line_instead_of_three_cards():
    alone = sample.profile(shared_s=0.0, n_shutters=0)
    text = page.page(alone, profile_figures.figures(alone))
    section = text.split("<section")[1]
    assert section.count("Not in this profile") == 1 and section.count("no co-runner under mpicoloc") == 1
    assert "Shutters over time; Slowdown of each rank by itself (the job had no" in section
    assert section.count("<figure>") == 1 and section.count('class="box"') == 0


def test_the_title_tells_when_who_and_where(full):
    job = sample.job(user="ada<b>", start_unix_s=1.7e9)
    text = page.page(replace(full, job=job), profile_figures.figures(full))
    when = datetime.fromtimestamp(1.7e9).astimezone().isoformat(" ", "seconds")
    line = f"{when}, user ada&lt;b&gt;, on n1"
    assert f"<title>Job 42, {line} - mpicoloc</title>" in text and f'<p class="soft">{line}</p>' in text
    unknown = changed(replace(full, job=sample.job(start_unix_s=0.0)), nodes=table("nodes"))
    assert "<title>Job 42 - mpicoloc</title>" in page.page(unknown, [])


@pytest.mark.parametrize(
    ("place", "short"),
    [
        ("main f.c:7", "main f.c:7"),
        ("NS::Neighbor<double>::build(std::vector<double, std::allocator<double> >&, int) n.cpp:7",
         "\N{HORIZONTAL ELLIPSIS}r<double>::build n.cpp:7"),
        ("a::f(int (*)(int)) const f.cpp:7", "a::f const f.cpp:7"),
        ("a::operator()(double) f.cpp:7", "a::operator() f.cpp:7"),
        ("(anonymous namespace)::f", "(anonymous namespace)::f"),
        ("a::(anonymous namespace)::f()", "\N{HORIZONTAL ELLIPSIS}(anonymous namespace)::f"),
        (")(", ")("), ("a)b", "a)b"), ("", ""), ("x\x1b", "x?"),
    ],
)  # fmt: skip
def test_call_sites_are_cut_at_the_left(place, short):
    assert figures.short_place(place, 25) == short and len(short) <= 25


def test_a_matrix_of_equal_values_has_one_colour(full):
    def colours(*n_bytes):
        peers = {"src": [0, 1], "dst": [1, 0], "size_class": [4, 4], "n": [1, 1], "bytes": n_bytes}
        figure = messages.matrix(replace(full, tables={**full.tables, "peers": table("peers", peers)}))
        picture = Picture()
        figure.draw(picture)
        image = picture.axes[0].images[0]
        seen = image.to_rgba(image.get_array())
        return len(picture.axes), np.abs(seen[0, 1] - seen[1, 0]).max(), drawing.svg(figure)

    n_axes, difference, svg = colours(10**6, 10**6)
    assert n_axes == 1 and difference == 0 and "976.6 KiB each" in svg, "no scale beside it"
    n_axes, difference, svg = colours(10**6, 1_010_000)
    assert n_axes == 2 and difference < 0.1, "what is almost equal looks so"
    assert colours(10**6, 10**8)[1] > 0.4


@pytest.mark.parametrize(("n_ranks", "n_bands"), [(2, 0), (32, 0), (33, 1)])
def test_intervals_of_few_ranks_are_bars(n_ranks, n_bands):
    picture, one = Picture(), np.ones(n_ranks)
    drawing.interval_by_rank(picture, np.arange(n_ranks), one, one - 0.1, one + 0.1, "x")
    filled = [found for found in picture.axes[0].collections if isinstance(found, FillBetweenPolyCollection)]
    assert len(filled) == n_bands
    assert [word.get_text() for word in picture.legends[0].get_texts()] == ["95 % interval", "estimate"]


def test_a_legend_names_what_is_seen():
    picture = Picture()
    parts = [("MPI_Long", np.array([5.0, 4.0])), ("MPI_Short", np.array([0.001, 0.002]))]
    drawing.stacked_by_rank(picture, np.arange(2), parts, mean=4.5)
    words = [word.get_text() for word in picture.legends[0].get_texts()]
    assert words == ["MPI_Long", "mean MPI_Long"]


def test_captions_name_their_paper(full):
    found = made(full)
    for name, words in (("slowdown", "Breslow et al. 2013"), ("shutters", "Breslow et al. 2013"),
                        ("timeline", "Jokanovic 2014"), ("network", "Jokanovic 2014")):  # fmt: skip
        assert words in found[name].description


class Reader(HTMLParser):
    """Collects tags, attributes and texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_has_names_for_all_that_is_seen(full, full_page):
    text, tags = full_page, Reader(full_page).tags
    n_figures = len(made(full))
    pictures = [attrs for tag, attrs in tags if tag == "svg" and attrs.get("role") == "img"]
    assert len(pictures) == n_figures
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for picture in pictures:
        assert set(picture["aria-labelledby"].split()) <= set(ids)
    links = [attrs.get("xlink:href", "") for _, attrs in tags]
    used = re.findall(r"url\(#([^)]+)\)", text) + [link[1:] for link in links if link[:1] == "#"]
    assert used and set(used) <= set(ids)
    assert sum(tag == "table" for tag, _ in tags) >= n_figures
    assert not re.search("|".join(page.VARIABLES), re.sub(r"<style>.*?</style>", "", text, flags=re.S))
    for name in page.VARIABLES.values():
        assert text.count(f"{name}:") == 2, "a light and a dark one"


def test_the_page_needs_nothing_and_runs_nothing(full_page):
    tags = Reader(full_page).tags
    assert "script" not in {tag for tag, _ in tags}
    for tag, attrs in tags:
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)


def test_advice_stands_on_the_page(full, full_page):
    for words in advice(full):
        assert f"Advice: {words}" in unescape(full_page)
    assert advice(full) and "Advice: " not in page.page(replace(full, partial=True), [])


def test_words_of_a_profile_stay_words(full):
    word = HOSTILE.encode()[:40]
    bad = changed(full, nodes={"hostname": word}, call_sites={"call": word}, corunners={"job_id": word})
    interference = replace(bad.interference, meter_reason=HOSTILE, reason=HOSTILE)
    job = sample.job(command=HOSTILE, id=HOSTILE, mpi_library=HOSTILE)
    bad = replace(bad, job=job, notes=(HOSTILE,), interference=interference,
                  network=replace(NETWORK, topology=HOSTILE, traffic=HOSTILE))  # fmt: skip
    text = page.page(bad, profile_figures.figures(bad))
    reader = Reader(text)
    assert not {"script", "img"} & {tag for tag, _ in reader.tags}
    assert "\x1b" not in text and HOSTILE.replace("\x1b", "?") in "".join(reader.text)


@pytest.mark.parametrize(("n_nodes", "what", "n_rows"), [(10, "node", 20), (1, "block", 2 * 500)])
def test_a_thousand_ranks(n_nodes, what, n_rows):
    job = many(1000, n_nodes)
    found = made(job)
    assert found["matrix"].header[0] == f"src_{what}" and len(found["matrix"].rows) == n_rows
    assert sum(column(found["matrix"], "sent_bytes")) == 3000 * 1000
    assert len(found["calls-by-rank"].rows) == 1000, "the CSV has them all"
    text = page.page(job, [("x", [found["matrix"], found["calls-by-rank"]])])
    assert len(text) < 1_000_000 and "The first 200 of 1,000 rows" in text


def test_blocks_of_ranks():
    found = figures.of_ranks(np.arange(1030))
    assert (found.size, len(found.first)) == (3, 344)
    assert found.means(np.arange(1030))[:2].tolist() == [1, 4]
    assert (found.least(np.arange(1030))[1], found.most(np.arange(1030))[1]) == (3, 5)
    assert figures.of_ranks(np.arange(512)).size == 1 and figures.of_ranks(np.arange(4)).words("x") == ""


def draw_changed(profile, base):
    """Draw the figures whose data are not those of another profile."""
    usual = made(base)
    for name, figure in made(profile).items():
        if isinstance(figure, figures.Figure) and figure.rows != usual[name].rows:
            assert page.inlined(figure)


def test_odd_profiles_draw_or_are_refused(full):
    """One rank, one shutter, verdicts and nodes that there are not, no time at all."""
    odd = [
        changed(full, shutters=full.tables["shutters"][:1]),
        changed(full, shutters={"verdict": 77, "i_node": -5, "t1_ns": 0}),
        changed(full, ranks={"comp_ns": 0, "mpi_ns": 0}, call_sites={"time_ns": 0}),
        changed(full, peers={"src": -7, "dst": 2**31 - 1}),
        changed(full, peers={"size_class": 32767, "n": 2**63, "bytes": 2**63}),
        replace(full, job=sample.job(wall_s=0.0)),
    ]
    for profile in odd:
        draw_changed(profile, full)
    for rank in (-1, 2):
        with pytest.raises(DataError, match="does not have"):
            made(changed(full, ranks={"rank": rank}))
    with pytest.raises(DataError, match="contradict each other"):
        made(changed(full, nodes=table("nodes")))
    for n_ranks in (0, -3, 10**12):
        with pytest.raises(DataError, match="is it damaged"):
            made(replace(full, job=sample.job(n_ranks=n_ranks)))


def test_random_tables_never_crash(full):
    rng = np.random.default_rng(3)
    for name in COLUMNS:
        rows = np.frombuffer(rng.bytes(7 * dtype(name).itemsize), dtype(name)).copy()
        if "rank" in rows.dtype.names:
            rows["rank"] %= 2
        with contextlib.suppress(DataError):
            draw_changed(changed(full, **{name: rows}), full)


@pytest.fixture
def here(tmp_path, monkeypatch, full):
    monkeypatch.chdir(tmp_path)
    hdf5.write(full, "p.h5")
    return tmp_path


def test_the_command(here, capsys, full_page):
    assert main(["report", "p.h5"]) == 0
    assert capsys.readouterr().out == "p.html\n"
    assert (here / "p.html").read_text() == full_page, "the same each time"
    assert main(["report", "p.h5", "--figures", "f", "--format", "csv"]) == 0
    with open("f/message-sizes.csv", newline="") as file:
        assert sum(int(row["n_messages"]) for row in csv.DictReader(file)) == 8
    assert len(list((here / "f").iterdir())) == 13


def test_a_trace_of_every_call_beside_the_profile_is_drawn(here, monkeypatch):
    made_ = replace(sample.profile(), job=sample.job(id="1"))
    hdf5.write(made_, "all.h5")
    (here / "all.trace").mkdir()
    send = traces.SEND | node_file.SENT
    rows = traces.events(0, [10**9, 2 * 10**9], [10**9, 10**8], [250, 750], [1, 1], send)
    (here / "all.trace" / "0.mct").write_bytes(traces.head(b"1", n_ranks=2) + traces.names() + rows)
    found = {part.name: part for _, parts in profile_figures.figures(made_, "all.h5") for part in parts}
    sent = sum(column(found["timeline"], "sent_bps")) * found["timeline"].rows[1][0]
    assert sent == pytest.approx(1000)
    all_the_time = pytest.approx(mpi.N_WINDOWS)
    assert sum(column(found["rank-timeline"], "time_frac")) == all_the_time
    monkeypatch.setattr(times, "MOST_TRACE_BYTES", 100)
    for make in profile_figures.OF_TRACES:
        assert "at most 100 B can be drawn" in make(made_, "all.h5").reason


def test_missing_figures_are_told(here, capsys):
    hdf5.write(sample.profile(), "plain.h5")
    assert main(["report", "plain.h5", "--figures", "f", "--format", "csv"]) == 0
    assert "no figure timeline: the profile has no trace" in capsys.readouterr().err
    assert not (here / "f" / "timeline.csv").exists() and not (here / "plain.html").exists()


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["nothing.h5"], 3, "nothing.h5"),
        (
            ["p.h5", "p.h5"],
            2,
            "a page shows one profile, got 2: make a page of each, or compare them with",
        ),
        (["p.h5", "--out", "p.h5"], 2, "--out p.h5 is an input of the command"),
        (["p.h5", "--out", "no/page.html"], 2, "there is no folder no"),
        (["p.h5", "--format", "svg"], 2, "add --figures FOLDER"),
        (["p.h5", "--figures", "f", "--format", ""], 2, "--format '' is none of"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(here, capsys, argv, code, words):
    assert main(["report", *argv]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


DECIMAL = re.compile(r"\d[\s\N{NO-BREAK SPACE}]*[kMGT]B\b")


def test_bytes_are_counted_by_1024_on_the_page_and_in_its_figures(full, full_page):
    assert DECIMAL.search("45 MB") and DECIMAL.search("1.2\N{NO-BREAK SPACE}kB/s")
    assert not DECIMAL.search(full_page)
    found = made(full)
    # Few bytes, many, and of pairs that differ little or much: whatever marks the axis needs.
    for n_bytes in ([60, 61], [10**6, 10**6], [10**6, 3 * 10**6], [1, 10**12]):
        peers = {"src": [0, 1], "dst": [1, 0], "size_class": [4, 4], "n": [1, 1], "bytes": n_bytes}
        profile = replace(full, tables={**full.tables, "peers": table("peers", peers)})
        for make in (messages.matrix, messages.sizes):
            picture = drawing.svg(make(profile))
            assert not DECIMAL.search(picture)
            assert len(re.findall(r"\d\s[KMGT]?i?B\b", picture)) >= 1 + (len(set(n_bytes)) > 1), "no marks"
    assert re.search(r"\d\N{NO-BREAK SPACE}(KiB|B)/s", drawing.svg(found["timeline"]))

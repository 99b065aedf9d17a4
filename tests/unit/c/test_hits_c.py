"""The sums that the agent keeps of hits around a shutter are those of tests/support/simulated/passes.py."""

import math
import os
import shlex
import subprocess
from pathlib import Path

import numpy as np
import passes
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CSRC = Path(__file__).resolve().parents[3] / "csrc"
MS = 10**6
PROGRAM = """
#include "agent/loop/hits.h"
#include <inttypes.h>
#include <stdio.h>
static void show(const char *name, const mc_edge *edge)
{
    printf("%s %.9f %.9f %.9f %.9f\\n", name, edge->far, edge->mean, edge->inside, edge->outside);
}
int main(void)
{
    mc_passes all = {0};
    uint64_t n, t;
    for (int i = 0; i < MC_N_SPANS; i++)
        if (scanf("%" SCNu64 " %" SCNu64, &all.t0[i], &all.t1[i]) != 2)
            return 2;
    while (scanf("%" SCNu64, &n) == 1) {
        mc_track track;
        mc_track_begin(&track, &all);
        for (uint64_t i = 0; i < n && scanf("%" SCNu64, &t) == 1; i++)
            mc_track_hit(&track, t);
        mc_track_end(&track, &all, 7);
    }
    show("begin", &all.begin);
    show("end", &all.end);
    for (int i = 0; i < MC_N_SPANS; i++)
        printf("%" PRIu64 " ", all.n[i]);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\\n", all.n_all, all.n_threads, all.ran_ns);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What counts the hits, with nothing else of the agent."""
    out = tmp_path_factory.mktemp("hits") / "hits"
    command = [*shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror",
               "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", f"-I{CSRC}", "-x", "c", "-",
               str(CSRC / "agent/loop/hits.c"), "-o", str(out), "-lm"]  # fmt: skip
    subprocess.run(command, input=PROGRAM, text=True, check=True, timeout=120)
    return out


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    threads=st.lists(st.lists(st.integers(0, 80 * MS), max_size=40), min_size=1, max_size=4),
    around=st.sampled_from([1, 7, 25]),
)
def test_sums_over_threads_are_those_of_the_simulation(program, threads, around):
    begin = 30 * MS
    job = passes.Job(2.0, around_s=around * 1e-3)
    spans = [passes.before(job), (0.0, job.begin_s), (job.begin_s, job.duration_s),
             (job.duration_s, job.duration_s + passes.APART_S), passes.after(job)]  # fmt: skip
    words = [begin + round(t * 1e9) for span in spans for t in span]
    for hits in threads:
        words += [len(hits), *sorted(hits)]
    done = subprocess.run(
        [program], input=" ".join(map(str, words)), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    *edges, counts = done.stdout.splitlines()
    row = passes.record([(np.array(sorted(hits)) - begin) * 1e-9 for hits in threads], job)
    *spanned, n_all, n_threads, ran_ns = map(int, counts.split())
    names = ("before", "begin", "during", "end", "after")
    assert spanned == [row[f"{name}_hits"] for name in names]
    assert n_all == sum(map(len, threads)) and ran_ns == 7 * n_threads
    for line in edges:
        name, *sums = line.split()
        for what, value in zip(("far", "mean", "inside", "outside"), map(float, sums), strict=True):
            assert math.isfinite(value)
            # The simulation's mean is over a number of instants.
            error = 5e-4 * (1 + n_all) if what == "mean" else 1e-6
            assert value == pytest.approx(row[f"{name}_{what}"], abs=error), (name, what)

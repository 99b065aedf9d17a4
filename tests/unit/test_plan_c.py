"""How long a job asks the others to stand still: what its cycles want, and what the duty limit leaves."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CSRC = Path(__file__).resolve().parents[2] / "csrc"
MS, S = 10**6, 10**9
MAX_MS, DUTY = 100, 0.02
PROGRAM = """
#include "agent.h"
#include <inttypes.h>
#include <stdio.h>
static mc_agent agent;
int main(void)
{
    uint64_t now, joined, wish;
    agent.duty_frac = 0.02;
    agent.max_ns = 100000000u;
    agent.t_open = 1000000000u;
    while (scanf("%d %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &agent.adapts, &agent.n_others, &agent.period_ns,
                 &wish, &joined, &now) == 6) {
        agent.duration_ns = wish;
        agent.n_live = agent.n_others + 1;
        agent.live[agent.n_others].t_joined = joined;
        printf("%" PRIu64 "\\n", mc_planned_ns(&agent, now));
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def planned_ms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    (folder / "main.c").write_text(PROGRAM)
    cc = shlex.split(os.environ.get("CC", "cc"))
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", f"-I{CSRC}"]
    program = [*cc, *flags, "main.c", CSRC / "agent_adapt.c", "-lm", "-o", "plan"]
    subprocess.run(program, cwd=folder, check=True)

    def run(*, n_others=1, period_ms=2000, wish_ms=10, joined_s=1, now_s=60, adapts=1):
        numbers = adapts, n_others, period_ms * MS, wish_ms * MS, joined_s * S, now_s * S
        text = " ".join(str(int(number)) for number in numbers)
        done = subprocess.run([folder / "plan"], input=text, capture_output=True, text=True, check=True)
        return int(done.stdout) / MS

    return run


def test_who_needs_little_takes_what_the_limit_leaves_in_the_period_of_others(planned_ms):
    # Two jobs: each of the other's turns comes every second period. An old job asks for a third.
    assert planned_ms(now_s=15) == pytest.approx(0.95 * DUTY * 2 * 2000)
    assert planned_ms(now_s=60) == pytest.approx(0.95 * DUTY / 3 * 2 * 2000)
    assert planned_ms(now_s=60, n_others=3) == pytest.approx(0.95 * DUTY / 3 * 4 / 3 * 2000)


def test_its_own_wish_is_kept(planned_ms):
    assert planned_ms(wish_ms=90) == 90
    assert planned_ms(adapts=0) == 10
    assert planned_ms(n_others=0) == 10
    # A neighbour that has just come has no budget yet.
    assert planned_ms(joined_s=60) == 10


@settings(max_examples=60, deadline=None)
@given(
    n_others=st.integers(1, 40), period_ms=st.integers(5, 10**6), wish_ms=st.integers(1, 80),
    joined_s=st.integers(1, 100), now_s=st.integers(1, 10**5),
)  # fmt: skip
def test_never_beyond_the_limits(planned_ms, n_others, period_ms, wish_ms, joined_s, now_s):
    found = planned_ms(
        n_others=n_others, period_ms=period_ms, wish_ms=wish_ms, joined_s=joined_s, now_s=now_s
    )
    assert wish_ms <= found <= 0.8 * MAX_MS
    if found > wish_ms:
        assert found * n_others <= DUTY * (n_others + 1) * period_ms
        assert found <= DUTY * 1000 * (now_s - joined_s) / 2

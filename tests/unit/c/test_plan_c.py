"""Length and period of the shutters that a job plans, from its cycles and the duty limit."""

import subprocess
from dataclasses import dataclass

import objects
import pytest
from hypothesis import given, settings, strategies as st

MS, S = 10**6, 10**9
MAX_MS, DUTY = 100, 0.02
PROGRAM = """
#include "agent/lengths.h"
#include <inttypes.h>
#include <stdio.h>
static mc_lengths lengths;
static mc_slot slot;
static mc_board_view view = {.slot = &slot};
int main(void)
{
    uint64_t now, joined, wish;
    lengths.options.duty_frac = 0.02;
    lengths.options.max_ns = 100000000u;
    lengths.options.period_ns = 100000000u;
    lengths.t_open = 1000000000u;
    lengths.stretch = 1.0;
    while (scanf("%d %d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %lf", &lengths.options.adapts,
                 &view.n_others, &lengths.period_ns, &wish, &joined, &now, &lengths.own_frac) == 7) {
        lengths.duration_ns = wish;
        view.n_live = view.n_others + 1;
        view.live[view.n_others].t_joined = joined;
        uint64_t planned_ns = mc_lengths_planned_ns(&lengths, &view, now);
        int n_taken[3] = {0};
        for (int i = 0; i < 30; i++)
            n_taken[mc_lengths_takes(&lengths, view.n_others > 1, now)]++;
        mc_lengths_refused(&lengths, planned_ns);
        uint64_t after_ns = mc_lengths_planned_ns(&lengths, &view, now);
        mc_lengths_tell(&lengths, &view);
        printf("%" PRIu64 " %d ", planned_ns, n_taken[MC_TAKE_FULL]);
        printf("%d %" PRIu64 " ", n_taken[MC_TAKE_PARTIAL], after_ns);
        printf("%" PRIu64 "\\n", slot.want_period_ns);
        lengths.stretch = 1.0;
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Plan:
    """Length of the next shutter, turns taken of 30, length after a refusal, and the period wished for.

    Beside two others or more the job may take partial shutters.
    """

    planned_ms: float
    n_full: int
    n_partial: int
    after_refusal_ms: float
    period_ms: float


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    (folder / "main.c").write_text(PROGRAM)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    files = [folder / "main.c", *objects.of_csrc("agent/lengths.c", "common/options.c")]
    program = objects.program(folder / "plan", files, flags, folder)

    def run(*, n_others=1, period_ms=2000, wish_ms=10, joined_s=1, now_s=60, adapts=1, own_frac=0.0):
        numbers = adapts, n_others, period_ms * MS, wish_ms * MS, joined_s * S, now_s * S
        text = " ".join([*(str(int(number)) for number in numbers), str(own_frac)])
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=60)
        planned_ns, n_full, n_partial, after_refusal_ns, period_ns = map(int, done.stdout.split())
        return Plan(planned_ns / MS, n_full, n_partial, after_refusal_ns / MS, period_ns / MS)

    return run


def test_who_needs_little_takes_what_the_limit_leaves_in_the_period_of_others(plan):
    # Two jobs: each of the other's turns comes every second period.
    assert plan().planned_ms == pytest.approx(0.95 * DUTY * 2 * 2000)
    assert plan(n_others=3).planned_ms == pytest.approx(0.95 * DUTY * 4 / 3 * 2000)


def test_an_old_job_takes_one_turn_in_three(plan):
    assert plan(now_s=110).n_full == 30
    assert plan(now_s=150).n_full == 10
    assert plan(now_s=150, adapts=0).n_full == 30


def test_partial_shutters_are_others_of_an_old_job_and_some_of_a_young_one(plan):
    young, old = (plan(n_others=2, now_s=now_s) for now_s in (110, 150))
    assert (young.n_full, young.n_partial) == (23, 7)
    assert (old.n_full, old.n_partial) == (10, 7)
    assert plan(now_s=110).n_partial == plan(now_s=150).n_partial == 0


SPARED = """
#include "agent/shutter/partial.h"
#include <inttypes.h>
#include <stdio.h>
static mc_board board;
static mc_board_view view = {.board = &board, .slot = &board.slots[3]};
int main(void)
{
    while (scanf("%d", &view.n_others) == 1) {
        view.n_live = view.n_others + 1;
        for (int i = 0; i < view.n_live; i++)
            view.live[i].i_slot = i < 3 || view.n_live < 4 ? i + (view.n_live < 4) * 3 : i;
        for (uint64_t i = 0; i < 40; i++)
            printf("%" PRIu64 " ", mc_partial_spared(&view, i));
        puts("");
    }
    return 0;
}
"""


def test_some_co_runners_are_spared_and_each_is_as_often_as_not(tmp_path):
    (tmp_path / "main.c").write_text(SPARED)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
    files = [tmp_path / "main.c", *objects.of_csrc("agent/shutter/partial.c")]
    program = objects.program(tmp_path / "spared", files, flags, tmp_path)
    numbers = [1, 2, 3, 7, 40, 63]
    text = "\n".join(map(str, numbers))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=60)
    alone, *lines = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    assert set(alone) == {0}, "the only co-runner is not spared"
    for n, spared in zip(numbers[1:], lines, strict=True):
        everybody = spared[0] | spared[1]
        assert bin(everybody).count("1") == n and not everybody & 1 << 3
        assert all(0 < one < everybody and one & everybody == one for one in spared)
        assert all(
            first ^ second == everybody for first, second in zip(spared[::2], spared[1::2], strict=True)
        )
        assert len(set(spared)) >= min(n, 4), "others each time"


def test_longer_shutters_that_are_refused_become_shorter_but_not_than_the_wish(plan):
    assert plan().after_refusal_ms == pytest.approx(plan().planned_ms / 2)
    assert plan(wish_ms=70).after_refusal_ms == 70
    assert plan(wish_ms=90).after_refusal_ms == 90


def test_what_the_own_meter_takes_makes_shutters_rarer(plan):
    # Each second one is another's: 40 ms each are 2 % of a period of 1 s.
    assert plan(wish_ms=40).period_ms == 1000
    assert plan(wish_ms=40, own_frac=0.0049).period_ms == 1400
    assert plan(wish_ms=40, own_frac=0.0099).period_ms == plan(wish_ms=40, own_frac=0.5).period_ms == 2000


def test_its_own_wish_is_kept(plan):
    assert plan(wish_ms=90).planned_ms == 90
    assert plan(adapts=0).planned_ms == 10
    assert plan(n_others=0).planned_ms == 10
    # A neighbour that has just come has no budget yet.
    assert plan(joined_s=60).planned_ms == 10


@settings(max_examples=60, deadline=None)
@given(
    n_others=st.integers(1, 40), period_ms=st.integers(5, 10**6), wish_ms=st.integers(1, 80),
    joined_s=st.integers(1, 100), now_s=st.integers(1, 10**5),
)  # fmt: skip
def test_never_beyond_the_limits(plan, n_others, period_ms, wish_ms, joined_s, now_s):
    sizes = {"n_others": n_others, "period_ms": period_ms, "wish_ms": wish_ms}
    found = plan(**sizes, joined_s=joined_s, now_s=now_s).planned_ms
    assert wish_ms <= found <= 0.8 * MAX_MS
    if found > wish_ms:
        assert found * n_others <= DUTY * (n_others + 1) * period_ms
        assert found <= DUTY * 1000 * (now_s - joined_s) / 2

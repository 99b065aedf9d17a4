/* What measuring costs a job, as its agent adds it up for the duty limit. Exit code: number of failed checks. */
#include "../support/check.h"

#include "agent/shutter/duty.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { N_RANKS = 2 };

static const uint64_t SECOND_NS = 1000000000u, MS = 1000000u;

/* Ranks of an hour ago, whose processor time is that of this process: next to none. */
static mc_job_ranks open_ranks(uint64_t now)
{
    mc_job_ranks ranks;
    CHECK(mc_job_ranks_open(&ranks, "duty") == MC_OK);
    ranks.n = ranks.n_alive = N_RANKS;
    for (int i = 0; i < N_RANKS; i++) {
        ranks.rows[i].alive = 1;
        ranks.rows[i].segment = calloc(1, sizeof(mc_segment));
        ranks.rows[i].segment->t_init = now - 3600 * SECOND_NS;
        CHECK(clock_getcpuclockid(getpid(), &ranks.rows[i].cpu_clock) == 0);
    }
    return ranks;
}

static void close_ranks(mc_job_ranks *ranks)
{
    for (int i = 0; i < N_RANKS; i++)
        free(ranks->rows[i].segment);
    free(ranks->rows);
}

static void stand(mc_job_ranks *ranks, uint64_t first_ms, uint64_t second_ms)
{
    ranks->rows[0].segment->counters.paused_ns += first_ms * MS;
    ranks->rows[1].segment->counters.paused_ns += second_ms * MS;
}

static mc_duty open_duty(uint64_t now)
{
    return (mc_duty){.t_open = now - 10 * SECOND_NS, .frac = 0.02, .longest_ns = 100 * MS};
}

/* Asked for 20 ms five times, which the limit of 200 ms in 10 s allows. */
static void test_late_pauses(void)
{
    uint64_t now = 4000 * SECOND_NS;
    mc_job_ranks ranks = open_ranks(now);
    mc_node *node = calloc(1, sizeof *node);
    mc_duty in_time = open_duty(now), late = in_time;
    for (int i = 0; i < 5; i++) {
        in_time.asked_ns += 20 * MS;
        stand(&ranks, 20, 20);
        mc_duty_update(&in_time, &ranks, node, now);
    }
    CHECK(mc_duty_spent_ns(&in_time) == 100 * MS);
    CHECK(mc_duty_allows(&in_time, 100 * MS, now) && !mc_duty_allows(&in_time, 101 * MS, now));
    CHECK(mc_duty_own_frac(&in_time, now) == 0.0);
    for (int i = 0; i < 5; i++) { /* each rank has its processor back after another time */
        late.asked_ns += 20 * MS;
        stand(&ranks, 30, 46);
        mc_duty_update(&late, &ranks, node, now);
    }
    CHECK(mc_duty_spent_ns(&late) == 190 * MS);
    CHECK(mc_duty_allows(&late, 10 * MS, now) && !mc_duty_allows(&late, 20 * MS, now));
    CHECK(mc_duty_own_frac(&late, now) > 0.00899 && mc_duty_own_frac(&late, now) < 0.00901);
    free(node);
    close_ranks(&ranks);
}

/* A job that was stopped in a pause, by the batch system say, is measured again soon. */
static void test_stopped_job(void)
{
    uint64_t now = 4000 * SECOND_NS;
    mc_job_ranks ranks = open_ranks(now);
    mc_node *node = calloc(1, sizeof *node);
    mc_duty duty = open_duty(now);
    duty.asked_ns = 20 * MS;
    stand(&ranks, 600000, 600000);
    mc_duty_update(&duty, &ranks, node, now);
    CHECK(mc_duty_spent_ns(&duty) == 200 * MS);
    mc_duty_update(&duty, &ranks, node, now);
    CHECK(mc_duty_spent_ns(&duty) == 200 * MS);
    free(node);
    close_ranks(&ranks);
}

/* The first threads sleep, as in a library that computes in threads of its own: they are not paused. */
static void test_sleeping_first_threads(void)
{
    uint64_t now = 4000 * SECOND_NS;
    mc_job_ranks ranks = open_ranks(now);
    mc_node *node = calloc(1, sizeof *node);
    mc_duty duty = open_duty(now);
    duty.asked_ns = 190 * MS;
    mc_duty_update(&duty, &ranks, node, now);
    CHECK(!mc_duty_allows(&duty, 20 * MS, now));
    free(node);
    close_ranks(&ranks);
}

static void test_counting(void)
{
    uint64_t now = 4000 * SECOND_NS;
    mc_job_ranks ranks = open_ranks(now);
    mc_node *node = calloc(1, sizeof *node);
    mc_duty duty = open_duty(now);
    node->counts.sampled_ns = 40 * MS;
    node->counts.pass_ns = 2.0;
    node->counts.n_passes = 60 * MS;
    duty.asked_ns = 50 * MS;
    stand(&ranks, 55, 57); /* the pauses, and what changes of code took */
    mc_duty_update(&duty, &ranks, node, now);
    CHECK(mc_duty_spent_ns(&duty) == 136 * MS); /* each of two ranks counted for 80 ms */
    CHECK(mc_duty_own_frac(&duty, now) > 0.00859 && mc_duty_own_frac(&duty, now) < 0.00861);
    CHECK(mc_duty_allows(&duty, 60 * MS, now) && !mc_duty_allows(&duty, 70 * MS, now));
    mc_duty_update(&duty, &ranks, node, now);
    CHECK(mc_duty_spent_ns(&duty) == 136 * MS);
    free(node);
    close_ranks(&ranks);
}

int main(void)
{
    test_late_pauses();
    test_stopped_job();
    test_sleeping_first_threads();
    test_counting();
    return n_failed;
}

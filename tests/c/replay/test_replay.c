/* Many small simulations with other settings each, for the sanitizers: bytes that come are those that were sent. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/replay.h"

enum { N_LEAVES = 3, N_BELOW = 4, N_SPINES = 2, N_HOSTS = N_LEAVES * N_BELOW, N_SWITCHES = N_LEAVES + N_SPINES };
enum { N_LINKS = 2 * (N_HOSTS + N_LEAVES * N_SPINES), N_OPS = 8, N_JOBS = 2, N_SIMULATIONS = 200 };

static int32_t from[N_LINKS], to[N_LINKS], level[N_LINKS], first[N_HOSTS], next[N_SWITCHES * N_HOSTS];
static int32_t set_start[N_LEAVES + 1], set_links[N_LEAVES * N_SPINES], set_divisor[N_LEAVES];
static int64_t per_byte[N_LINKS], latency[N_LINKS];
static uint64_t state = 1;

static int draw(int n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (int)((state >> 33) % (uint64_t)n);
}

static void add_link(int32_t i, int32_t a, int32_t b, int32_t at_level)
{
    from[i] = a;
    to[i] = b;
    level[i] = at_level;
    per_byte[i] = (int64_t)(400 + 400 * draw(3)) << 20;
    latency[i] = 1000 * draw(100);
}

/* Links 2h and 2h + 1 are those of host h; then two for each leaf and spine. */
static void make_tree(void)
{
    for (int32_t h = 0; h < N_HOSTS; h++) {
        add_link(2 * h, h, N_HOSTS + h / N_BELOW, 0);
        add_link(2 * h + 1, N_HOSTS + h / N_BELOW, h, 0);
        first[h] = 2 * h;
    }
    for (int32_t leaf = 0; leaf < N_LEAVES; leaf++) {
        set_start[leaf] = leaf * N_SPINES;
        set_divisor[leaf] = 1;
        for (int32_t spine = 0; spine < N_SPINES; spine++) {
            int32_t i = 2 * (N_HOSTS + leaf * N_SPINES + spine);
            add_link(i, N_HOSTS + leaf, N_HOSTS + N_LEAVES + spine, 1);
            add_link(i + 1, N_HOSTS + N_LEAVES + spine, N_HOSTS + leaf, 1);
            set_links[leaf * N_SPINES + spine] = i;
            for (int32_t h = 0; h < N_HOSTS; h++)
                if (h / N_BELOW == leaf)
                    next[(N_LEAVES + spine) * N_HOSTS + h] = i + 1;
        }
        for (int32_t h = 0; h < N_HOSTS; h++)
            next[leaf * N_HOSTS + h] = h / N_BELOW == leaf ? 2 * h + 1 : -1 - leaf;
    }
    set_start[N_LEAVES] = N_LEAVES * N_SPINES;
}

static rp_network network_of(const rp_arbitration *rows, int32_t n_vl)
{
    rp_network net = {.n_hosts = N_HOSTS,
                      .n_switches = N_SWITCHES,
                      .n_links = N_LINKS,
                      .n_levels = 2,
                      .n_sets = N_LEAVES,
                      .n_vl = n_vl,
                      .from = from,
                      .to = to,
                      .level = level,
                      .ps_per_byte_q20 = per_byte,
                      .latency_ps = latency,
                      .first = first,
                      .next = next,
                      .set_start = set_start,
                      .set_links = set_links,
                      .set_divisor = set_divisor,
                      .routing = draw(5),
                      .n_paths = N_SPINES,
                      .switch_latency_ps = 1000 * draw(200),
                      .flit_bytes = 1 + 700 * draw(2),
                      .is_voq = draw(2),
                      .n_high = draw(2),
                      .n_low = n_vl,
                      .high = rows,
                      .low = rows,
                      .high_limit = draw(2) ? 255 : draw(3),
                      .weight_unit_bytes = 64 * draw(2)};
    for (int32_t vl = 0; vl < n_vl; vl++) {
        net.input_bytes[vl] = 500 + draw(2000);
        net.output_bytes[vl] = 500 + draw(2000);
        net.vl_of_sl[vl] = vl;
    }
    return net;
}

static rp_settings settings_of(void)
{
    return (rp_settings){.mtu_bytes = 500,
                         .control_bytes = 1 + draw(100),
                         .eager_bytes = 1000 * draw(3),
                         .mpi_latency_ps = 1000 * draw(1000),
                         .send_overhead_ps = 1000 * draw(2),
                         .recv_overhead_ps = 1000 * draw(2),
                         .local_latency_ps = 1000,
                         .local_ps_per_byte_q20 = 100 << 20,
                         .seed = (uint64_t)draw(100),
                         .window_ps = 100000 * draw(2),
                         .n_windows_max = 2 + draw(5),
                         .is_fifo_adapter = draw(2),
                         .shuffle = (uint64_t)draw(2)};
}

/* Each rank sends to the others in turn and receives from any, with long and short messages. */
static void make_program(rp_op *ops, int32_t n_turns, int is_any)
{
    const rp_op program[N_OPS] = {
        {.kind = RP_LOOP, .n = n_turns},
        {.kind = RP_COMPUTE, .value = draw(3000)},
        {.kind = RP_IRECV,
         .peer_mode = is_any ? RP_ABSOLUTE : RP_SHIFT,
         .peer = -1,
         .n = is_any ? 0 : -1,
         .tag = is_any ? -1 : 3},
        {.kind = draw(2) ? RP_ISEND : RP_SEND,
         .peer_mode = RP_SHIFT,
         .peer = 1,
         .n = 1,
         .tag = 3,
         .request = 1,
         .value = draw(5000),
         .flags = draw(2) ? RP_UNBUFFERED : 0},
        {.kind = RP_WAITALL, .n = 2},
        {.kind = RP_MARK, .value = 7},
        {.kind = RP_END},
        {.kind = RP_END_PROGRAM},
    };
    memcpy(ops, program, sizeof program);
}

static void check(const rp_result *r, int64_t n_ranks)
{
    int64_t sent = 0, waits = 0;
    if (r->status != RP_DONE)
        fprintf(stderr, "status %d, %d reports, first of job %d rank %d kind %d\n", r->status, (int)r->n_reports,
                r->reports[0].job, r->reports[0].rank, r->reports[0].kind);
    assert(r->status == RP_DONE);
    for (int32_t i = 0; i < r->n_links * r->n_vl; i++) {
        assert(r->sent_bytes[i] >= r->received_bytes[i]);
        sent += r->sent_bytes[i];
    }
    for (int32_t i = 0; i < r->n_levels * r->n_jobs * r->n_vl; i++)
        waits += r->wait_ps[i];
    for (int32_t i = 0; i < r->n_jobs * (r->n_jobs + 1); i++)
        waits -= r->blocked_ps[i];
    assert(sent > 0 && waits == 0 && r->n_marks >= n_ranks);
    for (int64_t i = 0; i < r->n_jobs; i++)
        assert(r->job_end_ps[i] > 0 && r->job_n_runs[i] > 0);
}

static void simulate(void)
{
    const rp_arbitration rows[3] = {{0, 1 + draw(4)}, {1, 1 + draw(4)}, {2, 1 + draw(4)}};
    rp_op ops[N_JOBS][N_OPS];
    int32_t hosts[N_JOBS][N_HOSTS], programs[N_HOSTS] = {0}, n_vl = 1 + draw(3), is_any = draw(2);
    double factors[N_HOSTS];
    const rp_op *first_op[N_JOBS] = {ops[0], ops[1]};
    const int64_t length = N_OPS;
    rp_job jobs[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        make_program(ops[i], 1 + draw(20), is_any);
        jobs[i] = (rp_job){.n_ranks = 2 + draw(N_HOSTS - 1),
                           .n_programs = 1,
                           .programs = &first_op[i],
                           .program_lengths = &length,
                           .program_of_rank = programs,
                           .host_of_rank = hosts[i],
                           .factor_of_rank = factors,
                           .start_ps = draw(1000),
                           .service_level = draw(n_vl),
                           .is_restarted = draw(2)};
        for (int k = 0; k < N_HOSTS; k++)
            hosts[i][k] = draw(4) ? k : draw(N_HOSTS);
    }
    for (int k = 0; k < N_HOSTS; k++)
        factors[k] = 0.5 + draw(3);
    make_tree();
    rp_network net = network_of(rows, n_vl);
    rp_settings settings = settings_of();
    if (is_any) /* a receive may take the message of a later turn; with a rendezvous, ranks could wait in a circle */
        settings.eager_bytes = 1 << 20;
    rp_sim *sim = rp_open(&net, &settings, N_JOBS, jobs);
    assert(sim != NULL);
    while (rp_run(sim, 1000) == RP_RUNNING)
        ;
    check(rp_get(sim), jobs[0].n_ranks + jobs[1].n_ranks);
    rp_close(sim);
}

int main(void)
{
    for (int i = 0; i < N_SIMULATIONS; i++)
        simulate();
    return 0;
}

/* Opening and closing a simulation. */
#include <stdlib.h>
#include <string.h>

#include "replay/push.h"
#include "replay/sim.h"

static void open_links(rp_sim *sim)
{
    const rp_network *net = &sim->net;
    for (int32_t i = 0; i < net->n_links; i++) {
        rp_link *k = &sim->links[i];
        k->ps_per_byte_q20 = net->ps_per_byte_q20[i];
        k->latency_ps = net->latency_ps[i];
        k->to = net->to[i];
        k->level = net->level[i];
        k->from_host = net->from[i] < net->n_hosts;
        k->to_host = k->to < net->n_hosts;
        k->wake_ps = RP_NEVER;
        k->forward_ps = k->latency_ps + net->switch_latency_ps;
        k->flit_ps = rp_wire_ps(k, net->flit_bytes);
        /* Each table begins with its first entry. */
        k->i_high = (uint8_t)(net->n_high - 1);
        k->i_low = (uint8_t)(net->n_low - 1);
        for (uint32_t vl = 0; vl < 1u << sim->vl_shift; vl++) {
            uint32_t lane = (uint32_t)i << sim->vl_shift | vl;
            sim->in[lane].free_bytes = net->input_bytes[vl];
            sim->in[lane].head = sim->in[lane].tail = RP_NIL;
            sim->out[lane].head = sim->out[lane].tail = sim->out[lane].first_waiting = RP_NIL;
        }
    }
}

static uint16_t lanes_of(const rp_arbitration *table, int32_t n)
{
    uint16_t lanes = 0;
    for (int32_t i = 0; i < n; i++)
        if (table[i].weight > 0)
            lanes |= (uint16_t)(1 << table[i].vl);
    return lanes;
}

static int64_t horizon_of(const rp_sim *sim)
{
    int64_t longest = 1;
    for (int32_t i = 0; i < sim->net.n_links; i++) {
        const rp_link *k = &sim->links[i];
        int64_t ps = rp_wire_ps(k, sim->set.mtu_bytes) + k->forward_ps;
        longest = ps > longest ? ps : longest;
    }
    return 2 * longest;
}

enum { RP_MAX_SLOTS = 1 << 22 };

/* Requests that a program uses; one more is that of blocking calls. What lies beyond is impossible where it is run. */
static int32_t n_slots_of(const rp_op *program, int64_t n_ops)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n_ops; i++) {
        const rp_op *op = &program[i];
        int64_t n = 0;
        if (op->kind == RP_ISEND || op->kind == RP_IRECV || op->kind == RP_WAIT)
            n = op->request + INT64_C(1);
        else if (op->kind == RP_WAITALL)
            n = (int64_t)op->request + op->n;
        most = n > most && n < RP_MAX_SLOTS ? n : most;
    }
    return (int32_t)most + 1;
}

static void open_rank(rp_sim *sim, uint32_t number, int32_t i_job, int32_t i, int32_t n_slots)
{
    const rp_job *job = &sim->jobs[i_job];
    rp_rank *before = number ? &sim->ranks[number - 1] : NULL;
    size_t slots = before ? (size_t)before->slots + (size_t)before->n_slots : 0;
    if (slots > UINT32_MAX - RP_MAX_SLOTS)
        longjmp(sim->no_memory, 1);
    sim->ranks[number] = (rp_rank){
        .program = job->programs[job->program_of_rank[i]],
        .n_ops = job->program_lengths[job->program_of_rank[i]],
        .factor = job->factor_of_rank[i],
        .slots = (uint32_t)slots,
        .n_slots = n_slots,
        .host = job->host_of_rank[i],
        .job = i_job,
        .number = i,
        .draw = rp_mix(sim->job_states[i_job].draw ^ (uint32_t)i),
        .any_head = RP_NIL,
        .any_tail = RP_NIL,
        .arrived_head = RP_NIL,
        .arrived_tail = RP_NIL,
    };
}

/* From the seed; jobs on different hosts draw differently, and a job on the same hosts as an earlier one draws anew. */
static uint64_t draw_of(const rp_sim *sim, int32_t i_job)
{
    const rp_job *job = &sim->jobs[i_job];
    uint64_t draw = rp_mix(sim->set.seed);
    for (int32_t i = 0; i < job->n_ranks; i++)
        draw = rp_mix(draw ^ (uint32_t)job->host_of_rank[i]);
    for (int32_t i = 0; i < i_job; i++)
        if (sim->job_states[i].draw == draw)
            draw = rp_mix(draw);
    return draw;
}

static void open_ranks(rp_sim *sim)
{
    uint32_t number = 0;
    for (int32_t i = 0; i < sim->n_jobs; i++) {
        const rp_job *job = &sim->jobs[i];
        int32_t *slots = rp_zeroed(sim, (size_t)job->n_programs, sizeof *slots);
        for (int32_t k = 0; k < job->n_programs; k++)
            slots[k] = n_slots_of(job->programs[k], job->program_lengths[k]);
        sim->job_states[i] = (rp_job_state){.first_rank = (int32_t)number, .n_ranks = job->n_ranks};
        sim->job_states[i].vl = (uint8_t)sim->net.vl_of_sl[job->service_level];
        sim->job_states[i].draw = draw_of(sim, i);
        sim->job_end_ps[i] = -1;
        for (int32_t k = 0; k < job->n_ranks; k++)
            open_rank(sim, number++, i, k, slots[job->program_of_rank[k]]);
    }
    const rp_rank *last = &sim->ranks[number - 1];
    sim->slots = rp_zeroed(sim, (size_t)last->slots + (size_t)last->n_slots, 1);
}

static void open_links_arrays(rp_sim *sim, size_t n_links, size_t n_jobs)
{
    size_t n_lanes = n_links << sim->vl_shift, n_vl = (size_t)sim->net.n_vl;
    sim->links = rp_zeroed(sim, n_links, sizeof *sim->links);
    sim->out = rp_zeroed(sim, n_lanes, sizeof *sim->out);
    sim->in = rp_zeroed(sim, n_lanes, sizeof *sim->in);
    sim->dirty = rp_zeroed(sim, n_links, sizeof *sim->dirty);
    sim->n_waiting = rp_zeroed(sim, n_links * n_jobs, sizeof *sim->n_waiting);
    sim->cycle = rp_zeroed(sim, n_links, sizeof *sim->cycle);
    sim->busy_ps = rp_zeroed(sim, n_links, sizeof *sim->busy_ps);
    sim->sent_bytes = rp_zeroed(sim, n_links * n_vl, sizeof *sim->sent_bytes);
    sim->received_bytes = rp_zeroed(sim, n_links * n_vl, sizeof *sim->received_bytes);
    if (sim->set.window_ps > 0)
        sim->window_bytes = rp_zeroed(sim, (size_t)sim->set.n_windows_max * n_links, sizeof *sim->window_bytes);
}

static void open_jobs_arrays(rp_sim *sim, size_t n_ranks, size_t n_jobs)
{
    size_t n_cells = (size_t)sim->net.n_levels * n_jobs * (size_t)sim->net.n_vl;
    sim->ranks = rp_zeroed(sim, n_ranks, sizeof *sim->ranks);
    sim->rank_end_ps = rp_zeroed(sim, n_ranks, sizeof *sim->rank_end_ps);
    sim->rank_compute_ps = rp_zeroed(sim, n_ranks, sizeof *sim->rank_compute_ps);
    sim->job_states = rp_zeroed(sim, n_jobs, sizeof *sim->job_states);
    sim->job_end_ps = rp_zeroed(sim, n_jobs, sizeof *sim->job_end_ps);
    sim->job_n_runs = rp_zeroed(sim, n_jobs, sizeof *sim->job_n_runs);
    sim->blocked_ps = rp_zeroed(sim, n_jobs * (n_jobs + 1), sizeof *sim->blocked_ps);
    sim->wait_ps = rp_zeroed(sim, n_cells, sizeof *sim->wait_ps);
    sim->wait_packets = rp_zeroed(sim, n_cells, sizeof *sim->wait_packets);
}

static int open_all(rp_sim *sim)
{
    if (setjmp(sim->no_memory))
        return 0;
    open_links_arrays(sim, (size_t)sim->net.n_links, (size_t)sim->n_jobs);
    open_jobs_arrays(sim, (size_t)sim->n_ranks, (size_t)sim->n_jobs);
    open_ranks(sim);
    rp_open_tables(sim);
    open_links(sim);
    rp_open_crossbars(sim);
    sim->high_lanes = lanes_of(sim->net.high, sim->net.n_high);
    sim->low_lanes = lanes_of(sim->net.low, sim->net.n_low);
    sim->window = sim->window_bytes;
    sim->result.window_ps = sim->set.window_ps;
    rp_queue_open(sim, horizon_of(sim), sim->net.n_links);
    for (int32_t i = 0; i < sim->n_jobs; i++)
        rp_push(sim, sim->jobs[i].start_ps, RP_EV_JOB, (uint32_t)i, 0);
    return 1;
}

void rp_close(rp_sim *sim)
{
    void *grown[] = {sim->packets,      sim->messages,     sim->receives,         sim->marks,
                     sim->pairs.heads,  sim->pairs.tails,  sim->unexpected.heads, sim->unexpected.tails,
                     sim->posted.heads, sim->posted.tails, sim->queue.now,        sim->queue.pool,
                     sim->queue.far};
    for (size_t i = 0; i < sizeof grown / sizeof *grown; i++)
        free(grown[i]);
    for (int i = 0; i < sim->n_kept; i++)
        free(sim->kept[i]);
    free(sim);
}

rp_sim *rp_open(const rp_network *network, const rp_settings *settings, int32_t n_jobs, const rp_job *jobs)
{
    rp_sim *sim = calloc(1, sizeof *sim);
    if (sim == NULL)
        return NULL;
    sim->bytes_now = sizeof *sim;
    sim->net = *network;
    sim->set = *settings;
    sim->jobs = jobs;
    sim->n_jobs = n_jobs;
    for (int32_t i = 0; i < n_jobs; i++)
        sim->n_ranks += jobs[i].n_ranks;
    while (1 << sim->vl_shift < network->n_vl)
        sim->vl_shift++;
    sim->free_packet = sim->free_message = sim->free_receive = RP_NIL;
    if (!open_all(sim)) {
        rp_close(sim);
        return NULL;
    }
    return sim;
}

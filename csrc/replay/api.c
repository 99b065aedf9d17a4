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
        for (int32_t vl = 0; vl < net->n_vl; vl++) {
            uint32_t lane = (uint32_t)i << sim->vl_shift | (uint32_t)vl;
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

/* Requests that a program uses; one more is that of blocking calls. */
static int32_t n_slots_of(const rp_op *program, int64_t n_ops)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n_ops; i++) {
        const rp_op *op = &program[i];
        int64_t n = op->kind == RP_ISEND || op->kind == RP_IRECV || op->kind == RP_WAIT ? op->request + INT64_C(1) : 0;
        most = n > most ? n : most;
    }
    return most < INT32_MAX - 1 ? (int32_t)most + 1 : INT32_MAX;
}

static int open_ranks(rp_sim *sim)
{
    size_t n_slots = 0;
    uint32_t number = 0;
    for (int32_t i = 0; i < sim->n_jobs; i++) {
        const rp_job *job = &sim->jobs[i];
        int32_t *slots = rp_zeroed(sim, (size_t)job->n_programs, sizeof *slots);
        if (slots == NULL)
            return 0;
        for (int32_t k = 0; k < job->n_programs; k++)
            slots[k] = n_slots_of(job->programs[k], job->program_lengths[k]);
        sim->job_states[i] = (rp_job_state){.first_rank = (int32_t)number, .n_ranks = job->n_ranks};
        sim->job_states[i].vl = (uint8_t)sim->net.vl_of_sl[job->service_level];
        sim->job_end_ps[i] = -1;
        for (int32_t k = 0; k < job->n_ranks; k++) {
            int32_t program = job->program_of_rank[k];
            sim->ranks[number++] = (rp_rank){
                .program = job->programs[program],
                .n_ops = job->program_lengths[program],
                .factor = job->factor_of_rank[k],
                .slots = (uint32_t)n_slots,
                .n_slots = slots[program],
                .host = job->host_of_rank[k],
                .job = i,
                .number = k,
                .any_head = RP_NIL,
                .any_tail = RP_NIL,
                .arrived_head = RP_NIL,
                .arrived_tail = RP_NIL,
            };
            n_slots += (size_t)slots[program];
        }
        free(slots);
        sim->bytes_now -= (size_t)job->n_programs * sizeof *slots;
    }
    sim->slots = n_slots < RP_NIL ? rp_zeroed(sim, n_slots, 1) : NULL;
    return sim->slots != NULL;
}

static int open_arrays(rp_sim *sim)
{
    size_t n_links = (size_t)sim->net.n_links, n_lanes = n_links << sim->vl_shift, n_jobs = (size_t)sim->n_jobs;
    size_t n_ranks = (size_t)sim->n_ranks, n_cells = (size_t)sim->net.n_levels * n_jobs * (size_t)sim->net.n_vl;
    int is_windowed = sim->set.window_ps > 0;
    size_t n_window_cells = is_windowed ? (size_t)sim->set.n_windows_max * n_links : 0;
    return (sim->links = rp_zeroed(sim, n_links, sizeof *sim->links)) &&
           (sim->out = rp_zeroed(sim, n_lanes, sizeof *sim->out)) &&
           (sim->in = rp_zeroed(sim, n_lanes, sizeof *sim->in)) &&
           (sim->dirty = rp_zeroed(sim, n_links, sizeof *sim->dirty)) &&
           (sim->n_waiting = rp_zeroed(sim, n_links * n_jobs, sizeof *sim->n_waiting)) &&
           (sim->starved_since_ps = rp_zeroed(sim, n_links, sizeof *sim->starved_since_ps)) &&
           (sim->cycle = rp_zeroed(sim, n_links, sizeof *sim->cycle)) &&
           (sim->busy_ps = rp_zeroed(sim, n_links, sizeof *sim->busy_ps)) &&
           (sim->sent_bytes = rp_zeroed(sim, n_links * (size_t)sim->net.n_vl, sizeof *sim->sent_bytes)) &&
           (sim->received_bytes = rp_zeroed(sim, n_links * (size_t)sim->net.n_vl, sizeof *sim->received_bytes)) &&
           (sim->ranks = rp_zeroed(sim, n_ranks, sizeof *sim->ranks)) &&
           (sim->rank_end_ps = rp_zeroed(sim, n_ranks, sizeof *sim->rank_end_ps)) &&
           (sim->rank_compute_ps = rp_zeroed(sim, n_ranks, sizeof *sim->rank_compute_ps)) &&
           (sim->job_states = rp_zeroed(sim, n_jobs, sizeof *sim->job_states)) &&
           (sim->job_end_ps = rp_zeroed(sim, n_jobs, sizeof *sim->job_end_ps)) &&
           (sim->job_n_runs = rp_zeroed(sim, n_jobs, sizeof *sim->job_n_runs)) &&
           (sim->blocked_ps = rp_zeroed(sim, n_jobs * (n_jobs + 1), sizeof *sim->blocked_ps)) &&
           (sim->wait_ps = rp_zeroed(sim, n_cells, sizeof *sim->wait_ps)) &&
           (sim->wait_packets = rp_zeroed(sim, n_cells, sizeof *sim->wait_packets)) &&
           (!is_windowed || (sim->window_bytes = rp_zeroed(sim, n_window_cells, sizeof *sim->window_bytes)));
}

static int open_all(rp_sim *sim)
{
    if (setjmp(sim->no_memory))
        return 0;
    if (!open_arrays(sim) || !open_ranks(sim) || !rp_open_tables(sim))
        return 0;
    open_links(sim);
    sim->high_lanes = lanes_of(sim->net.high, sim->net.n_high);
    sim->low_lanes = lanes_of(sim->net.low, sim->net.n_low);
    sim->window = sim->window_bytes;
    sim->window_end_ps = sim->result.window_ps = sim->set.window_ps;
    if (!rp_queue_open(sim, horizon_of(sim), 2 * (int64_t)sim->net.n_links))
        return 0;
    for (int32_t i = 0; i < sim->n_jobs; i++)
        rp_push(sim, sim->jobs[i].start_ps, RP_EV_JOB, (uint32_t)i, 0);
    return 1;
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

static void handle(rp_sim *sim, uint32_t kind, uint32_t id, uint32_t payload)
{
    switch (kind) {
    case RP_EV_FREE:
        rp_on_free(sim, id);
        break;
    case RP_EV_ARRIVE:
        rp_on_arrive(sim, id, payload);
        break;
    case RP_EV_READY:
        rp_on_ready(sim, id, payload);
        break;
    case RP_EV_CREDIT:
        rp_on_credit(sim, id, payload);
        break;
    case RP_EV_WAKE:
        rp_on_wake(sim, id);
        break;
    case RP_EV_INJECT:
        rp_inject(sim, id);
        break;
    case RP_EV_LOCAL:
        rp_on_local(sim, id);
        break;
    case RP_EV_RANK:
        rp_on_rank(sim, id);
        break;
    default:
        rp_start_job(sim, id);
    }
}

/* The next event is due after the links have been arbitrated with what has happened up to now. 0: there is none. */
static int next_event(rp_sim *sim)
{
    rp_queue *q = &sim->queue;
    for (;;) {
        if (q->i_now == q->n_now) {
            if (sim->n_dirty)
                rp_arbitrate(sim);
            else if (!rp_queue_advance(sim))
                return 0;
            continue;
        }
        int64_t t_ps = (q->bucket << q->shift) + (int64_t)(q->now[q->i_now].key >> (RP_ID_BITS + RP_KIND_BITS));
        if (t_ps == sim->now)
            return 1;
        if (sim->n_dirty) {
            rp_arbitrate(sim);
            continue;
        }
        sim->now = t_ps;
        return 1;
    }
}

static void loop(rp_sim *sim, int64_t n_events)
{
    rp_queue *q = &sim->queue;
    for (; n_events > 0 && sim->status == RP_RUNNING; n_events--) {
        if (!next_event(sim)) {
            rp_stalled(sim);
            return;
        }
        rp_event event = q->now[q->i_now++];
        sim->result.n_events++;
        uint32_t kind = (uint32_t)(event.key >> RP_ID_BITS) & ((1u << RP_KIND_BITS) - 1);
        handle(sim, kind, (uint32_t)event.key, event.payload);
    }
}

int rp_run(rp_sim *sim, int64_t n_events)
{
    if (sim->status != RP_RUNNING)
        return sim->status;
    if (setjmp(sim->no_memory))
        sim->status = RP_E_MEMORY;
    else
        loop(sim, n_events);
    /* Jobs that go round the deadlock would hide it for ever. In VOQ mode it shows when nothing else moves. */
    if (sim->status == RP_RUNNING && !sim->net.is_voq && rp_find_cycle(sim, sim->slice_start_ps))
        sim->status = RP_E_NETWORK_DEADLOCK;
    sim->slice_start_ps = sim->now;
    if (sim->status != RP_RUNNING)
        rp_fill_result(sim);
    return sim->status;
}

const rp_result *rp_get(rp_sim *sim)
{
    rp_result *r = &sim->result;
    r->status = sim->status;
    r->n_jobs = sim->n_jobs;
    r->n_levels = sim->net.n_levels;
    r->n_vl = sim->net.n_vl;
    r->n_links = sim->net.n_links;
    r->now_ps = sim->now;
    r->peak_bytes = (int64_t)sim->bytes_peak;
    r->job_end_ps = sim->job_end_ps;
    r->job_n_runs = sim->job_n_runs;
    r->rank_end_ps = sim->rank_end_ps;
    r->rank_compute_ps = sim->rank_compute_ps;
    r->wait_ps = sim->wait_ps;
    r->wait_packets = sim->wait_packets;
    r->blocked_ps = sim->blocked_ps;
    r->sent_bytes = sim->sent_bytes;
    r->received_bytes = sim->received_bytes;
    r->busy_ps = sim->busy_ps;
    r->window_bytes = sim->window_bytes;
    r->marks = sim->marks;
    r->cycle = sim->cycle;
    r->reports = sim->reports;
    return r;
}

void rp_close(rp_sim *sim)
{
    void *all[] = {
        sim->links,
        sim->out,
        sim->in,
        sim->dirty,
        sim->n_waiting,
        sim->packets,
        sim->messages,
        sim->receives,
        sim->pairs.heads,
        sim->pairs.tails,
        sim->posted.heads,
        sim->posted.tails,
        sim->unexpected.heads,
        sim->unexpected.tails,
        sim->ranks,
        sim->slots,
        sim->job_states,
        sim->job_end_ps,
        sim->rank_end_ps,
        sim->rank_compute_ps,
        sim->wait_ps,
        sim->wait_packets,
        sim->blocked_ps,
        sim->busy_ps,
        sim->window_bytes,
        sim->sent_bytes,
        sim->received_bytes,
        sim->job_n_runs,
        sim->cycle,
        sim->marks,
        sim->starved_since_ps,
        sim->queue.now,
        sim->queue.heads,
        sim->queue.filled,
        sim->queue.pool,
        sim->queue.far,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(sim);
}

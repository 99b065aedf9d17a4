/* A simulation from rp_open to rp_close: memory, event loop, result. */
#include <stdlib.h>
#include <string.h>

#include "replay/sim.h"

/* ---- memory ---- */

/* Pools grow by doubling, so memory is proportional to the packets and messages in flight at the same time. */

enum { RP_FIRST_ROOM = 1024 };

static void count_bytes(rp_sim *sim, size_t n)
{
    sim->bytes_now += n;
    if (sim->bytes_now > sim->bytes_peak)
        sim->bytes_peak = sim->bytes_now;
}

/* Allocate aligned to cache lines, because links, packets and input lanes fill whole cache lines. */
static void *lines(size_t n, size_t size)
{
    size_t room;
    if (__builtin_mul_overflow(n ? n : 1, size, &room) || room > SIZE_MAX - 64)
        return NULL;
    return aligned_alloc(64, (room + 63) / 64 * 64);
}

void *rp_zeroed(rp_sim *sim, size_t n, size_t size)
{
    void *made = sim->n_kept < RP_N_KEPT ? lines(n, size) : NULL;
    if (made == NULL)
        longjmp(sim->no_memory, 1);
    sim->kept[sim->n_kept++] = made;
    memset(made, 0, n * size);
    count_bytes(sim, n * size);
    return made;
}

void *rp_grown(rp_sim *sim, void *old, size_t n_old, size_t n_new, size_t size)
{
    void *made = n_new < RP_NIL ? lines(n_new, size) : NULL;
    if (made == NULL)
        longjmp(sim->no_memory, 1);
    count_bytes(sim, n_new * size);
    if (n_old)
        memcpy(made, old, n_old * size);
    free(old);
    sim->bytes_now -= n_old * size;
    return made;
}

void *rp_doubled(rp_sim *sim, void *old, uint32_t *n_room, size_t size)
{
    size_t n = *n_room ? 2 * (size_t)*n_room : RP_FIRST_ROOM;
    void *made = rp_grown(sim, old, *n_room, n, size);
    *n_room = (uint32_t)n;
    return made;
}

/* The i-th free index among n indices, where n is a power of two. Tests shuffle the order. */
static uint32_t nth_free(const rp_sim *sim, uint32_t i, uint32_t n)
{
    uint32_t step = sim->set.shuffle ? (uint32_t)rp_mix(sim->set.shuffle) | 1 : 1;
    return i * step & (n - 1);
}

/* Allocation from a pool: take an entry from the list of free entries, which are linked by `next`. If the list is
   empty, grow the pool. */
#define RP_DEFINE_POOL(name, type, array, room, first_free, next) \
    static void grow_##name##s(rp_sim *sim) \
    { \
        uint32_t n_before = sim->room; \
        sim->array = rp_doubled(sim, sim->array, &sim->room, sizeof(type)); \
        for (uint32_t i = sim->room - n_before; i-- > 0;) { \
            uint32_t number = n_before + nth_free(sim, i, sim->room - n_before); \
            sim->array[number].next = sim->first_free; \
            sim->first_free = number; \
        } \
    } \
    uint32_t rp_new_##name(rp_sim *sim) \
    { \
        if (sim->first_free == RP_NIL) \
            grow_##name##s(sim); \
        uint32_t i = sim->first_free; \
        sim->first_free = sim->array[i].next; \
        return i; \
    } \
    void rp_free_##name(rp_sim *sim, uint32_t i) \
    { \
        sim->array[i].next = sim->first_free; \
        sim->first_free = i; \
    }

RP_DEFINE_POOL(packet, rp_packet, packets, n_packet_room, free_packet, next)
RP_DEFINE_POOL(message, rp_message, messages, n_message_room, free_message, next)
RP_DEFINE_POOL(receive, rp_receive, receives, n_receive_room, free_receive, next_key)

/* ---- opening and closing ---- */

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
        /* Start at the last entry, so that arbitration begins with the first. */
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

static int32_t n_processors_of(const rp_op *program, int64_t n_ops)
{
    return n_ops && program->kind == RP_GRAPH && program->n > 0 && program->n < RP_MAX_SLOTS ? program->n : 0;
}

/* Number of requests that a program uses, or number of rows of a graph, plus one for blocking calls. An operation with
   a larger request number is reported as invalid when it runs. */
static int32_t n_slots_of(const rp_op *program, int64_t n_ops)
{
    int64_t most = 0;
    if (n_processors_of(program, n_ops))
        return (int32_t)(n_ops < INT32_MAX ? n_ops + 1 : INT32_MAX);
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
    if (slots + (size_t)n_slots > UINT32_MAX)
        longjmp(sim->no_memory, 1);
    const rp_op *program = job->programs[job->program_of_rank[i]];
    int64_t n_ops = job->program_lengths[job->program_of_rank[i]];
    sim->ranks[number] = (rp_rank){
        .program = program,
        .n_ops = n_ops,
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
        .n_processors = n_processors_of(program, n_ops),
        .first_processor = sim->n_processors,
        .first_row = sim->n_rows,
    };
    sim->n_processors += (uint32_t)sim->ranks[number].n_processors;
    sim->n_rows += sim->ranks[number].n_processors ? (uint32_t)n_slots : 0;
}

/* Random number of a job, derived from the seed and the job's hosts. Jobs on different hosts get different numbers, and
   so do two jobs on the same hosts. */
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
    sim->processors = rp_zeroed(sim, sim->n_processors, sizeof *sim->processors);
    sim->needs = rp_zeroed(sim, sim->n_rows, sizeof *sim->needs);
}

/* Allocate an array of n entries for a field of the simulation. */
#define NEW(field, n) sim->field = rp_zeroed(sim, n, sizeof *sim->field)
#define NEW_RESULT(type, name, n) \
    NEW(name, n); \
    sim->result.name = sim->name;

static void open_arrays(rp_sim *sim)
{
    size_t n_links = (size_t)sim->net.n_links, n_jobs = (size_t)sim->n_jobs, n_ranks = (size_t)sim->n_ranks;
    size_t n_lanes = n_links << sim->vl_shift, n_vl = (size_t)sim->net.n_vl;
    size_t n_cells = (size_t)sim->net.n_levels * n_jobs * n_vl;
    NEW(links, n_links);
    NEW(out, n_lanes);
    NEW(in, n_lanes);
    NEW(dirty, n_links);
    NEW(n_waiting, n_links * n_jobs);
    NEW(ranks, n_ranks);
    NEW(job_states, n_jobs);
    RP_RESULT_ARRAYS(NEW_RESULT)
    if (sim->set.window_ps > 0)
        NEW(window_bytes, (size_t)sim->set.n_windows_max * n_links);
}

static int open_all(rp_sim *sim)
{
    if (setjmp(sim->no_memory))
        return 0;
    open_arrays(sim);
    open_ranks(sim);
    rp_open_tables(sim);
    open_links(sim);
    rp_open_crossbars(sim);
    sim->high_lanes = lanes_of(sim->net.high, sim->net.n_high);
    sim->low_lanes = lanes_of(sim->net.low, sim->net.n_low);
    sim->result.window_bytes = sim->window = sim->window_bytes;
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
    sim->result = (rp_result){.n_jobs = n_jobs,
                              .n_levels = network->n_levels,
                              .n_vl = network->n_vl,
                              .n_links = network->n_links,
                              .window_ps = settings->window_ps,
                              .reports = sim->reports};
    sim->free_packet = sim->free_message = sim->free_receive = RP_NIL;
    if (!open_all(sim)) {
        rp_close(sim);
        return NULL;
    }
    return sim;
}

/* ---- running ---- */

static void handle(rp_sim *sim, uint32_t kind, uint32_t id, uint32_t payload)
{
    switch (kind) {
    case RP_EV_FREE:
        return rp_on_free(sim, id);
    case RP_EV_ARRIVE:
        return rp_on_arrive(sim, id, payload);
    case RP_EV_READY:
        return rp_enter_switch(sim, payload);
    case RP_EV_CREDIT:
        return rp_on_credit(sim, id, payload);
    case RP_EV_WAKE:
        return rp_on_wake(sim, id);
    case RP_EV_INJECT:
        return rp_inject(sim, payload);
    case RP_EV_LOCAL:
        return rp_on_local(sim, payload);
    case RP_EV_RANK:
        return rp_on_rank(sim, id);
    case RP_EV_CROSSED:
        return rp_mark_switch(sim, id);
    case RP_EV_ROW:
        return rp_on_row(sim, payload, id);
    default:
        return rp_start_job(sim, id);
    }
}

/* Advance the time to the next event, after crossbars and links have chosen packets. Returns 0 if no event is left. */
static int next_event(rp_sim *sim)
{
    rp_queue *q = &sim->queue;
    for (;;) {
        if (q->i_now == q->n_now) {
            if (!rp_settle(sim) && !rp_queue_advance(sim))
                return 0;
            continue;
        }
        int64_t t_ps = (q->bucket << q->shift) + (int64_t)(q->now[q->i_now].key >> (RP_ID_BITS + RP_KIND_BITS));
        if (t_ps == sim->now)
            return 1;
        if (rp_settle(sim))
            continue;
        sim->now = t_ps;
        return 1;
    }
}

static void loop(rp_sim *sim, int64_t n_events)
{
    rp_queue *q = &sim->queue;
    for (; n_events > 0 && sim->status == RP_RUNNING; n_events--) {
        if (!next_event(sim)) {
            sim->status = sim->n_live_packets && rp_find_cycle(sim, 1) ? RP_E_NETWORK_DEADLOCK : RP_E_PROGRAM_DEADLOCK;
            return;
        }
        rp_event event = q->now[q->i_now++];
        sim->result.n_events++;
        uint32_t kind = (uint32_t)(event.key >> RP_ID_BITS) & ((1u << RP_KIND_BITS) - 1);
        handle(sim, kind, (uint32_t)event.key, event.payload);
    }
}

static void count_unsent(rp_sim *sim)
{
    int32_t n_jobs = sim->n_jobs, n_vl = sim->net.n_vl;
    for (int32_t i = 0; i < n_jobs; i++) {
        int64_t *row = sim->blocked_ps + i * (n_jobs + 1), rest = 0;
        for (int32_t level = 0; level < sim->net.n_levels; level++)
            for (int32_t vl = 0; vl < n_vl; vl++)
                rest += sim->wait_ps[((size_t)level * (size_t)n_jobs + (size_t)i) * (size_t)n_vl + (size_t)vl];
        for (int32_t k = 0; k < n_jobs; k++)
            rest -= row[k];
        row[n_jobs] = rest;
    }
}

static void fill_result(rp_sim *sim)
{
    int32_t n_vl = sim->net.n_vl;
    count_unsent(sim);
    for (int32_t link = 0; link < sim->net.n_links; link++) {
        sim->busy_ps[link] = sim->links[link].busy_ps;
        for (int32_t vl = 0; vl < n_vl; vl++) {
            size_t lane = (size_t)link << sim->vl_shift | (size_t)vl;
            sim->sent_bytes[link * n_vl + vl] = sim->out[lane].sent_bytes;
            sim->received_bytes[link * n_vl + vl] = sim->in[lane].received_bytes;
        }
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
    /* Search for deadlocks while the simulation runs: otherwise, jobs that avoid the deadlocked links could hide a
       deadlock for ever. */
    if (sim->status == RP_RUNNING && rp_find_cycle(sim, 0))
        sim->status = RP_E_NETWORK_DEADLOCK;
    if (sim->status != RP_RUNNING)
        fill_result(sim);
    return sim->status;
}

const rp_result *rp_get(rp_sim *sim)
{
    sim->result.status = sim->status;
    sim->result.now_ps = sim->now;
    sim->result.peak_bytes = (int64_t)sim->bytes_peak;
    return &sim->result;
}

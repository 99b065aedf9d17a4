#include "replay/push.h"
#include "replay/sim.h"

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
        rp_on_ready(sim, payload);
        break;
    case RP_EV_CREDIT:
        rp_on_credit(sim, id, payload);
        break;
    case RP_EV_WAKE:
        rp_on_wake(sim, id);
        break;
    case RP_EV_INJECT:
        rp_inject(sim, payload);
        break;
    case RP_EV_LOCAL:
        rp_on_local(sim, payload);
        break;
    case RP_EV_RANK:
        rp_on_rank(sim, id);
        break;
    case RP_EV_CROSSED:
        rp_mark_switch(sim, id);
        break;
    default:
        rp_start_job(sim, id);
    }
}

/* Crossbars and links choose with what has happened up to now. 0: none had to. */
static int settle(rp_sim *sim)
{
    if (!sim->n_dirty && !sim->n_dirty_switches)
        return 0;
    if (sim->n_dirty_switches)
        rp_cross_switches(sim);
    rp_arbitrate(sim);
    return 1;
}

/* The next event is due after that. 0: there is none. */
static int next_event(rp_sim *sim)
{
    rp_queue *q = &sim->queue;
    for (;;) {
        if (q->i_now == q->n_now) {
            if (!settle(sim) && !rp_queue_advance(sim))
                return 0;
            continue;
        }
        int64_t t_ps = (q->bucket << q->shift) + (int64_t)(q->now[q->i_now].key >> (RP_ID_BITS + RP_KIND_BITS));
        if (t_ps == sim->now)
            return 1;
        if (settle(sim))
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
    /* Jobs that go round the deadlock would hide it for ever. */
    if (sim->status == RP_RUNNING && rp_find_cycle(sim, 0))
        sim->status = RP_E_NETWORK_DEADLOCK;
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

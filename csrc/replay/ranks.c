/* Ranks and jobs. A rank executes its program until it has to wait. Jobs start, end, and start again until every job
   has run once, as in Dimemas (Jokanovic 2014, section 2.2.3). */
#include <math.h>
#include <string.h>

#include "replay/sim.h"

/* ---- reports on jobs that cannot continue ---- */

static void add_report(rp_sim *sim, rp_report report)
{
    if (sim->result.n_reports < RP_N_REPORTS)
        sim->reports[sim->result.n_reports] = report;
    sim->result.n_reports++;
}

static int32_t number_in_job(const rp_sim *sim, int32_t rank)
{
    return rank < 0 ? RP_ANY : sim->ranks[rank].number;
}

static void report_message(rp_sim *sim, uint32_t message)
{
    const rp_message *m = &sim->messages[message];
    add_report(sim, (rp_report){m->job, number_in_job(sim, m->src), number_in_job(sim, m->dst), m->tag, m->comm,
                                m->kind, m->i_op, m->n_bytes, m->posted_ps});
}

static void report_receive(rp_sim *sim, uint32_t receive)
{
    const rp_receive *r = &sim->receives[receive];
    add_report(sim, (rp_report){sim->ranks[r->rank].job, number_in_job(sim, r->rank), number_in_job(sim, r->src),
                                r->tag, r->comm, r->kind, r->i_op, r->n_bytes, r->posted_ps});
}

static int set_pending(rp_report *report, int32_t peer, int32_t tag, int32_t comm, int64_t n_bytes, int64_t t_ps)
{
    *report = (rp_report){report->job, report->rank, peer, tag, comm, report->kind, report->i_op, n_bytes, t_ps};
    return 1;
}

/* Report the message or receive of a pending request. From the peer in the report, users can find a circle of waiting
   ranks. A linear search suffices, because reports are made once. */
static int fill_pending(const rp_sim *sim, const rp_rank *rank, int32_t slot, rp_report *report)
{
    int32_t number = (int32_t)(rank - sim->ranks);
    for (uint32_t at = 0; at <= sim->posted.mask; at++) {
        for (uint32_t i = sim->posted.heads[at]; i != RP_NIL; i = sim->receives[i].next_key) {
            const rp_receive *r = &sim->receives[i];
            if (r->rank == number && r->slot == slot)
                return set_pending(report, number_in_job(sim, r->src), r->tag, r->comm, r->n_bytes, r->posted_ps);
        }
    }
    for (uint32_t at = 0; at <= sim->unexpected.mask; at++) {
        for (uint32_t i = sim->unexpected.heads[at]; i != RP_NIL; i = sim->messages[i].next_key) {
            const rp_message *m = &sim->messages[i];
            if (m->src == number && m->slot == slot)
                return set_pending(report, number_in_job(sim, m->dst), m->tag, m->comm, m->n_bytes, m->posted_ps);
        }
    }
    return 0;
}

static void report_waiting(rp_sim *sim, uint32_t number)
{
    const rp_rank *rank = &sim->ranks[number];
    int64_t i_op = rank->i_op - 1;
    rp_report report = {rank->job, rank->number, RP_ANY, RP_ANY, 0, rank->program[i_op].kind, i_op, 0, sim->now};
    if (sim->result.n_reports < RP_N_REPORTS)
        for (int32_t i = 0; i < rank->wait_n; i++)
            if (sim->slots[rank->slots + (uint32_t)(rank->wait_first + i)] == RP_PENDING &&
                fill_pending(sim, rank, rank->wait_first + i, &report)) {
                if (rank->n_processors) {
                    report.i_op = i;
                    report.kind = rank->program[i].kind;
                }
                break;
            }
    add_report(sim, report);
}

static void report_program(rp_sim *sim, uint32_t number, const rp_op *op)
{
    const rp_rank *rank = &sim->ranks[number];
    add_report(sim, (rp_report){rank->job, rank->number, op->peer, op->tag, op->comm, op->kind, rank->i_op, op->value,
                                sim->now});
}

/* ---- operations ---- */

static int32_t turn(const rp_rank *rank)
{
    return rank->depth ? rank->loops[rank->depth - 1].i : 0;
}

/* The other rank's number in the job; -1: any rank, or out of range. */
static int64_t peer_of(const rp_sim *sim, const rp_rank *rank, const rp_op *op)
{
    int64_t i = turn(rank), n_ranks = sim->jobs[rank->job].n_ranks;
    switch (op->peer_mode) {
    case RP_ABSOLUTE:
        return op->peer;
    case RP_SHIFT:
        return ((rank->number + op->peer + op->n * i) % n_ranks + n_ranks) % n_ranks;
    case RP_XOR:
        return i < 31 ? rank->number ^ (int64_t)op->peer << i : n_ranks;
    case RP_XOR_STEP:
        return rank->number ^ (op->peer + op->n * i);
    default:
        return n_ranks;
    }
}

static int is_possible(const rp_sim *sim, const rp_rank *rank, const rp_op *op, int64_t peer)
{
    int is_receive = op->kind == RP_RECV || op->kind == RP_IRECV;
    int is_own_slot = op->kind == RP_ISEND || op->kind == RP_IRECV;
    if (peer >= sim->jobs[rank->job].n_ranks || peer < (is_receive ? RP_ANY : 0) || op->value < 0)
        return 0;
    if (op->tag < (is_receive ? RP_ANY : 0))
        return 0;
    if (!is_own_slot)
        return 1;
    return op->request >= 0 && op->request < rank->n_slots - 1 &&
           sim->slots[rank->slots + (uint32_t)op->request] == RP_EMPTY;
}

static uint32_t number_of(const rp_sim *sim, const rp_rank *rank)
{
    return (uint32_t)(rank - sim->ranks);
}

static int32_t slot_of(const rp_rank *rank, const rp_op *op)
{
    if (rank->n_processors)
        return (int32_t)(op - rank->program);
    return op->kind == RP_ISEND || op->kind == RP_IRECV ? op->request : rank->n_slots - 1;
}

static void post_send(rp_sim *sim, rp_rank *rank, const rp_op *op, int32_t peer)
{
    uint32_t message = rp_new_message(sim);
    rp_message *m = &sim->messages[message];
    int is_rendezvous = op->value > sim->set.eager_bytes || op->flags & RP_SYNCHRONOUS;
    int32_t least = sim->set.control_bytes > 0 ? sim->set.control_bytes : 1;
    memset(m, 0, sizeof *m);
    m->n_bytes = op->value;
    m->wire_bytes = op->value > least ? op->value : least;
    m->left_bytes = m->missing_bytes = is_rendezvous ? least : m->wire_bytes;
    m->posted_ps = sim->now;
    m->i_op = rank->i_op - 1;
    m->src = (int32_t)number_of(sim, rank);
    m->dst = sim->job_states[rank->job].first_rank + peer;
    m->tag = op->tag;
    m->comm = op->comm;
    m->job = (uint16_t)rank->job;
    m->kind = op->kind;
    m->phase = is_rendezvous ? RP_REQUEST : RP_EAGER;
    m->receive = RP_NIL;
    m->draw = rp_mix(rank->draw + rank->n_sent++);
    int is_open = is_rendezvous || op->flags & RP_UNBUFFERED;
    m->slot = is_open ? slot_of(rank, op) : -1;
    sim->slots[rank->slots + (uint32_t)slot_of(rank, op)] = is_open ? RP_PENDING : RP_SENT;
    m->number = (uint32_t)sim->result.n_messages++;
    rp_follow(sim, message);
    rp_send_at(sim, message, sim->now + sim->set.send_overhead_ps + sim->set.mpi_latency_ps);
}

static void post_receive(rp_sim *sim, const rp_rank *rank, const rp_op *op, int32_t peer)
{
    uint32_t receive = rp_new_receive(sim);
    int32_t src = peer == RP_ANY ? RP_ANY : sim->job_states[rank->job].first_rank + peer;
    sim->receives[receive] = (rp_receive){
        .serial = sim->n_receives++,
        .posted_ps = sim->now,
        .i_op = rank->i_op - 1,
        .n_bytes = op->value,
        .rank = (int32_t)number_of(sim, rank),
        .src = src,
        .tag = op->tag,
        .comm = op->comm,
        .slot = slot_of(rank, op),
        .kind = op->kind,
    };
    sim->slots[rank->slots + (uint32_t)slot_of(rank, op)] = RP_PENDING;
    rp_post_receive(sim, receive);
}

static void compute_ps(rp_sim *sim, rp_rank *rank, int64_t duration_ps)
{
    rp_push(sim, sim->now + duration_ps, RP_EV_RANK, number_of(sim, rank), 0);
}

/* Whether the rank can continue at once: all requests that it waits for are complete, and their receives cost no
   time. */
static int pass_wait(rp_sim *sim, rp_rank *rank)
{
    uint8_t *slots = sim->slots + rank->slots + rank->wait_first;
    int32_t n_received = 0;
    rank->n_open = 0;
    for (int32_t i = 0; i < rank->wait_n; i++)
        rank->n_open += slots[i] == RP_PENDING;
    if (rank->n_open) {
        rank->is_blocked = 1;
        rp_deactivate(sim, (uint32_t)rank->job);
        return 0;
    }
    for (int32_t i = 0; i < rank->wait_n; i++) {
        n_received += slots[i] == RP_RECEIVED;
        slots[i] = RP_EMPTY;
    }
    rank->wait_n = 0;
    if (n_received == 0 || sim->set.recv_overhead_ps == 0)
        return 1;
    compute_ps(sim, rank, n_received * sim->set.recv_overhead_ps);
    return 0;
}

static int wait_for(rp_sim *sim, rp_rank *rank, int32_t first, int32_t n)
{
    rank->wait_first = first;
    rank->wait_n = n;
    return pass_wait(sim, rank);
}

int rp_impossible(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    rank->i_op--;
    report_program(sim, number_of(sim, rank), op);
    sim->status = RP_E_PROGRAM;
    return 0;
}

int rp_do_message(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    int64_t peer = peer_of(sim, rank, op);
    if (!is_possible(sim, rank, op, peer))
        return rp_impossible(sim, rank, op);
    int is_receive = op->kind == RP_RECV || op->kind == RP_IRECV;
    int is_blocking = op->kind == RP_SEND || op->kind == RP_RECV;
    if (is_receive)
        post_receive(sim, rank, op, (int32_t)peer);
    else
        post_send(sim, rank, op, (int32_t)peer);
    if (rank->n_processors)
        return 1;
    if (!is_receive && sim->set.send_overhead_ps) {
        rank->wait_first = rank->n_slots - 1;
        rank->wait_n = is_blocking;
        compute_ps(sim, rank, sim->set.send_overhead_ps);
        return 0;
    }
    return is_blocking ? wait_for(sim, rank, rank->n_slots - 1, 1) : 1;
}

/* Skip a loop of no iterations: continue after its RP_END. */
static int skip_loop(rp_rank *rank)
{
    for (int64_t depth = 1; rank->i_op < rank->n_ops && depth > 0; rank->i_op++)
        depth += (rank->program[rank->i_op].kind == RP_LOOP) - (rank->program[rank->i_op].kind == RP_END);
    return 1;
}

static int do_loop(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    if (op->n <= 0)
        return skip_loop(rank);
    if (rank->depth == RP_MAX_DEPTH)
        return rp_impossible(sim, rank, op);
    rank->loops[rank->depth++] = (rp_loop){rank->i_op, op->n, 0};
    return 1;
}

static int do_end(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    if (rank->depth == 0)
        return rp_impossible(sim, rank, op);
    rp_loop *loop = &rank->loops[rank->depth - 1];
    if (++loop->i < loop->n)
        rank->i_op = loop->start;
    else
        rank->depth--;
    return 1;
}

int64_t rp_compute_ps(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    double duration_ps = (double)op->value * 1000.0 * rank->factor;
    if (!(duration_ps >= 0 && duration_ps < 4e18))
        return rp_impossible(sim, rank, op);
    int64_t ps = llround(duration_ps);
    if (sim->job_n_runs[rank->job] == 0)
        sim->rank_compute_ps[number_of(sim, rank)] += ps;
    return ps;
}

static int do_compute(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    int64_t ps = rp_compute_ps(sim, rank, op);
    if (ps == 0)
        return 1;
    compute_ps(sim, rank, ps);
    return 0;
}

static int do_wait(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    int32_t n = op->kind == RP_WAIT ? 1 : op->n;
    if (n < 0 || op->request < 0 || (int64_t)op->request + n >= rank->n_slots)
        return rp_impossible(sim, rank, op);
    return wait_for(sim, rank, op->request, n);
}

void rp_record_mark(rp_sim *sim, const rp_rank *rank, int64_t value)
{
    if (sim->job_n_runs[rank->job] > 0)
        return;
    if (sim->result.n_marks == sim->n_mark_room)
        sim->result.marks = sim->marks = rp_doubled(sim, sim->marks, &sim->n_mark_room, sizeof *sim->marks);
    sim->marks[sim->result.n_marks++] = (rp_mark){value, sim->now, rank->job, rank->number};
}

/* Execute one operation. Returns whether the rank continues with the next operation at once. */
static int do_op(rp_sim *sim, rp_rank *rank, const rp_op *op)
{
    switch (op->kind) {
    case RP_COMPUTE:
        return do_compute(sim, rank, op);
    case RP_SEND:
    case RP_ISEND:
    case RP_RECV:
    case RP_IRECV:
        return rp_do_message(sim, rank, op);
    case RP_WAIT:
    case RP_WAITALL:
        return do_wait(sim, rank, op);
    case RP_LOOP:
        return do_loop(sim, rank, op);
    case RP_END:
        return do_end(sim, rank, op);
    case RP_MARK:
        rp_record_mark(sim, rank, op->value);
        return 1;
    default:
        return rp_impossible(sim, rank, op);
    }
}

void rp_rank_ended(rp_sim *sim, rp_rank *rank)
{
    uint32_t i = (uint32_t)rank->job;
    rp_job_state *job = &sim->job_states[i];
    rank->is_ended = 1;
    if (sim->job_n_runs[i] == 0)
        sim->rank_end_ps[number_of(sim, rank)] = sim->now;
    if (--job->n_running == 0 && sim->job_n_runs[i] == 0)
        sim->job_end_ps[i] = sim->now;
    rp_deactivate(sim, i);
}

static void run_rank(rp_sim *sim, uint32_t number)
{
    rp_rank *rank = &sim->ranks[number];
    if (rank->n_processors) {
        rp_run_graph(sim, rank);
        return;
    }
    do {
        if (rank->i_op == rank->n_ops || rank->program[rank->i_op].kind == RP_END_PROGRAM) {
            rp_rank_ended(sim, rank);
            return;
        }
    } while (do_op(sim, rank, &rank->program[rank->i_op++]) && sim->status == RP_RUNNING);
}

void rp_on_rank(rp_sim *sim, uint32_t number)
{
    rp_rank *rank = &sim->ranks[number];
    if (rank->wait_n == 0 || pass_wait(sim, rank))
        run_rank(sim, number);
}

void rp_complete(rp_sim *sim, int32_t number, int32_t slot, uint8_t state)
{
    rp_rank *rank = &sim->ranks[number];
    sim->slots[rank->slots + (uint32_t)slot] = state;
    if (rank->n_processors) {
        rp_complete_row(sim, rank, (uint32_t)slot);
        return;
    }
    if (!rank->is_blocked || slot < rank->wait_first || slot >= rank->wait_first + rank->wait_n || --rank->n_open > 0)
        return;
    rank->is_blocked = 0;
    sim->job_states[rank->job].n_active++;
    rp_on_rank(sim, (uint32_t)number);
}

/* ---- jobs ---- */

void rp_start_job(rp_sim *sim, uint32_t number)
{
    rp_job_state *job = &sim->job_states[number];
    job->n_running = job->n_active = job->n_ranks;
    job->started_ps = sim->now;
    for (int32_t i = 0; i < job->n_ranks; i++) {
        rp_rank *rank = &sim->ranks[job->first_rank + i];
        rank->i_op = 0;
        rank->wait_n = 0;
        rank->n_sent = 0;
        rank->depth = rank->is_blocked = rank->is_ended = 0;
        memset(sim->slots + rank->slots, RP_EMPTY, (size_t)rank->n_slots);
    }
    for (int32_t i = 0; i < job->n_ranks && sim->status == RP_RUNNING; i++)
        run_rank(sim, (uint32_t)(job->first_rank + i));
}

static void report_unmatched(rp_sim *sim, uint32_t job)
{
    const rp_job_state *state = &sim->job_states[job];
    for (int32_t i = 0; i < state->n_ranks; i++)
        for (uint32_t m = sim->ranks[state->first_rank + i].arrived_head; m != RP_NIL;
             m = sim->messages[m].next_arrived)
            report_message(sim, m);
    for (int32_t i = 0; i < state->n_ranks; i++)
        for (uint32_t r = sim->ranks[state->first_rank + i].any_head; r != RP_NIL; r = sim->receives[r].next_any)
            report_receive(sim, r);
    for (uint32_t at = 0; at <= sim->posted.mask; at++)
        for (uint32_t r = sim->posted.heads[at]; r != RP_NIL; r = sim->receives[r].next_key)
            if (sim->ranks[sim->receives[r].rank].job == (int32_t)job)
                report_receive(sim, r);
    sim->status = RP_E_UNMATCHED;
}

static void report_deadlock(rp_sim *sim, uint32_t job)
{
    const rp_job_state *state = &sim->job_states[job];
    for (int32_t i = 0; i < state->n_ranks; i++)
        if (!sim->ranks[state->first_rank + i].is_ended)
            report_waiting(sim, (uint32_t)(state->first_rank + i));
    sim->status = RP_E_PROGRAM_DEADLOCK;
}

/* Called when no rank of the job is active and no message is in flight: the job has ended, or cannot continue. */
void rp_job_idle(rp_sim *sim, uint32_t number)
{
    rp_job_state *job = &sim->job_states[number];
    if (sim->status != RP_RUNNING) /* an operation was invalid */
        return;
    if (job->n_running > 0) {
        report_deadlock(sim, number);
    } else if (job->n_unexpected || job->n_receives) {
        report_unmatched(sim, number);
    } else {
        if (sim->job_n_runs[number]++ == 0 && ++sim->n_done == sim->n_jobs)
            sim->status = RP_DONE;
        else if (sim->jobs[number].is_restarted && sim->now > job->started_ps) /* runs of no duration would never end */
            rp_push(sim, sim->now, RP_EV_JOB, number, 0);
    }
}

/* What is told of jobs and networks that cannot go on. */
#include "replay/sim.h"

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

void rp_report_message(rp_sim *sim, uint32_t message)
{
    const rp_message *m = &sim->messages[message];
    add_report(sim, (rp_report){m->job, number_in_job(sim, m->src), number_in_job(sim, m->dst), m->tag, m->comm,
                                m->kind, m->i_op, m->n_bytes, m->posted_ps});
}

void rp_report_receive(rp_sim *sim, uint32_t receive)
{
    const rp_receive *r = &sim->receives[receive];
    add_report(sim, (rp_report){sim->ranks[r->rank].job, number_in_job(sim, r->rank), number_in_job(sim, r->src),
                                r->tag, r->comm, r->kind, r->i_op, r->n_bytes, r->posted_ps});
}

/* The message or receive of a pending request, whose peer tells a circle. Looks through all: this happens once. */
static int fill_pending(const rp_sim *sim, const rp_rank *rank, int32_t slot, rp_report *report)
{
    int32_t number = (int32_t)(rank - sim->ranks);
    for (uint32_t at = 0; at <= sim->posted.mask; at++) {
        for (uint32_t i = sim->posted.heads[at]; i != RP_NIL; i = sim->receives[i].next_key) {
            const rp_receive *r = &sim->receives[i];
            if (r->rank == number && r->slot == slot) {
                report->peer = number_in_job(sim, r->src);
                report->tag = r->tag;
                report->comm = r->comm;
                report->n_bytes = r->n_bytes;
                report->t_ps = r->posted_ps;
                return 1;
            }
        }
    }
    for (uint32_t at = 0; at <= sim->unexpected.mask; at++) {
        for (uint32_t i = sim->unexpected.heads[at]; i != RP_NIL; i = sim->messages[i].next_key) {
            const rp_message *m = &sim->messages[i];
            if (m->src == number && m->slot == slot) {
                report->peer = number_in_job(sim, m->dst);
                report->tag = m->tag;
                report->comm = m->comm;
                report->n_bytes = m->n_bytes;
                report->t_ps = m->posted_ps;
                return 1;
            }
        }
    }
    return 0;
}

void rp_report_waiting(rp_sim *sim, uint32_t number)
{
    const rp_rank *rank = &sim->ranks[number];
    int64_t i_op = rank->i_op - 1;
    rp_report report = {rank->job, rank->number, RP_ANY, RP_ANY, 0, rank->program[i_op].kind, i_op, 0, sim->now};
    if (sim->result.n_reports < RP_N_REPORTS)
        for (int32_t i = 0; i < rank->wait_n; i++)
            if (sim->slots[rank->slots + (uint32_t)(rank->wait_first + i)] == RP_PENDING &&
                fill_pending(sim, rank, rank->wait_first + i, &report))
                break;
    add_report(sim, report);
}

void rp_report_program(rp_sim *sim, uint32_t number, const rp_op *op)
{
    const rp_rank *rank = &sim->ranks[number];
    add_report(sim, (rp_report){rank->job, rank->number, op->peer, op->tag, op->comm, op->kind, rank->i_op, op->value,
                                sim->now});
}

/* No event is left, and not all jobs have run. */
void rp_stalled(rp_sim *sim)
{
    sim->status = sim->n_live_packets && rp_find_cycle(sim, 1) ? RP_E_NETWORK_DEADLOCK : RP_E_PROGRAM_DEADLOCK;
}

/* Jobs start, end, and start again until all have run once (Dimemas: Jokanovic 2014, section 2.2.3). */
#include <string.h>

#include "replay/push.h"
#include "replay/sim.h"

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
        rp_run_rank(sim, (uint32_t)(job->first_rank + i));
}

void rp_rank_ended(rp_sim *sim, uint32_t number)
{
    uint32_t i = (uint32_t)sim->ranks[number].job;
    rp_job_state *job = &sim->job_states[i];
    if (sim->job_n_runs[i] == 0)
        sim->rank_end_ps[number] = sim->now;
    if (--job->n_running == 0 && sim->job_n_runs[i] == 0)
        sim->job_end_ps[i] = sim->now;
    rp_deactivate(sim, i);
}

static void report_unmatched(rp_sim *sim, uint32_t job)
{
    const rp_job_state *state = &sim->job_states[job];
    for (int32_t i = 0; i < state->n_ranks; i++)
        for (uint32_t m = sim->ranks[state->first_rank + i].arrived_head; m != RP_NIL;
             m = sim->messages[m].next_arrived)
            rp_report_message(sim, m);
    for (int32_t i = 0; i < state->n_ranks; i++)
        for (uint32_t r = sim->ranks[state->first_rank + i].any_head; r != RP_NIL; r = sim->receives[r].next_any)
            rp_report_receive(sim, r);
    for (uint32_t at = 0; at <= sim->posted.mask; at++)
        for (uint32_t r = sim->posted.heads[at]; r != RP_NIL; r = sim->receives[r].next_key)
            if (sim->ranks[sim->receives[r].rank].job == (int32_t)job)
                rp_report_receive(sim, r);
    sim->status = RP_E_UNMATCHED;
}

static void report_deadlock(rp_sim *sim, uint32_t job)
{
    const rp_job_state *state = &sim->job_states[job];
    for (int32_t i = 0; i < state->n_ranks; i++)
        if (!sim->ranks[state->first_rank + i].is_ended)
            rp_report_waiting(sim, (uint32_t)(state->first_rank + i));
    sim->status = RP_E_PROGRAM_DEADLOCK;
}

/* Nothing of the job is under way any more. */
void rp_job_idle(rp_sim *sim, uint32_t number)
{
    rp_job_state *job = &sim->job_states[number];
    if (job->n_running > 0) {
        report_deadlock(sim, number);
    } else if (job->n_unexpected || job->n_receives) {
        report_unmatched(sim, number);
    } else {
        if (sim->job_n_runs[number]++ == 0 && ++sim->n_done == sim->n_jobs)
            sim->status = RP_DONE;
        else if (sim->jobs[number].is_restarted && sim->now > job->started_ps) /* one without time would never end */
            rp_push(sim, sim->now, RP_EV_JOB, number, 0);
    }
}

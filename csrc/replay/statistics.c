#include <string.h>

#include "replay/sim.h"

/* Add the windows two by two, each of twice the length. */
static void fold_windows(rp_sim *sim)
{
    size_t n_links = (size_t)sim->net.n_links, n_max = (size_t)sim->set.n_windows_max;
    int64_t *windows = sim->window_bytes;
    for (size_t i = 0; i < (n_max + 1) / 2; i++)
        for (size_t link = 0; link < n_links; link++) {
            int64_t second = 2 * i + 1 < n_max ? windows[(2 * i + 1) * n_links + link] : 0;
            windows[i * n_links + link] = windows[2 * i * n_links + link] + second;
        }
    size_t n_kept = (n_max + 1) / 2;
    memset(windows + n_kept * n_links, 0, (n_max - n_kept) * n_links * sizeof *windows);
    sim->result.window_ps *= 2;
}

void rp_next_window(rp_sim *sim)
{
    while (sim->now / sim->result.window_ps >= sim->set.n_windows_max)
        fold_windows(sim);
    int64_t i = sim->now / sim->result.window_ps;
    sim->window = sim->window_bytes + i * sim->net.n_links;
    sim->window_end_ps = (i + 1) * sim->result.window_ps;
    sim->result.n_windows = (int32_t)i + 1;
}

void rp_record_mark(rp_sim *sim, const rp_rank *rank, int64_t value)
{
    if (sim->job_n_runs[rank->job] > 0)
        return;
    if (sim->result.n_marks == sim->n_mark_room) {
        int64_t n = sim->n_mark_room ? 2 * sim->n_mark_room : 1024;
        sim->marks = rp_grown(sim, sim->marks, (size_t)sim->n_mark_room, (size_t)n, sizeof *sim->marks);
        sim->n_mark_room = n;
    }
    sim->marks[sim->result.n_marks++] = (rp_mark){value, sim->now, rank->job, rank->number};
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

void rp_fill_result(rp_sim *sim)
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

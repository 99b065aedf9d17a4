#define _GNU_SOURCE
#include "agent/shutter/board_view.h"

#include "common/proc.h"
#include "common/words.h"

#include <unistd.h>

/* Jobs of another version of mpicoloc use another board. They would not pause for this job, and this job would not see
   them. So refuse to join while such a board has jobs on it. */
int mc_view_join(mc_board_view *view, const char *job_id)
{
    mc_proc_stat self;
    if (mc_board_n_foreign() > 0)
        return MC_E_VERSION;
    if (mc_proc_read_stat(&self, (int)getpid()) != MC_OK)
        return MC_E_GONE;
    view->owner = mc_board_owner((int)getpid(), self.start_ticks);
    int status = mc_board_open(&view->board);
    if (status != MC_OK)
        return status;
    status = mc_board_claim(view->board, view->owner, job_id, &view->slot);
    if (status != MC_OK) {
        mc_board_unmap(view->board);
        view->board = NULL;
    }
    return status;
}

void mc_view_leave(mc_board_view *view)
{
    if (!view->board)
        return;
    mc_board_release(view->board, view->slot);
    mc_board_unmap(view->board);
    mc_board_remove_if_empty();
    view->board = NULL;
}

int mc_view_follow(mc_board_view *view, const char *job_id)
{
    if (!view->board || mc_board_current(view->board))
        return MC_OK;
    mc_board_unmap(view->board);
    view->board = NULL;
    return mc_view_join(view, job_id);
}

int mc_view_read(mc_board_view *view, uint64_t now)
{
    int n_before = view->n_live;
    view->n_live = mc_board_live(view->board, now, view->live);
    view->n_others = 0;
    for (int i = 0; i < view->n_live; i++)
        view->n_others += !mc_view_is_own(view, i);
    return view->n_live != n_before;
}

void mc_view_publish(mc_board_view *view, const mc_job_ranks *ranks, mc_press_offer offer, uint64_t now)
{
    cpu_set_t cpus = mc_job_ranks_cpus(ranks);
    mc_words_store(view->slot->cpu_mask, &cpus, sizeof cpus);
    __atomic_store_n(&view->slot->cpu_ns, mc_job_ranks_cpu_ns(ranks), __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->offer.n_all, offer.n_all, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->offer.n, offer.n, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->books, (uint64_t)ranks->is_multi_node, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->n_ranks, (uint32_t)ranks->n_alive, __ATOMIC_RELEASE);
    __atomic_store_n(&view->slot->heartbeat, now, __ATOMIC_RELEASE);
}

void mc_view_book(mc_board_view *view, mc_booking booking)
{
    view->booking = booking;
    mc_slot_book(view->slot, &booking);
}

int mc_view_booking(const mc_board_view *view, int i_live, mc_booking *out)
{
    if (!mc_view_is_own(view, i_live))
        return mc_slot_booking(mc_view_slot(view, i_live), out) == MC_OK;
    *out = view->booking;
    return out->t0 != 0;
}

#define _GNU_SOURCE
#include "agent/count/counters.h"

#include "common/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static int make_room(mc_snapshot *snapshot, size_t n_more)
{
    size_t n = snapshot->n + n_more;
    if (n <= snapshot->n_room)
        return 1;
    mc_thread_count *rows = realloc(snapshot->rows, 2 * n * sizeof *rows);
    if (!rows)
        return 0;
    snapshot->rows = rows;
    snapshot->n_room = 2 * n;
    return 1;
}

/* Free the row of a thread that has ended. The thread's memory no longer exists, or belongs to another thread. */
static void free_row(mc_counted_thread *row)
{
    __atomic_store_n(&row->tid, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&row->address, 0, __ATOMIC_RELEASE);
}

static int read_thread(mc_snapshot *snapshot, int pid, mc_counted_thread *row)
{
    uint64_t tid = __atomic_load_n(&row->tid, __ATOMIC_ACQUIRE);
    mc_thread_count *to = &snapshot->rows[snapshot->n];
    struct iovec local = {to, sizeof *to}, remote = {(void *)(uintptr_t)row->address, sizeof *to};
    if (tid == 0)
        return MC_OK;
    ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n < 0 && errno != EFAULT)
        return errno == ESRCH ? MC_OK : MC_E_GONE;
    if (n == (ssize_t)sizeof *to && to->tid == tid)
        snapshot->n++;
    else
        free_row(row);
    return MC_OK;
}

int mc_snapshot_take(mc_snapshot *snapshot, const mc_job_ranks *ranks)
{
    int status = MC_OK;
    snapshot->n = 0;
    uint64_t begin = mc_now_ns();
    for (int i = 0; i < ranks->n && status == MC_OK; i++) {
        const mc_rank *rank = &ranks->rows[i];
        mc_counting *counting = &rank->segment->counting;
        if (rank->alive && !make_room(snapshot, MC_N_COUNTED_THREADS))
            return MC_E_FULL;
        for (int j = 0; j < MC_N_COUNTED_THREADS && rank->alive && status == MC_OK; j++)
            if (__atomic_load_n(&counting->threads[j].address, __ATOMIC_ACQUIRE))
                status = read_thread(snapshot, rank->pid, &counting->threads[j]);
    }
    snapshot->t = begin + (mc_now_ns() - begin) / 2;
    return status;
}

static const mc_thread_count *find(const mc_snapshot *snapshot, uint64_t tid, size_t i_likely)
{
    if (i_likely < snapshot->n && snapshot->rows[i_likely].tid == tid)
        return &snapshot->rows[i_likely];
    for (size_t i = 0; i < snapshot->n; i++)
        if (snapshot->rows[i].tid == tid)
            return &snapshot->rows[i];
    return NULL;
}

uint64_t mc_snapshot_between(const mc_snapshot *begin, const mc_snapshot *end, uint64_t sums[MC_N_PLACES])
{
    uint64_t n_all = 0;
    memset(sums, 0, MC_N_PLACES * sizeof *sums);
    for (size_t i = 0; i < end->n; i++) {
        const mc_thread_count *before = find(begin, end->rows[i].tid, i);
        for (int j = 0; j < MC_N_PLACES && before; j++)
            sums[j] += end->rows[i].n[j] - before->n[j];
    }
    for (int j = 0; j < MC_N_PLACES; j++)
        n_all += sums[j];
    return n_all;
}

void mc_snapshot_free(mc_snapshot *snapshot)
{
    free(snapshot->rows);
    *snapshot = (mc_snapshot){NULL, 0, 0, 0};
}

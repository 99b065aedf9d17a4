/* Pauses all ranks it finds in the shared-memory folder, for short times at random instants, until it is told to stop:
   what co-runners do five times a second, it does hundreds of times. */
#include "agent/shutter/pause.h"
#include "common/options.h"
#include "common/proc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_RANKS = 16 };

static mc_rank ranks[N_RANKS];
static char names[N_RANKS][MC_PATH_LEN];
static int n_ranks;
static volatile sig_atomic_t told_to_stop;

static void on_term(int signal)
{
    (void)signal;
    told_to_stop = 1;
}

static void add(void *data, const char *name)
{
    char path[2 * MC_PATH_LEN];
    void *map;
    (void)data;
    for (int i = 0; i < n_ranks; i++)
        if (strcmp(names[i], name) == 0)
            return;
    snprintf(path, sizeof path, "%s/mpicoloc.%s.seg", mc_option_text(MC_OPT_SHM_DIR), name);
    if (n_ranks == N_RANKS || mc_shm_map(&map, path, sizeof(mc_segment), 0) != MC_OK)
        return;
    mc_segment *segment = map;
    if (__atomic_load_n(&segment->magic, __ATOMIC_ACQUIRE) != MC_MAGIC) {
        mc_shm_unmap(map, sizeof *segment);
        return;
    }
    snprintf(names[n_ranks], sizeof names[0], "%s", name);
    ranks[n_ranks++] = (mc_rank){.segment = segment, .pid = segment->pid, .start_ticks = segment->pid_start_ticks};
}

static void pause_rank(mc_rank *rank, uint64_t length_ns)
{
    mc_gate *gate = &rank->segment->gate;
    int n_skipped;
    if (!gate->signal || !mc_proc_alive(rank->pid, rank->start_ticks))
        return;
    __atomic_store_n(&gate->deadline_ns, mc_now_ns() + length_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&gate->epoch, 1, __ATOMIC_RELEASE);
    mc_signal_running_threads(rank, gate->signal, &n_skipped);
}

int main(void)
{
    signal(SIGTERM, on_term);
    setsid(); /* as the keeper does, and so woken in time on a full machine */
    mc_wake_promptly();
    alarm(300);
    for (unsigned round = 0; !told_to_stop; round++) {
        if (round % 16 == 0)
            mc_dir_scan(mc_option_text(MC_OPT_SHM_DIR), "mpicoloc.", ".seg", add, NULL);
        for (int i = 0; i < n_ranks; i++)
            pause_rank(&ranks[i], (uint64_t)(random() % 600000));
        usleep((useconds_t)(random() % 3000));
    }
    return 0;
}

#define _GNU_SOURCE
#include "common/options.h"
#include "common/proc.h"
#include "keeper/keeper.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_POLL_MS = 5, N_END_POLLS = 200, COST_PART = 100 };

void mc_checkpoint_init(mc_checkpoint *checkpoint, uint64_t now)
{
    uint64_t interval_ns = (uint64_t)(mc_option_number(MC_OPT_CHECKPOINT_S) * 1e9);
    *checkpoint = (mc_checkpoint){0, interval_ns, now + interval_ns};
}

static uint64_t ns_of(struct timeval t)
{
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

static void see_end(mc_checkpoint *checkpoint, uint64_t now)
{
    int status = 0;
    struct rusage usage;
    pid_t ended = wait4(checkpoint->pid, &status, WNOHANG, &usage);
    if (ended == 0)
        return;
    int ok = ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    uint64_t cost_ns = ended > 0 ? ns_of(usage.ru_utime) + ns_of(usage.ru_stime) : 0;
    /* Write less often if a checkpoint costs too much, or if it fails, for example because the disk is full. */
    if (!ok || cost_ns * COST_PART > checkpoint->interval_ns)
        checkpoint->interval_ns *= 2;
    checkpoint->pid = 0;
    checkpoint->t_next = now + checkpoint->interval_ns;
}

void mc_checkpoint_step(mc_checkpoint *checkpoint, const char *python, const char *key, uint64_t now)
{
    if (checkpoint->pid > 0) {
        see_end(checkpoint, now);
    } else if (checkpoint->interval_ns && now >= checkpoint->t_next) {
        checkpoint->t_next = now + checkpoint->interval_ns;
        checkpoint->pid = mc_writer_start(python, "mpicoloc.profile.checkpoints", key, NULL, 1);
    }
}

void mc_checkpoint_stop(mc_checkpoint *checkpoint)
{
    checkpoint->interval_ns = 0;
    if (checkpoint->pid > 0)
        kill(checkpoint->pid, SIGKILL);
}

void mc_checkpoint_end(mc_checkpoint *checkpoint)
{
    mc_checkpoint_stop(checkpoint);
    /* Do not wait forever, because the writer may hang in a file system that no longer answers. */
    for (int i = 0; checkpoint->pid > 0 && i < N_END_POLLS; i++) {
        if (waitpid(checkpoint->pid, NULL, WNOHANG) != 0)
            checkpoint->pid = 0;
        else
            poll(NULL, 0, END_POLL_MS);
    }
}

/* File names as in mpicoloc/profile/checkpoints.py. */
void mc_checkpoint_remove(const mc_segment *first)
{
    static const char *const ends[] = {".part", ".part.new"};
    char folder[MC_PATH_LEN], path[MC_PATH_LEN + 32];
    if (mc_path_beside(folder, sizeof folder, first->out_path, ".parts") != MC_OK || access(folder, F_OK) != 0)
        return;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(path, sizeof path, "%s/%d%s", folder, first->world_rank, ends[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* How often a keeper has a copy made, by a clock of our own. argv[1]: a program that fails, argv[2]: one that does not.
   Exit code: number of failed checks. */
#include "../support/check.h"
#include "keeper/keeper.h"

#include <poll.h>
#include <stdlib.h>

static const uint64_t S = 1000000000u;

/* One is due at t: it is started, and has ended when this returns. */
static void make_one(mc_checkpoint *checkpoint, const char *program, uint64_t t)
{
    mc_checkpoint_step(checkpoint, program, "k", t - 1);
    CHECK(checkpoint->pid == 0);
    mc_checkpoint_step(checkpoint, program, "k", t);
    CHECK(checkpoint->pid > 0);
    for (int i = 0; checkpoint->pid > 0 && i < 5000; i++) {
        poll(NULL, 0, 5);
        mc_checkpoint_step(checkpoint, program, "k", t);
    }
    CHECK(checkpoint->pid == 0);
}

int main(int argc, char **argv)
{
    mc_checkpoint checkpoint;
    if (argc != 3)
        return 2;
    setenv("MPICOLOC_CHECKPOINT_S", "0", 1);
    mc_checkpoint_init(&checkpoint, 5 * S);
    mc_checkpoint_step(&checkpoint, argv[2], "k", 1000000 * S);
    CHECK(checkpoint.pid == 0);

    setenv("MPICOLOC_CHECKPOINT_S", "100", 1);
    mc_checkpoint_init(&checkpoint, 5 * S);
    make_one(&checkpoint, argv[2], 105 * S);
    make_one(&checkpoint, argv[2], 205 * S); /* far below a hundredth of it */
    make_one(&checkpoint, argv[1], 305 * S);
    make_one(&checkpoint, argv[1], 505 * S);
    make_one(&checkpoint, argv[2], 905 * S);

    setenv("MPICOLOC_CHECKPOINT_S", "0.000001", 1); /* nothing is as cheap */
    mc_checkpoint_init(&checkpoint, 0);
    make_one(&checkpoint, argv[2], 1000);
    CHECK(checkpoint.interval_ns == 2000 && checkpoint.t_next == 3000);
    return n_failed;
}

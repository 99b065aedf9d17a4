/* As if this machine had been calibrated for bubbles. */
#ifndef MC_TEST_CALIBRATION_H
#define MC_TEST_CALIBRATION_H

#include "check.h"
#include "common/board/board.h"

#include <stdlib.h>

static const char CALIBRATION[] = "calibration.txt";

static inline void calibrate_with(long n_cpus, int n_bubbles, double largest_slowdown)
{
    FILE *file = fopen(CALIBRATION, "w");
    CHECK(file != NULL);
    if (!file)
        return;
    fprintf(file, "mpicoloc bubble calibration 1\nmodel test\ncpus %ld %d\nprobe 65536 0.0\nprobe_alone 1e8\n", n_cpus,
            n_bubbles);
    for (int i = 0; i <= 8; i++)
        fprintf(file, "level %d %d %d.0 %f 0.9 2.0\n", i, i * 65536, i * 1000000,
                1.0 + i * (largest_slowdown - 1.0) / 8);
    fclose(file);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", CALIBRATION, 1);
    setenv("MPICOLOC_BUBBLE", "0.9", 1);
}

static inline void calibrate(long n_cpus, double largest_slowdown)
{
    calibrate_with(n_cpus, 1, largest_slowdown);
}

/* One bubble of that level, or the probe, by the job in that slot. */
static inline mc_press_request request_of(int i_slot, uint64_t thousandths)
{
    mc_press_request request = {.level_thousandths = thousandths};
    mc_press_ask(&request, i_slot, 1);
    return request;
}

#endif

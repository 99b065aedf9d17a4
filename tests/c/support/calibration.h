/* As if this machine had been calibrated for bubbles. */
#ifndef MC_TEST_CALIBRATION_H
#define MC_TEST_CALIBRATION_H

#include "check.h"

#include <stdlib.h>

static const char CALIBRATION[] = "calibration.txt";

static inline void calibrate(long n_cpus, double largest_slowdown)
{
    FILE *file = fopen(CALIBRATION, "w");
    CHECK(file != NULL);
    if (!file)
        return;
    fprintf(file, "mpicoloc bubble calibration 1\nmodel test\ncpus %ld 1\nprobe 65536 0.0\nprobe_alone 1e8\n", n_cpus);
    for (int i = 0; i <= 8; i++)
        fprintf(file, "level %d %d %d.0 %f 0.9 2.0\n", i, i * 65536, i * 1000000,
                1.0 + i * (largest_slowdown - 1.0) / 8);
    fclose(file);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", CALIBRATION, 1);
    setenv("MPICOLOC_BUBBLE", "0.9", 1);
}

#endif

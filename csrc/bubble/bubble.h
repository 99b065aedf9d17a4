/* The bubble: a memory hog whose pressure can be set, as a library. No global state, no thread, and no allocation after
   mc_bubble_open, so that it can run as a program or, for milliseconds, as a thread of another. */
#ifndef MPICOLOC_BUBBLE_H
#define MPICOLOC_BUBBLE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MC_BUBBLE_LINE_BYTES = 64,
    /* The mix. Of the 260 cache lines of a block, 128 are read in order, 128 are written in order, and 4 are chased: each is
       the next link of one of four chains of random reads. Writes press most. With more chases the processor waits so
       much that the bubble asks for less bandwidth than many programs do: 5 GB/s with 16 of 256, 16 to 28 with 4 of 260. */
    MC_BUBBLE_READS = 128,
    MC_BUBBLE_WRITES = MC_BUBBLE_READS,
    MC_BUBBLE_CHAINS = 4,
    MC_BUBBLE_BLOCK_LINES = MC_BUBBLE_READS + MC_BUBBLE_WRITES + MC_BUBBLE_CHAINS,
    MC_BUBBLE_BYTES_MIN = 64 * 1024, /* a smaller working set counts as this */
    MC_BUBBLE_LEVEL_MAX = 8,
    MC_N_BUBBLE_LEVELS = MC_BUBBLE_LEVEL_MAX + 1
};

enum mc_bubble_status {
    MC_BUBBLE_OK = 0,
    MC_BUBBLE_E_MEMORY = -1, /* more than the node has free */
    MC_BUBBLE_E_MAP = -2,    /* the kernel refuses; errno says why */
    MC_BUBBLE_E_FILE = -3,   /* cannot be read; errno says why */
    MC_BUBBLE_E_FORMAT = -4, /* no calibration file */
    MC_BUBBLE_E_LEVEL = -5,  /* not in [0, 8] */
    MC_BUBBLE_E_MACHINE = -6 /* the calibration is of another machine */
};

/* What a bubble does. A working set of 0 bytes: nothing, it sleeps. */
typedef struct mc_bubble_setting {
    uint64_t working_set_bytes;
    double lines_per_s; /* cache lines touched per second; 0: as fast as they come */
} mc_bubble_setting;

/* The settings of levels 0 to 8, which n_bubbles make together, and what each does to the probe: its slowdown with the
   ends of the interval. 0: the file does not tell. */
typedef struct mc_bubble_levels {
    mc_bubble_setting at[MC_N_BUBBLE_LEVELS];
    double slowdown[MC_N_BUBBLE_LEVELS], low[MC_N_BUBBLE_LEVELS], high[MC_N_BUBBLE_LEVELS];
    int n_cpus, n_bubbles; /* of the machine; bubbles that ran in the calibration */
    mc_bubble_setting probe;
    double probe_lines_per_s; /* of its processor time, alone; 0: the file does not tell */
} mc_bubble_levels;

typedef struct mc_bubble_line {
    uint64_t link, written, rest[6]; /* link is 0 for ever, which the compiler does not know */
} mc_bubble_line;

typedef struct mc_bubble {
    mc_bubble_line *lines;
    size_t n_bytes;
    uint64_t i_read, chain[MC_BUBBLE_CHAINS];
    uint64_t n_touched; /* lines, since it was opened */
    uint64_t due_ns;    /* when the next group of blocks may begin */
} mc_bubble;

/* memory.c: allocate for working sets of up to n_bytes, and touch all pages from the calling thread, which should be
   pinned already. They are locked where the limit of the user allows it. */
int mc_bubble_open(mc_bubble *bubble, uint64_t n_bytes);
void mc_bubble_close(mc_bubble *bubble);
/* Bytes that this process may take without making the node swap. 0: unknown. */
uint64_t mc_bubble_free_bytes(void);

/* hog.c: press until until_ns (CLOCK_MONOTONIC) or until *stop is not 0, which is seen within 1 ms. Working sets above
   what was opened count as that. */
void mc_bubble_run(mc_bubble *bubble, mc_bubble_setting setting, uint64_t until_ns, const volatile int *stop);
uint64_t mc_bubble_now_ns(void);

/* calibration.c: where the calibration of this kind of machine is. */
int mc_bubble_calibration_path(char *path, size_t size);
/* levels.c: read a calibration file. */
int mc_bubble_levels_read(mc_bubble_levels *levels, const char *path);
/* The setting of a level, which may be a fraction, of one of n_shares equal bubbles that make the level together. */
int mc_bubble_setting_of(mc_bubble_setting *setting, const mc_bubble_levels *levels, double level, int n_shares);

/* cpus.c: the i-th processor of a list such as 0-3,8, where the list begins again at its end. -1: no such list. */
int mc_bubble_cpu_of(const char *list, int i);

#endif

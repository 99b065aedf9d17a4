/* The bubble, a memory hog of adjustable pressure, as a library. The library has no global state and no threads, and
   allocates nothing after mc_bubble_open. So a bubble can run as a program of its own or, for milliseconds, in a thread
   of another program. */
#ifndef MPICOLOC_BUBBLE_H
#define MPICOLOC_BUBBLE_H

#include <stddef.h>
#include <stdint.h>

enum {
    MC_BUBBLE_LINE_BYTES = 64,
    /* The mix of accesses. Of the 260 cache lines of a block, 128 are read in order, 128 are written in order, and each
       of the other 4 is the next link of one of four chains of dependent random reads. Writes cause the most pressure.
       With more lines in chains, the processor stalls so long that the bubble uses less bandwidth than many programs
       do: a bubble reaches 5 GB/s if 16 of 256 lines belong to chains, and 16 to 28 GB/s if 4 of 260 lines do. */
    MC_BUBBLE_READS = 128,
    MC_BUBBLE_WRITES = MC_BUBBLE_READS,
    MC_BUBBLE_CHAINS = 4,
    MC_BUBBLE_BLOCK_LINES = MC_BUBBLE_READS + MC_BUBBLE_WRITES + MC_BUBBLE_CHAINS,
    MC_BUBBLE_BYTES_MIN = 64 * 1024, /* smaller working sets are rounded up to this */
    MC_BUBBLE_LEVEL_MAX = 8,
    MC_N_BUBBLE_LEVELS = MC_BUBBLE_LEVEL_MAX + 1
};

enum mc_bubble_status {
    MC_BUBBLE_OK = 0,
    MC_BUBBLE_E_MEMORY = -1, /* the node has too little free memory */
    MC_BUBBLE_E_MAP = -2,    /* the kernel refuses the memory; see errno */
    MC_BUBBLE_E_FILE = -3,   /* the file cannot be read; see errno */
    MC_BUBBLE_E_FORMAT = -4, /* the file is not a calibration file */
    MC_BUBBLE_E_LEVEL = -5,  /* the level is not in [0, 8] */
    MC_BUBBLE_E_MACHINE = -6 /* the calibration is for a different machine */
};

/* Parameters of a bubble. */
typedef struct mc_bubble_setting {
    uint64_t working_set_bytes; /* 0: the bubble sleeps */
    double lines_per_s;         /* cache lines touched per second; 0: unlimited */
} mc_bubble_setting;

/* The settings of levels 0 to 8, and the probe's slowdown at each level with the ends of its confidence interval. At
   each level, n_bubbles bubbles make up the level together. A value that is not in the file is 0. */
typedef struct mc_bubble_levels {
    mc_bubble_setting at[MC_N_BUBBLE_LEVELS];
    double slowdown[MC_N_BUBBLE_LEVELS], low[MC_N_BUBBLE_LEVELS], high[MC_N_BUBBLE_LEVELS];
    int n_cpus, n_bubbles; /* number of processors of the machine; number of bubbles that ran in the calibration */
    mc_bubble_setting probe;
    double probe_lines_per_s; /* when the probe runs alone, per second of processor time; 0: not in the file */
} mc_bubble_levels;

typedef struct mc_bubble_line {
    uint64_t link, written, rest[6]; /* `link` is always 0, but the compiler does not know that */
} mc_bubble_line;

typedef struct mc_bubble {
    mc_bubble_line *lines;
    size_t n_bytes;
    uint64_t i_read, chain[MC_BUBBLE_CHAINS];
    uint64_t n_touched; /* number of lines touched since mc_bubble_open */
    uint64_t due_ns;    /* earliest start of the next group of blocks */
} mc_bubble;

/* memory.c: allocate memory for working sets of up to n_bytes, and touch all pages from the calling thread, which
   should be pinned already. The pages are locked in memory if the user's limit allows it. */
int mc_bubble_open(mc_bubble *bubble, uint64_t n_bytes);
void mc_bubble_close(mc_bubble *bubble);
/* Bytes that this process can allocate without making the node swap. 0: unknown. */
uint64_t mc_bubble_free_bytes(void);

/* hog.c: run until until_ns (CLOCK_MONOTONIC), or until *stop is not 0, which is noticed within 1 ms. Working sets are
   limited to the size given to mc_bubble_open. */
void mc_bubble_run(mc_bubble *bubble, mc_bubble_setting setting, uint64_t until_ns, const volatile int *stop);
uint64_t mc_bubble_now_ns(void);

/* calibration.c: path of the calibration file for this type of machine. */
int mc_bubble_calibration_path(char *path, size_t size);
/* levels.c: read a calibration file. */
int mc_bubble_levels_read(mc_bubble_levels *levels, const char *path);
/* Get the setting for each of n_shares equal bubbles that make up a level together. The level may be fractional. */
int mc_bubble_setting_of(mc_bubble_setting *setting, const mc_bubble_levels *levels, double level, int n_shares);

/* cpus.c: the i-th processor of a list such as 0-3,8. After its last processor the list begins again. Returns -1 if the
   list is not valid. */
int mc_bubble_cpu_of(const char *list, int i);

#endif

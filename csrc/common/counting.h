/* Places in the program's code at which the meter `count` counts passes of threads while the program runs. Part of the
   contract: only mpicoloc.h includes this file. */
#ifndef MPICOLOC_COUNTING_H
#define MPICOLOC_COUNTING_H

enum {
    MC_N_PLACES = 64, /* number of places that are counted at the same time */
    MC_STUB_BYTES = 64,
    MC_N_HALVES = 2,     /* a word of code has two halves of 8 bytes */
    MC_CODE_BYTES = 256, /* length of the code at a place from which its stub was derived */
    MC_N_STUB_PAGES = 4, /* number of stub pages for a set of places: one page near each loaded object */
    MC_STUB_PAGE_BYTES = 4096,
    MC_N_COUNTED_THREADS = 256, /* largest number of counted threads of a rank */
    MC_N_PLACE_SETS = 64,
    MC_N_PLACE_PATHS = 32,
    MC_N_COUNT_ROWS = 1024,                       /* number of shutters whose counts a node file holds */
    MC_N_BEFORE_WINDOWS = 8,                      /* number of windows before a shutter, all of equal length */
    MC_N_COUNT_WINDOWS = MC_N_BEFORE_WINDOWS + 1, /* these windows and the window in the shutter */
};

/* The agent's requests to patch a rank's code, as values of a futex. */
enum {
    MC_PATCH_NONE = 0,
    MC_PATCH_ASSEMBLE = 1, /* the agent is signalling the threads, which wait in the gate */
    MC_PATCH_INSTALL = 2,  /* the last thread to arrive writes the jumps */
    MC_PATCH_REMOVE = 3,   /* the last thread to arrive removes the jumps */
    MC_PATCH_BUSY = 4,     /* a thread is writing */
    MC_PATCH_DONE = 5,     /* everything is written */
    MC_PATCH_FAILED = 6,   /* writing failed; n_patched counts the jumps that could not be removed */
};

/* One place: the aligned 16 bytes of code that hold the jump to its stub, as they are without the jump and with it. */
typedef struct mc_patch {
    uint64_t word_address, stub_address;
    uint64_t before[MC_N_HALVES], after[MC_N_HALVES];
    uint64_t n_code;
    uint8_t code[MC_CODE_BYTES]; /* code expected at word_address; if there is other code, the stub may be wrong */
    uint8_t stub[MC_STUB_BYTES];
} mc_patch;

/* A page for stubs, within reach of a jump. The rank maps the page at this address before its first use, and never
   changes it again, because a thread may be executing a stub. */
typedef struct mc_stub_page {
    uint64_t address; /* 0: not used */
    uint64_t is_mapped;
} mc_stub_page;

/* A thread whose counters the agent may read from the rank's memory. The thread's ID precedes the counters, so that the
   agent can check that the counters still belong to this thread. */
typedef struct mc_counted_thread {
    uint64_t address; /* 0: a free row */
    uint64_t tid;     /* 0: the row is being filled in */
} mc_counted_thread;

/* Whether the rank has permitted the agent to read its memory. Yama requires this permission. */
enum {
    MC_READER_UNKNOWN = 0, /* no thread of the rank has entered the gate since the request */
    MC_READER_ALLOWED = 1,
    MC_READER_TAKEN = 2, /* the program has given the permission to another process, and the kernel stores only one */
};

/* State of the meter `count` in a rank's segment. The agent changes the list of places only while no place is
   patched. */
typedef struct mc_counting {
    int64_t counters_offset; /* from the thread pointer to the counters; 0: this rank cannot count */
    uint32_t request;        /* MC_PATCH_... */
    uint32_t n_awaited;    /* number of threads that must arrive in the gate first; stored before INSTALL and REMOVE */
    uint32_t n_waiting;    /* number of threads that are now waiting in the gate for the request */
    int32_t reader_pid;    /* the process that wants to read this rank's memory; 0: none */
    int64_t reader_answer; /* MC_READER_..., or minus the kernel's error */
    uint64_t lease_until_ns; /* at this time the rank itself removes the jumps, unless the agent extends the lease */
    uint64_t t_changed;      /* time of the last change, successful or not */
    uint64_t n_patched;      /* places that are patched now */
    uint64_t n_patches;
    mc_stub_page pages[MC_N_STUB_PAGES];
    mc_patch patches[MC_N_PLACES];
    mc_counted_thread threads[MC_N_COUNTED_THREADS];
} mc_counting;

/* Places that are counted together, given as offsets in files. If a loop has no replaceable instruction, its passes are
   estimated from samples of a register; such places come last in a set. */
typedef struct mc_place {
    uint64_t offset;
    uint64_t i_path;
    uint64_t n_bytes; /* length of the loop that begins at the place; 0: counted by a jump, not by samples */
    int64_t step;     /* amount that each pass adds to the register */
    uint64_t reg;     /* the register's number among sampled registers */
    uint64_t unit;    /* number of passes that count as one: the passes of a microsecond; 0: not known yet */
} mc_place;

typedef struct mc_place_set {
    uint64_t n;
    mc_place places[MC_N_PLACES];
} mc_place_set;

/* Passes of all threads of the job on the node, for each window of one shutter and each place. */
typedef struct mc_count_row {
    uint64_t epoch, i_set;
    uint32_t n[MC_N_COUNT_WINDOWS][MC_N_PLACES];
} mc_count_row;

/* Results of the meter `count` in the node file. */
typedef struct mc_counts {
    char paths[MC_N_PLACE_PATHS][MC_TEXT_LEN];
    uint64_t n_paths, n_sets;
    mc_place_set sets[MC_N_PLACE_SETS];
    double pass_ns;      /* cost of counting one pass */
    uint64_t n_passes;   /* number of passes counted so far, including trials */
    uint64_t stopped_ns; /* time for which the ranks were paused for patches */
    uint64_t sampled_ns; /* time that samples in windows took from the threads */
    uint64_t n_rows;     /* the last MC_N_COUNT_ROWS are stored */
    mc_count_row rows[MC_N_COUNT_ROWS];
} mc_counts;

#endif

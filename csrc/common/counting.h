/* Places of the program that are counted while it runs (meter count). Part of the contract: only mpicoloc.h includes
   it. */
#ifndef MPICOLOC_COUNTING_H
#define MPICOLOC_COUNTING_H

enum {
    MC_N_PLACES = 64, /* counted at a time */
    MC_STUB_BYTES = 64,
    MC_N_HALVES = 2,     /* of a word of code, 8 bytes each */
    MC_CODE_BYTES = 256, /* from a place on, of which its stub was made */
    MC_N_STUB_PAGES = 4, /* of one set of places: one near each loaded object */
    MC_STUB_PAGE_BYTES = 4096,
    MC_N_COUNTED_THREADS = 256, /* of a rank */
    MC_N_PLACE_SETS = 64,
    MC_N_PLACE_PATHS = 32,
    MC_N_COUNT_ROWS = 1024,                       /* shutters whose counts a node file holds */
    MC_N_BEFORE_WINDOWS = 8,                      /* of equal length before a shutter, */
    MC_N_COUNT_WINDOWS = MC_N_BEFORE_WINDOWS + 1, /* and one in it */
};

/* What the agent asks a rank to do with its code: the values of a futex. */
enum {
    MC_PATCH_NONE = 0,
    MC_PATCH_ASSEMBLE = 1, /* the agent still signals threads; those that come wait */
    MC_PATCH_INSTALL = 2,  /* the thread that comes last writes the jumps */
    MC_PATCH_REMOVE = 3,   /* the thread that comes last takes the jumps back */
    MC_PATCH_BUSY = 4,     /* a thread is writing */
    MC_PATCH_DONE = 5,     /* it has written everything */
    MC_PATCH_FAILED = 6,   /* it could not; n_patched tells what it could not put back */
};

/* One place: the aligned 16 bytes of code that hold the jump to its stub, without and with the jump. */
typedef struct mc_patch {
    uint64_t word_address, stub_address;
    uint64_t before[MC_N_HALVES], after[MC_N_HALVES];
    uint64_t n_code;
    uint8_t code[MC_CODE_BYTES]; /* from word_address on. If other code is there, the stub may be wrong */
    uint8_t stub[MC_STUB_BYTES];
} mc_patch;

/* Memory for stubs, in reach of a jump. The rank maps it at this address before it uses it for the first time, and
   never changes it again: a thread may be in there. */
typedef struct mc_stub_page {
    uint64_t address; /* 0: not used */
    uint64_t is_mapped;
} mc_stub_page;

/* A thread whose counters the agent may read, in the rank's own memory. They are preceded by the thread's id, which
   tells whether it is still that thread. */
typedef struct mc_counted_thread {
    uint64_t address; /* 0: a free row */
    uint64_t tid;     /* 0: the row is being filled in */
} mc_counted_thread;

/* Whether the rank lets the agent read its memory where the kernel wants to be told (Yama). */
enum {
    MC_READER_UNKNOWN = 0, /* no thread of it has come to the gate since */
    MC_READER_ALLOWED = 1,
    MC_READER_TAKEN = 2, /* the program has named another process, and the kernel keeps only one */
};

/* In a rank's segment. The agent changes the places only while none is patched. */
typedef struct mc_counting {
    int64_t counters_offset; /* of the counters from a thread's own pointer; 0: this rank cannot count */
    uint32_t request;        /* MC_PATCH_... */
    uint32_t n_awaited;      /* threads that must stand still first; stored before INSTALL and REMOVE */
    uint32_t n_waiting;      /* threads that stand still for it now */
    int32_t reader_pid;      /* the process that wants to read this rank's memory; 0: none */
    int64_t reader_answer;   /* MC_READER_..., or minus the kernel's error */
    uint64_t lease_until_ns; /* then the rank takes the jumps back by itself, unless the agent has renewed it */
    uint64_t t_changed;      /* when the last change was made, or had failed */
    uint64_t n_patched;      /* places that are patched now */
    uint64_t n_patches;
    mc_stub_page pages[MC_N_STUB_PAGES];
    mc_patch patches[MC_N_PLACES];
    mc_counted_thread threads[MC_N_COUNTED_THREADS];
} mc_counting;

/* Places that are counted together: offsets in files. Of loops without an instruction that can be replaced, samples of
   a register tell the passes; they stand behind the others. */
typedef struct mc_place {
    uint64_t offset;
    uint64_t i_path;
    uint64_t n_bytes; /* of the loop that begins there; 0: a jump counts */
    int64_t step;     /* what each pass adds to the register */
    uint64_t reg;     /* its number among those that are sampled */
    uint64_t unit;    /* so many passes count as one, some in a microsecond; 0: not known yet */
} mc_place;

typedef struct mc_place_set {
    uint64_t n;
    mc_place places[MC_N_PLACES];
} mc_place_set;

/* Passes in the windows of one shutter, of all threads of the node. */
typedef struct mc_count_row {
    uint64_t epoch, i_set;
    uint32_t n[MC_N_COUNT_WINDOWS][MC_N_PLACES];
} mc_count_row;

/* In the node file. */
typedef struct mc_counts {
    char paths[MC_N_PLACE_PATHS][MC_TEXT_LEN];
    uint64_t n_paths, n_sets;
    mc_place_set sets[MC_N_PLACE_SETS];
    double pass_ns;      /* what one pass costs */
    uint64_t n_passes;   /* counted so far, also in trials */
    uint64_t stopped_ns; /* for how long the ranks stood still for it */
    uint64_t sampled_ns; /* of the threads' time that samples in windows took */
    uint64_t n_rows;     /* the last MC_N_COUNT_ROWS are stored */
    mc_count_row rows[MC_N_COUNT_ROWS];
} mc_counts;

#endif

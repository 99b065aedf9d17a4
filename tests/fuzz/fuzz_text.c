/* Text of others: /proc, the environment, the files beside the library. Every file that the code opens is the input. */
#define _GNU_SOURCE
#include "foreign.h"

static int say_nothing(FILE *file, const char *format, ...)
{
    (void)file, (void)format;
    return 0;
}

#define fprintf say_nothing
#include "keeper/files.c"
#include "guest/start_keeper.c"
#include "guest/world/launch.c"
#include "common/options.c"
#include "common/proc.c"
#include "guest/rank_segment.c"
#undef open
#undef fopen
#undef fprintf

static void set(const char *name, bytes *input)
{
    char text[64];
    bytes part = take_part(input, (size_t)take(input, 1) % sizeof text);
    take_text(&part, text, sizeof text);
    setenv(name, text, 1);
}

static void read_environment(bytes *input)
{
    static mc_segment segment;
    int i_option = (int)(take(input, 1) % MC_N_OPTIONS);
    set(rows[i_option].env, input);
    mc_option_number(i_option);
    mc_option_text(i_option);
    set_out_path(&segment);
    unsetenv(rows[i_option].env);
    set("MPICOLOC_PID", input);
    set("MPICOLOC_KEY", input);
    set("MPICOLOC_WRAPPED", input);
    set("OMPI_COMM_WORLD_LOCAL_RANK", input);
    is_known = is_between = is_nested = launcher_pid = 0;
    mc_given_key();
    mc_has_coordinator();
    mc_is_node_first();
}

static void read_files(void)
{
    char line[MC_PATH_LEN], name[N_COMM];
    mc_proc_stat stat;
    mc_proc_thread thread;
    mc_proc_read_stat(&stat, 1);
    mc_proc_read_thread(&thread, 1, 1, 32);
    mc_proc_catches(1, 32);
    parent_of(1, name);
    is_rank_of_ours(1);
    read_command(line);
    if (first_line(line, sizeof line, ""))
        prefix_python(line, sizeof line, line);
    mc_files_read_log(&(mc_keeper){.key = "fuzz"}, line, sizeof line);
}

static const char *const valid[] = {
    "123 (a name) R 1 123 123 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 12345678 100 18446744073709551615\n",
    "Name:\ta name\nUmask:\t0022\nState:\tR (running)\nPPid:\t1\nSigPnd:\t0000000000000000\n"
    "SigBlk:\t0000000000000000\nSigCgt:\t0000000180000000\nvoluntary_ctxt_switches:\t12\n",
    "42 (mpirun) S 1 42 42 0 -1\n",
    "PMIX_RANK=0\nLD_PRELOAD=/a/libmpicoloc-openmpi.so\n",
    "/opt/lib/python3.11/site-packages\n",
    "mpicoloc: a reason\n  \nmpicoloc: another\n",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[8192] = "";
    bytes input = {data, size};
    const char *base = valid[take(&input, 1) % (sizeof valid / sizeof *valid)];
    size_t n = strlen(base);
    int n_patches = (int)take(&input, 1) % 4;
    memcpy(text, base, n);
    damage(text, n, &input, n_patches);
    /* longer than what the readers have room for */
    n += (size_t)take(&input, 2) % (sizeof text - n);
    file_text = (bytes){(const uint8_t *)text, n};
    for (char *at = text; base == valid[3] && (at = strchr(at, '\n')) != NULL;)
        *at = '\0';
    read_environment(&input);
    read_files();
    return 0;
}

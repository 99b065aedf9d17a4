/* mpicoloc-bubble: one bubble on one processor. Under mpirun each rank is one bubble, and all ranks of a node together
   make up the level.

       mpicoloc-bubble --cpus LIST --levels FILE --level L   run at this level until the job ends
       mpicoloc-bubble --cpus LIST --bytes N --listen        run as the lines of standard input say

   A line of standard input is "BYTES LINES_PER_S". It sets the working set and the rate from now on; "0 0" stops the
   pressure. The end of standard input ends the program. With --report the program prints, every 5 ms, the time
   (CLOCK_MONOTONIC, ns), its processor time (ns) and the number of lines that it has touched. With --report-once it
   prints these numbers only once, when its memory is allocated. */
#define _GNU_SOURCE
#include "bubble/bubble.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { SLICE_NS = 5000000, EXIT_USAGE = 2, EXIT_DATA = 3, EXIT_ENVIRONMENT = 4 };

typedef struct options {
    const char *cpus, *levels;
    double level;
    uint64_t n_bytes;
    int has_level, is_listening, is_reporting, is_reporting_once;
} options;

/* Standard input that has been read but does not form a complete line yet. */
typedef struct input {
    char text[256];
    size_t n;
} input;

static volatile int ended; /* set by a signal */

static void on_end(__attribute__((unused)) int number)
{
    ended = 1;
}

static int fail(int code, const char *what, const char *value, const char *remedy)
{
    fprintf(stderr, "mpicoloc-bubble: %s %s: %s\n", what, value, remedy);
    return code;
}

/* Value of the first of these variables that the launcher has set, or `fallback`. The variables hold this rank's number
   on its node, or the number of ranks on the node. */
static int from_launcher(const char *const *names, int fallback)
{
    for (; *names; names++)
        if (getenv(*names))
            return atoi(getenv(*names));
    return fallback;
}

static int local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMIX_LOCAL_RANK",
                                        "SLURM_LOCALID", NULL};
    return from_launcher(names, 0);
}

static int local_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",       "PMIX_LOCAL_SIZE",
                                        "SLURM_STEP_TASKS_PER_NODE",  "SLURM_NTASKS_PER_NODE", NULL};
    int n = from_launcher(names, 1);
    return n > 0 ? n : 1;
}

static int pin(const char *list)
{
    int cpu = mc_bubble_cpu_of(list, local_rank());
    cpu_set_t set;
    if (cpu < 0)
        return fail(EXIT_USAGE, "--cpus must be a list of processors such as 0-3,8, got", list, "see lscpu");
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return fail(EXIT_ENVIRONMENT, "cannot run on a processor of", list, strerror(errno));
    return 0;
}

/* Make this program end when its parent ends, in whatever way the parent ends. */
static int end_with_parent(pid_t parent)
{
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* Avoid a core file of a hundred megabytes after a crash. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == parent;
}

static int parse(options *o, int argc, char **argv)
{
    *o = (options){0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--listen") == 0)
            o->is_listening = 1;
        else if (strcmp(argv[i], "--report") == 0)
            o->is_reporting = 1;
        else if (strcmp(argv[i], "--report-once") == 0)
            o->is_reporting = o->is_reporting_once = 1;
        else if (!value)
            return -1;
        else if (strcmp(argv[i], "--cpus") == 0)
            o->cpus = argv[++i];
        else if (strcmp(argv[i], "--levels") == 0)
            o->levels = argv[++i];
        else if (strcmp(argv[i], "--level") == 0)
            o->has_level = sscanf(argv[++i], "%lf", &o->level) == 1;
        else if (strcmp(argv[i], "--bytes") == 0)
            o->n_bytes = strtoull(argv[++i], NULL, 10);
        else
            return -1;
    }
    return o->cpus && (o->is_listening ? o->n_bytes > 0 : o->has_level && o->levels) ? 0 : -1;
}

/* Look up the setting of the level for this rank. */
static int read_level(const options *o, mc_bubble_setting *setting)
{
    mc_bubble_levels levels;
    char text[32];
    int status = mc_bubble_levels_read(&levels, o->levels);
    if (status != MC_BUBBLE_OK)
        return fail(EXIT_DATA, "no calibration in", o->levels, "run `mpicoloc bubble calibrate`");
    snprintf(text, sizeof text, "%g", o->level);
    if (mc_bubble_setting_of(setting, &levels, o->level, local_size()) != MC_BUBBLE_OK)
        return fail(EXIT_USAGE, "--level must be in [0, 8], got", text, "bubbles have no other levels");
    return 0;
}

static int open_memory(mc_bubble *bubble, uint64_t n_bytes)
{
    char text[96];
    int status = mc_bubble_open(bubble, n_bytes), reason = errno;
    snprintf(text, sizeof text, "%lu MiB (%lu MiB are free)", n_bytes >> 20, mc_bubble_free_bytes() >> 20);
    if (status == MC_BUBBLE_E_MEMORY)
        return fail(EXIT_ENVIRONMENT, "the bubble needs", text, "choose a lower level, or end other programs");
    if (status != MC_BUBBLE_OK)
        return fail(EXIT_ENVIRONMENT, "the kernel refuses", text, strerror(reason));
    return 0;
}

/* Read settings from standard input; the last complete line counts. Returns -1 if the program is to continue, otherwise
   its exit code, which is 0 at the end of standard input. */
static int listen_for(input *in, mc_bubble_setting *setting)
{
    static const char remedy[] = "a line is BYTES LINES_PER_S";
    struct pollfd ready = {STDIN_FILENO, POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0)
        return -1;
    ssize_t n = read(STDIN_FILENO, in->text + in->n, sizeof in->text - 1 - in->n);
    if (n < 0)
        return errno == EINTR ? -1 : fail(EXIT_ENVIRONMENT, "cannot read", "standard input", strerror(errno));
    if (n == 0)
        return 0;
    in->text[in->n += (size_t)n] = 0;
    char *end = strrchr(in->text, '\n');
    if (!end)
        return in->n < sizeof in->text - 1 ? -1 : fail(EXIT_DATA, "no setting:", in->text, remedy);
    *end = 0;
    char *before = strrchr(in->text, '\n'), *line = before ? before + 1 : in->text;
    if (sscanf(line, "%lu %lf", &setting->working_set_bytes, &setting->lines_per_s) != 2)
        return fail(EXIT_DATA, "no setting:", line, remedy);
    in->n -= (size_t)(end + 1 - in->text);
    memmove(in->text, end + 1, in->n);
    return -1;
}

/* Print a report. Returns 0 if the reader has closed the pipe. */
static int report(const mc_bubble *bubble)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return printf("%lu %lld %lu\n", mc_bubble_now_ns(), (long long)cpu.tv_sec * 1000000000 + cpu.tv_nsec,
                  bubble->n_touched) > 0 &&
           fflush(stdout) == 0;
}

/* Run the bubble. Returns the exit code. */
static int press(const options *o, mc_bubble *bubble, mc_bubble_setting setting)
{
    input in = {.n = 0};
    int code = -1, is_reporting = o->is_reporting;
    while (!ended) {
        if (o->is_listening && (code = listen_for(&in, &setting)) >= 0)
            return code;
        mc_bubble_run(bubble, setting, mc_bubble_now_ns() + SLICE_NS, &ended);
        if (is_reporting && !report(bubble))
            return 0;
        is_reporting = is_reporting && !o->is_reporting_once;
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o;
    mc_bubble bubble;
    mc_bubble_setting setting = {0, 0};
    pid_t parent = getppid();
    if (parse(&o, argc, argv) != 0)
        return fail(EXIT_USAGE, "usage:", argv[0],
                    "--cpus LIST (--levels FILE --level L | --bytes N --listen) [--report | --report-once]");
    if (!end_with_parent(parent))
        return 0;
    int code = o.is_listening ? 0 : read_level(&o, &setting);
    if (code == 0)
        code = pin(o.cpus);
    if (code == 0)
        code = open_memory(&bubble, o.is_listening ? o.n_bytes : setting.working_set_bytes);
    if (code != 0)
        return code;
    code = press(&o, &bubble, setting);
    mc_bubble_close(&bubble);
    return code;
}

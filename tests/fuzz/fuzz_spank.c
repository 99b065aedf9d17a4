/* The Slurm plugin: the words of plugstack.conf, the user's option, a job's environment, arguments and nodes, and what
   the closing command says are the input. Slurm's own functions are stand-ins that answer with it. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <slurm/spank.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>

static bytes job;
static char argument[64], *arguments[] = {argument, NULL};

static int no_spawn(pid_t *pid, const char *path, void *actions, void *attributes, char *const words[],
                    char *const *env)
{
    (void)pid, (void)path, (void)actions, (void)attributes, (void)env;
    size_t n = 0;
    while (words[n])
        n += strlen(words[n]) < 100000 ? 1 : 2;
    return n ? 2 : 1;
}

static pid_t no_fork(void)
{
    return -1;
}

#define posix_spawn no_spawn
#define fork no_fork
#include "spank/notes.c"
#include "spank/plugin.c"
#undef fork
#undef posix_spawn
#include "spank/environment.c"

spank_context_t spank_context(void)
{
    return (spank_context_t)(take(&job, 1) % 6);
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *given)
{
    (void)spank;
    return given->cb ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *text, int size)
{
    (void)spank, (void)name;
    unsigned kind = (unsigned)take(&job, 1) % 4;
    if (kind < 2)
        return kind ? ESPANK_ENV_NOEXIST : ESPANK_NOSPACE;
    take_text(&job, text, (size_t)size < 64 ? (size_t)size : 64);
    return ESPANK_SUCCESS;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    (void)spank, (void)overwrite;
    return strlen(name) + strlen(value) > 0 ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
    (void)spank;
    return strlen(name) > 0 ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    va_list rest;
    (void)spank;
    if (take(&job, 1) % 8 == 0)
        return ESPANK_NOT_AVAIL;
    va_start(rest, item);
    if (item == S_JOB_ARGV) {
        take_text(&job, argument, sizeof argument);
        *va_arg(rest, int *) = 1;
        *va_arg(rest, char ***) = arguments;
    } else {
        *va_arg(rest, uint32_t *) = (uint32_t)take(&job, 4);
    }
    va_end(rest);
    return ESPANK_SUCCESS;
}

void slurm_error(const char *format, ...)
{
    char line[8192];
    va_list rest;
    va_start(rest, format);
    vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
}

static const char *const starts[] = {"library=/",  "out=/p/%j.%s.", "key_file=/", "spool=/",
                                     "python=/py", "partition=",    "default=o",  ""};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { N_WORDS = 20, N_LONG = 5000 };
    static char texts[N_WORDS][N_LONG];
    char *words[N_WORDS], given[32];
    job = (bytes){data, size};
    int n_words = (int)take(&job, 1) % N_WORDS;
    for (int i = 0; i < n_words; i++) {
        size_t n = (size_t)take(&job, 1);
        const char *start = starts[n % 8];
        bytes part = {job.at, n / 8 < job.n ? n / 8 : job.n};
        memset(texts[i], 'x', N_LONG);
        strcpy(texts[i], start);
        take_text(&part, texts[i] + strlen(start), 40);
        /* as long as no path may be */
        if (n > 250)
            memset(texts[i] + strlen(texts[i]), 'x', N_LONG - 1 - strlen(texts[i]));
        texts[i][N_LONG - 1] = '\0';
        job.at += part.at - job.at;
        job.n = (size_t)(data + size - job.at);
        words[i] = texts[i];
    }
    memset(&site, 0, sizeof site);
    memset(&user, 0, sizeof user);
    memset(&note, 0, sizeof note);
    slurm_spank_init(NULL, n_words, words);
    take_text(&job, given, take(&job, 1) % sizeof given + 1);
    option_given(0, take(&job, 1) % 8 ? given : NULL, (int)take(&job, 1) % 2);
    slurm_spank_task_init(NULL, n_words, words);
    slurm_spank_task_post_fork(NULL, n_words, words);
    slurm_spank_task_exit(NULL, n_words, words);
    take_text(&job, given, sizeof given);
    setenv("SLURM_NODELIST", given, 1);
    setenv("SLURMD_NODENAME", "n1", 1);
    slurm_spank_job_epilog(NULL, n_words, words);
    struct said said = {.n = job.n < sizeof said.text ? job.n : sizeof said.text - 1};
    memcpy(said.text, job.at, said.n);
    tell(&said);
    return 0;
}

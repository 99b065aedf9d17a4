/* The Slurm plugin's own parts: names of nodes and files, and how it waits for what it starts. */
#define _GNU_SOURCE
#include "check.h"
#include "spank/plugin.c"

#include <stdarg.h>

static char logged[1 << 16];

void slurm_error(const char *format, ...)
{
    va_list rest;
    size_t n = strlen(logged);
    va_start(rest, format);
    vsnprintf(logged + n, sizeof logged - n, format, rest);
    va_end(rest);
    strncat(logged, "\n", sizeof logged - strlen(logged) - 1);
}

spank_context_t spank_context(void)
{
    return S_CTX_ERROR;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *given)
{
    return spank && given ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *text, int size)
{
    return spank && name && text && size ? ESPANK_SUCCESS : ESPANK_ENV_NOEXIST;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    return spank && name && value && overwrite ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    return spank && item ? ESPANK_SUCCESS : ESPANK_NOT_AVAIL;
}

static int shell(const char *script)
{
    char *arguments[] = {"/bin/sh", "-c", (char *)script, NULL};
    logged[0] = '\0';
    return run_python(arguments);
}

static void test_first_node(void)
{
    static const char *const cases[][2] = {
        {"n1", "n1"}, {"n[2-4,7],m", "n2"}, {"n[007,9]", "n007"}, {"a,b[1-2]", "a"}, {"r[3-4]n[10,12]x,z", "r3n10x"},
        {"", ""},     {"n[", "n"},          {"a-b.c,d", "a-b.c"},
    };
    char name[16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ms_first_node(name, sizeof name, cases[i][0]);
        CHECK(strcmp(name, cases[i][1]) == 0);
    }
    ms_first_node(name, 4, "longer");
    CHECK(strcmp(name, "lon") == 0);
}

static void test_expand(void)
{
    char text[64];
    CHECK(ms_expand(text, sizeof text, "/p[x]/%u%%/%j.%s.h5", 7, "batch", 1000));
    CHECK(strcmp(text, "/p[x]/1000%/7.batch.h5") == 0);
    CHECK(ms_expand(text, sizeof text, "/p[x]*/%j.%s.h5", 7, NULL, 1000));
    CHECK(strcmp(text, "/p\\[x]\\*/7.*.h5") == 0);
    CHECK(!ms_expand(text, sizeof text, "/p/%x", 7, NULL, 1000));
    CHECK(!ms_expand(text, sizeof text, "/p/%", 7, NULL, 1000));
    CHECK(!ms_expand(text, 9, "/p/12345%j", 7, NULL, 1000));
    CHECK(ms_expand(text, 10, "/p/12345%j", 7, NULL, 1000));
}

static void test_the_command_ends_by_itself(void)
{
    CHECK(shell("exit 0") == 0 && logged[0] == '\0');
    CHECK(shell("printf 'why\\tnot\\n\\nbecause' >&2; echo result; exit 3") == 3);
    CHECK(strcmp(logged, "why?not\nbecause\n") == 0);
    CHECK(shell("yes | head -c 1000000 >&2") == 0);
    CHECK(strlen(logged) > 4000 && strlen(logged) < 5000);
    CHECK(shell("kill -9 $$") == -1);
    CHECK(run_python((char *[]){"/nowhere/python", NULL}) == -1);
}

/* Killed; its new parent may not have waited for it. */
static int is_dead(int pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 1;
    int found = fscanf(file, "%*d (%*[^)]) %c", &state);
    fclose(file);
    return found < 1 || state == 'Z' || state == 'X';
}

static void test_one_that_takes_too_long_is_killed_with_all_that_it_started(void)
{
    int pid = 0;
    CHECK(shell("sleep 1000 & echo $! >&2; sleep 1000") == -1);
    CHECK(sscanf(logged, "%d", &pid) == 1 && pid > 0);
    for (int i = 0; i < 1000 && !is_dead(pid); i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK(is_dead(pid));
}

int main(void)
{
    test_first_node();
    test_expand();
    test_the_command_ends_by_itself();
    test_one_that_takes_too_long_is_killed_with_all_that_it_started();
    puts("ok");
    return n_failed != 0;
}

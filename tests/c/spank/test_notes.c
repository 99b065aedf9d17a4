/* Notes of steps in a spool that hangs. argv[1]: an empty folder. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "spank/notes.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char held[PATH_MAX]; /* a pipe; until somebody reads it, no link is made */

int link(const char *from, const char *to)
{
    int file = held[0] ? open(held, O_WRONLY) : -1;
    if (file >= 0)
        close(file);
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int n_parts(const char *spool)
{
    char pattern[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/.steps/.mpicoloc-*.part", spool);
    int n = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static void wait_for_parts(const char *spool, int n)
{
    for (int i = 0; i < 3000 && n_parts(spool) != n; i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK(n_parts(spool) == n);
}

/* Lets the link be made, and waits until it was. */
static void go_on(const char *spool)
{
    wait_for_parts(spool, 1);
    int file = open(held, O_RDONLY | O_NONBLOCK);
    CHECK(file >= 0);
    wait_for_parts(spool, 0);
    close(file);
}

static int says(const char *path, const char *words)
{
    char text[1024] = "";
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    return n && strstr(text, words);
}

static void test_a_spool_that_hangs_holds_no_step(const char *spool)
{
    char path[PATH_MAX];
    int of_task[2];
    struct mn_note of_25 = {.job = 25, .step = "0", .begun = {7, 0}};
    snprintf(held, sizeof held, "%s/held", spool);
    snprintf(path, sizeof path, "%s/.steps/25.7.0.json", spool);
    CHECK(mkfifo(held, 0600) == 0 && pipe(of_task) == 0);
    CHECK(mn_write(spool, &of_25) == ETIMEDOUT && !mn_has(spool, 25));
    close(of_task[1]);
    struct pollfd reader = {.fd = of_task[0], .events = POLLIN};
    /* Nobody else has it: Slurm would wait for its end. */
    CHECK(poll(&reader, 1, 30000) == 1 && reader.revents & POLLHUP);
    close(of_task[0]);
    go_on(spool);
    CHECK(says(path, "\"ended_unix_s\": null") && unlink(path) == 0);
}

static void test_a_late_begin_does_not_take_the_end_away(const char *spool)
{
    char path[PATH_MAX];
    struct mn_note of_25 = {.job = 25, .step = "0", .begun = {7, 0}};
    snprintf(path, sizeof path, "%s/.steps/25.7.0.json", spool);
    CHECK(mn_write(spool, &of_25) == ETIMEDOUT);
    of_25.ended.tv_sec = 9;
    CHECK(mn_write(spool, &of_25) == 0 && says(path, "\"ended_unix_s\": 9.000"));
    go_on(spool);
    CHECK(says(path, "\"ended_unix_s\": 9.000") && unlink(path) == 0 && unlink(held) == 0);
    held[0] = '\0';
}

/* All files that slurmstepd may have are open, a pipe of its own among them at 3. */
static void test_where_no_file_can_be_opened_nobody_else_is_told_of_it(const char *spool)
{
    enum { READER = 20, WRITER, INPUT, N_FILES = 5 };
    struct mn_note of_26 = {.job = 26, .step = "0", .begun = {7, 0}};
    struct rlimit before;
    int ends[2];
    char byte;
    CHECK(pipe(ends) == 0 && dup2(ends[0], READER) == READER && dup2(ends[1], WRITER) == WRITER);
    close(ends[0]), close(ends[1]);
    CHECK(dup2(0, INPUT) == INPUT && dup2(WRITER, 3) == 3 && getrlimit(RLIMIT_NOFILE, &before) == 0);
    close(0), close(4), close(WRITER); /* two are left, for mn_write's own pipe */
    struct rlimit few = {N_FILES, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0 && mn_write(spool, &of_26) == EAGAIN);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0 && !mn_has(spool, 26) && dup2(INPUT, 0) == 0);
    close(3);
    CHECK(read(READER, &byte, 1) == 0);
    close(READER), close(INPUT);
}

int main(int n_arguments, char *arguments[])
{
    CHECK(n_arguments == 2);
    test_a_spool_that_hangs_holds_no_step(arguments[1]);
    test_a_late_begin_does_not_take_the_end_away(arguments[1]);
    test_where_no_file_can_be_opened_nobody_else_is_told_of_it(arguments[1]);
    puts("ok");
    return n_failed != 0;
}

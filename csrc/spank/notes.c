#define _GNU_SOURCE
#include "spank/notes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Headers older than Linux 5.9 lack this number, even if the running kernel has the call. The number differs only on
   these three architectures. */
#if !defined SYS_close_range && !defined __alpha__ && !defined __mips__ && !defined __ia64__
#define SYS_close_range 436
#endif

#ifndef NOTE_LIMIT_MS
#define NOTE_LIMIT_MS 1000
#endif

enum { N_TEXT = 512, N_TIME = 40, N_FDS_MAX = 4096 };

static const char FOLDER[] = ".steps";

static void put_time(char text[N_TIME], const struct timespec *time)
{
    if (time->tv_sec)
        snprintf(text, N_TIME, "%lld.%03ld", (long long)time->tv_sec, time->tv_nsec / 1000000);
    else
        snprintf(text, N_TIME, "null");
}

static int put_note(char text[N_TEXT], const struct mn_note *note)
{
    char begun[N_TIME], ended[N_TIME];
    put_time(begun, &note->begun);
    put_time(ended, &note->ended);
    return snprintf(text, N_TEXT,
                    "{\"schema_version\": 1, \"job\": %" PRIu32 ", \"step\": \"%s\", \"uid\": %" PRIu32
                    ", \"n_nodes\": %" PRIu32 ", \"n_cpus_here\": %" PRIu32
                    ", \"begun_unix_s\": %s, \"ended_unix_s\": %s}\n",
                    note->job, note->step, note->uid, note->n_nodes, note->n_cpus, begun, ended);
}

static int open_new(const char *folder, const char *path)
{
    static const int how = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    struct stat status;
    int file = open(path, how, 0600);
    if (file < 0 && errno == ENOENT && (mkdir(folder, 0700) == 0 || errno == EEXIST))
        file = open(path, how, 0600);
    if (file >= 0 && (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))) {
        close(file);
        errno = EINVAL;
        return -1;
    }
    return file;
}

/* Give the new note its final name. A note of a step's start never replaces an existing note, because the process that
   writes the note of the start may have hung and may be late. */
static int put_in_place(const char *new, const char *path, int has_ended)
{
    if (!has_ended) {
        int failed = link(new, path) == 0 || errno == EEXIST ? 0 : errno;
        if (failed != EPERM && failed != EOPNOTSUPP && failed != ENOSYS) { /* else the file system has no links */
            unlink(new);
            return failed;
        }
    }
    return rename(new, path) == 0 ? 0 : errno;
}

/* Write the note. Returns 0 or an errno. */
static int save(const char *spool, const struct mn_note *note)
{
    char folder[PATH_MAX], path[PATH_MAX], new[PATH_MAX], name[64], text[N_TEXT];
    int n = put_note(text, note);
    snprintf(name, sizeof name, "%" PRIu32 ".%lld.%s", note->job, (long long)note->begun.tv_sec, note->step);
    if (snprintf(folder, sizeof folder, "%s/%s", spool, FOLDER) >= (int)sizeof folder ||
        snprintf(path, sizeof path, "%s/%s.json", folder, name) >= (int)sizeof path ||
        snprintf(new, sizeof new, "%s/.mpicoloc-%s.%ld.part", folder, name, (long)getpid()) >= (int)sizeof new)
        return ENAMETOOLONG;
    int file = open_new(folder, new);
    if (file < 0)
        return errno;
    errno = EIO; /* report a short write as this error */
    int failed = write(file, text, (size_t)n) == n ? 0 : errno;
    if (close(file) != 0 && !failed)
        failed = errno;
    if (!failed)
        failed = put_in_place(new, path, note->ended.tv_sec != 0);
    if (failed)
        unlink(new);
    return failed;
}

/* Move `to` to descriptor 3 and close all other descriptors, because the reader of the tasks' output waits as long as
   any process holds its pipes. If `to` cannot be moved, end the process: descriptor 3 may be a file of slurmstepd, and
   our answer must not go there. */
static int keep_only(int to)
{
    to = fcntl(to, F_DUPFD, 4); /* if 0 to 2 were closed, it may be one of them: move it away first */
    if (to < 0)
        _exit(1);
    int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; nowhere >= 0 && fd < 3; fd++)
        dup2(nowhere, fd);
    dup2(to, 3);
    /* The oldest supported C library lacks close_range. */
    if (syscall(SYS_close_range, 4, ~0u, 0) != 0)
        for (int fd = 4; fd < N_FDS_MAX; fd++)
            close(fd);
    return 3;
}

/* Save the note in an orphaned process, because slurmstepd would take a hanging child for a task of the step. */
static void save_apart(const char *spool, const struct mn_note *note, int to)
{
    if (fork() == 0) {
        to = keep_only(to);
        unsigned char failed = (unsigned char)save(spool, note);
        _exit(write(to, &failed, 1) != 1);
    }
    _exit(0);
}

int mn_write(const char *spool, const struct mn_note *note)
{
    int ends[2];
    unsigned char failed = ETIMEDOUT;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0)
        save_apart(spool, note, ends[1]);
    close(ends[1]);
    if (pid > 0) {
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        if (poll(&ready, 1, NOTE_LIMIT_MS) > 0 && read(ends[0], &failed, 1) != 1)
            failed = EAGAIN; /* the process could not be started */
    }
    close(ends[0]);
    return pid > 0 ? failed : EAGAIN;
}

int mn_has(const char *spool, uint32_t job)
{
    char path[PATH_MAX], start[16];
    int found = 0, n = snprintf(start, sizeof start, "%" PRIu32 ".", job);
    if (snprintf(path, sizeof path, "%s/%s", spool, FOLDER) >= (int)sizeof path)
        return 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; !found && folder && (entry = readdir(folder));)
        found = strncmp(entry->d_name, start, (size_t)n) == 0;
    if (folder)
        closedir(folder);
    return found;
}

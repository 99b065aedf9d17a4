/* Linked into programs that qemu-aarch64 runs, so that they see of /proc what they would on a machine of their own.
   QEMU makes up a process's own `stat`, with a start time that other processes do not see; and as it has no host
   signals 32 and 33, those of the program from 32 on are two numbers higher in `status`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_TEXT = 8192, FIRST_SHIFTED = 32, SHIFT = 2 };

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static void renumber(char *text, const char *name)
{
    char *mask = strstr(text, name), digits[17];
    if (!mask)
        return;
    mask += strlen(name);
    unsigned long bits = strtoul(mask, NULL, 16), low = (1ul << (FIRST_SHIFTED - 1)) - 1;
    bits = (bits & low) | (bits >> SHIFT & ~low);
    snprintf(digits, sizeof digits, "%016lx", bits);
    memcpy(mask, digits, 16);
}

/* A file in memory with the same text, of which the masks are as the program means them. */
static int status_of_program(int fd)
{
    static const char *const masks[] = {"\nSigPnd:\t", "\nShdPnd:\t", "\nSigBlk:\t", "\nSigIgn:\t", "\nSigCgt:\t"};
    char text[N_TEXT];
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return fd;
    close(fd);
    text[n] = '\0';
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
        renumber(text, masks[i]);
    fd = memfd_create("status", MFD_CLOEXEC);
    if (fd >= 0 && (write(fd, text, (size_t)n) != n || lseek(fd, 0, SEEK_SET) != 0))
        abort();
    return fd;
}

int open(const char *path, int flags, ...)
{
    static const char proc[] = "/proc/";
    char real[256];
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0;
    va_end(arguments);
    int is_status = ends_with(path, "/status");
    if (strncmp(path, proc, strlen(proc)) == 0 && (is_status || ends_with(path, "/stat"))) {
        snprintf(real, sizeof real, "/proc/./%s", path + strlen(proc)); /* which QEMU leaves as it is */
        path = real;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    return path == real && is_status ? status_of_program(fd) : fd;
}

FILE *fopen(const char *path, const char *mode)
{
    int is_read = mode[0] == 'r', is_both = strchr(mode, '+') != NULL;
    int flags = (is_both ? O_RDWR : is_read ? O_RDONLY : O_WRONLY) | (strchr(mode, 'e') ? O_CLOEXEC : 0);
    flags |= is_read ? 0 : mode[0] == 'w' ? O_CREAT | O_TRUNC : O_CREAT | O_APPEND;
    int fd = open(path, flags, 0666);
    return fd < 0 ? NULL : fdopen(fd, mode);
}

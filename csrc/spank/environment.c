#define _GNU_SOURCE
#include "spank/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static int is_set(spank_t spank, const char *variable)
{
    char text[8];
    spank_err_t found = spank_getenv(spank, variable, text, sizeof text);
    return found == ESPANK_SUCCESS || found == ESPANK_NOSPACE;
}

/* ---- measured tasks ---- */

enum { N_PRELOAD = 16384, N_VARIABLE = 64 };

/* The plugin marks each variable that it sets by a copy: another variable with the prefix COPY and the same value. */
static const char OWN[] = "MPICOLOC_", COPY[] = "MPICOLOC_SITE_";

static void name_variable(char text[N_VARIABLE], const char *start, const char *name)
{
    snprintf(text, N_VARIABLE, "%s%s", start, name);
}

static void forget(spank_t spank, const char *name)
{
    char own[N_VARIABLE], copy[N_VARIABLE], value[PATH_MAX] = "", ours[PATH_MAX] = "";
    name_variable(own, OWN, name);
    name_variable(copy, COPY, name);
    if (!is_set(spank, copy))
        return;
    if (spank_getenv(spank, own, value, sizeof value) == ESPANK_SUCCESS &&
        spank_getenv(spank, copy, ours, sizeof ours) == ESPANK_SUCCESS && strcmp(value, ours) == 0)
        spank_unsetenv(spank, own);
    spank_unsetenv(spank, copy);
}

/* Remove the libraries that the plugin and libmpicoloc-auto.so have added to LD_PRELOAD. Returns 1 if
   libmpicoloc-auto.so was there. If it was not, our libraries are the user's own choice and stay. */
static int strip_preload(char *preload)
{
    char *rest = NULL, *to = preload;
    if (!strstr(preload, "libmpicoloc-auto.so"))
        return 0;
    for (char *entry = strtok_r(preload, ": ", &rest); entry; entry = strtok_r(NULL, ": ", &rest)) {
        size_t n = strlen(entry);
        if (strncmp(basename(entry), "libmpicoloc-", 12) == 0)
            continue;
        if (to != preload)
            *to++ = ':';
        memmove(to, entry, n);
        to += n;
    }
    *to = '\0';
    return 1;
}

void mt_forget(spank_t spank)
{
    char preload[N_PRELOAD] = "";
    forget(spank, "OUT");
    forget(spank, "TRACE");
    forget(spank, "SHM_DIR");
    if (spank_getenv(spank, "LD_PRELOAD", preload, sizeof preload) != ESPANK_SUCCESS || !strip_preload(preload))
        return;
    if (preload[0])
        spank_setenv(spank, "LD_PRELOAD", preload, 1);
    else
        spank_unsetenv(spank, "LD_PRELOAD");
}

void mt_preload(spank_t spank, const char *library)
{
    char before[N_PRELOAD] = "", now[N_PRELOAD];
    spank_err_t found = spank_getenv(spank, "LD_PRELOAD", before, sizeof before);
    if (found == ESPANK_NOSPACE || strstr(before, "libmpicoloc-"))
        return;
    int n = snprintf(now, sizeof now, "%s%s%s", library, before[0] ? ":" : "", before);
    if (n > 0 && n < (int)sizeof now)
        spank_setenv(spank, "LD_PRELOAD", now, 1);
}

void mt_set(spank_t spank, const char *name, const char *value)
{
    char own[N_VARIABLE], copy[N_VARIABLE];
    name_variable(own, OWN, name);
    name_variable(copy, COPY, name);
    if (is_set(spank, own))
        return;
    spank_setenv(spank, own, value, 1);
    spank_setenv(spank, copy, value, 1);
}

/* ---- service levels ---- */

enum { N_WORD = 256, N_LINES = 8, N_MARK = N_LINES * (N_WORD + 1) };

/* Variable that lists what the plugin has set: entries NAME=VALUE, separated by spaces. */
static const char MARK[] = "MPICOLOC_SITE_LEVEL";

/* Read a variable. Returns 1 if its value can be one component of a path. */
static int read_word(spank_t spank, const char *variable, char word[N_WORD])
{
    return spank_getenv(spank, variable, word, N_WORD) == ESPANK_SUCCESS && word[0] && word[0] != '.' &&
           !strchr(word, '/');
}

/* Split NAME=VALUE in place and return the value. Returns NULL if the line has another form, or contains a blank:
   blanks separate the entries in the mark. */
static char *split(char *line)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strspn(line, letters);
    if (n == 0 || line[n] != '=' || strpbrk(line, " \t"))
        return NULL;
    line[n] = '\0';
    return line + n + 1;
}

static void set_all(spank_t spank, FILE *file, const char *path)
{
    char line[N_WORD], mark[N_MARK] = "";
    for (int i = 0; i < N_LINES && fgets(line, sizeof line, file); i++) {
        line[strcspn(line, "\r\n")] = '\0';
        char *value = split(line);
        if (!value) {
            slurm_error("mpicoloc: %s: line %d is not NAME=VALUE: left out", path, i + 1);
            continue;
        }
        size_t used = strlen(mark);
        if (is_set(spank, line) || spank_setenv(spank, line, value, 0) != ESPANK_SUCCESS)
            continue;
        snprintf(mark + used, sizeof mark - used, "%s%s=%s", used ? " " : "", line, value);
    }
    if (mark[0])
        spank_setenv(spank, MARK, mark, 1);
}

void ml_set(spank_t spank, const char *folder)
{
    char user[N_WORD], name[N_WORD], path[PATH_MAX];
    if (!read_word(spank, "SLURM_JOB_USER", user) || !read_word(spank, "SLURM_JOB_NAME", name) ||
        snprintf(path, sizeof path, "%s/%s/%s", folder, user, name) >= (int)sizeof path)
        return;
    FILE *file = fopen(path, "re");
    if (file) {
        set_all(spank, file, path);
        fclose(file);
    } else if (errno != ENOENT) {
        slurm_error("mpicoloc: %s cannot be read (%s): the job uses the default service level", path, strerror(errno));
    }
}

void ml_forget(spank_t spank)
{
    char mark[N_MARK], now[N_WORD], *rest = NULL;
    if (spank_getenv(spank, MARK, mark, sizeof mark) != ESPANK_SUCCESS)
        return;
    for (char *entry = strtok_r(mark, " ", &rest); entry; entry = strtok_r(NULL, " ", &rest)) {
        char *value = split(entry);
        if (value && spank_getenv(spank, entry, now, sizeof now) == ESPANK_SUCCESS && strcmp(now, value) == 0)
            spank_unsetenv(spank, entry);
    }
    spank_unsetenv(spank, MARK);
}

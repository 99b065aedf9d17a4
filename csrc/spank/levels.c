#include "spank/levels.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { N_WORD = 256, N_LINES = 8, N_MARK = N_LINES * (N_WORD + 1) };

/* Marks what the plugin has set: NAME=VALUE, with spaces between. */
static const char MARK[] = "MPICOLOC_SITE_LEVEL";

/* Returns 1 if the word can be a part of a path of this folder. */
static int read_word(spank_t spank, const char *variable, char word[N_WORD])
{
    return spank_getenv(spank, variable, word, N_WORD) == ESPANK_SUCCESS && word[0] && word[0] != '.' &&
           !strchr(word, '/');
}

/* Split NAME=VALUE. Returns NULL if it is none, or has what cannot stand in the mark. */
static char *split(char *line)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strspn(line, letters);
    if (n == 0 || line[n] != '=' || strpbrk(line, " \t"))
        return NULL;
    line[n] = '\0';
    return line + n + 1;
}

static int is_set(spank_t spank, const char *name)
{
    char text[8];
    spank_err_t found = spank_getenv(spank, name, text, sizeof text);
    return found == ESPANK_SUCCESS || found == ESPANK_NOSPACE;
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

#include "spank/settings.h"

#include <stdio.h>
#include <string.h>

static const char *copy(char *to, size_t size, const char *value)
{
    size_t n = strlen(value);
    if (n == 0 || n >= size)
        return "is empty or too long";
    memcpy(to, value, n + 1);
    return NULL;
}

static const char *take_path(char to[PATH_MAX], const char *value)
{
    return value[0] == '/' ? copy(to, PATH_MAX, value) : "is no absolute path";
}

static const char *take_pattern(char to[PATH_MAX], const char *value)
{
    char given[PATH_MAX], path[PATH_MAX];
    const char *wrong = take_path(given, value);
    if (!wrong && !ms_expand(path, sizeof path, given, 0, "0", 0))
        wrong = "is no pattern of %j, %s, %u and %%";
    return wrong ? wrong : take_path(to, value);
}

static const char *take_partition(struct ms_site *site, const char *value)
{
    if (site->n_partitions == MS_N_PARTITIONS)
        return "is one partition too many";
    const char *wrong = copy(site->partitions[site->n_partitions], MS_N_NAME, value);
    site->n_partitions += !wrong;
    return wrong;
}

static const char *take_default(struct ms_site *site, const char *value)
{
    int is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0)
        return "is neither on nor off";
    site->is_default = is_on;
    return NULL;
}

const char *ms_take_word(struct ms_site *site, const char *word)
{
    const struct {
        const char *name;
        char *to;
    } paths[] = {
        {"library=", site->library}, {"key_file=", site->key_file}, {"spool=", site->spool},
        {"levels=", site->levels},   {"python=", site->python},
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strncmp(word, paths[i].name, strlen(paths[i].name)) == 0)
            return take_path(paths[i].to, word + strlen(paths[i].name));
    if (strncmp(word, "out=", 4) == 0)
        return take_pattern(site->out, word + 4);
    if (strncmp(word, "partition=", 10) == 0)
        return take_partition(site, word + 10);
    if (strncmp(word, "default=", 8) == 0)
        return take_default(site, word + 8);
    return "is none of default=, partition=, library=, out=, key_file=, spool=, levels=, python=";
}

static int is_count(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n < 10 && text[n] == '\0';
}

const char *ms_take_option(struct ms_user *user, const char *value)
{
    if (value && strcmp(value, "off") == 0) {
        user->wish = MS_OFF;
        return NULL;
    }
    if (value && strncmp(value, "trace=", 6) == 0) {
        if (!is_count(value + 6) && strcmp(value + 6, "all") != 0)
            return "trace= takes a number of events, or all";
        snprintf(user->trace, sizeof user->trace, "%.15s", value + 6);
    } else if (value && *value && strcmp(value, "on") != 0 && strcmp(value, "(null)") != 0) {
        /* Slurm passes (null) on to the steps of a batch job that gave no value */
        return "give on, off, trace=N or trace=all";
    }
    user->wish = MS_ON;
    return NULL;
}

int ms_is_wanted(const struct ms_site *site, const struct ms_user *user, const char *partition)
{
    if (user->wish != MS_NOT_SAID)
        return user->wish == MS_ON;
    for (int i = 0; partition && i < site->n_partitions; i++)
        if (strcmp(site->partitions[i], partition) == 0)
            return 1;
    return site->is_default;
}

/* Without a step: a pattern for all steps. */
static int put(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid)
{
    const char *escape = !step && strchr("*?[\\", *out) ? "\\" : "";
    switch (*out == '%' ? out[1] : 'c') {
    case 'c':
        return snprintf(text, size, "%s%c", escape, *out);
    case 'j':
        return snprintf(text, size, "%u", job);
    case 's':
        return snprintf(text, size, "%s", step ? step : "*");
    case 'u':
        return snprintf(text, size, "%u", uid);
    case '%':
        return snprintf(text, size, "%%");
    default:
        return -1;
    }
}

int ms_expand(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid)
{
    size_t used = 0;
    for (; *out; out += *out == '%' ? 2 : 1) {
        int n = put(text + used, size - used, out, job, step, uid);
        if (n < 0 || (used += (size_t)n) >= size)
            return 0;
    }
    return used > 0;
}

int ms_names_steps(const char *out)
{
    char one[PATH_MAX], other[PATH_MAX];
    return ms_expand(one, sizeof one, out, 0, "0", 0) && ms_expand(other, sizeof other, out, 0, "1", 0) &&
           strcmp(one, other) != 0;
}

int ms_strip_preload(char *preload)
{
    char *rest = NULL, *to = preload;
    if (!strstr(preload, "libmpicoloc-auto.so"))
        return 0;
    for (char *entry = strtok_r(preload, ": ", &rest); entry; entry = strtok_r(NULL, ": ", &rest)) {
        const char *slash = strrchr(entry, '/');
        size_t n = strlen(entry);
        if (strncmp(slash ? slash + 1 : entry, "libmpicoloc-", 12) == 0)
            continue;
        if (to != preload)
            *to++ = ':';
        memmove(to, entry, n);
        to += n;
    }
    *to = '\0';
    return 1;
}

void ms_first_node(char *name, size_t size, const char *list)
{
    size_t n = 0;
    int is_inside = 0, is_over = 0; /* of brackets; of the first number in them */
    for (; *list && (is_inside || *list != ','); list++) {
        if (*list == '[' || *list == ']')
            is_inside = *list == '[', is_over = 0;
        else if (is_inside && (*list == '-' || *list == ','))
            is_over = 1;
        else if (!is_over && n + 1 < size)
            name[n++] = *list;
    }
    name[n] = '\0';
}

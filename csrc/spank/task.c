#include "spank/settings.h"
#include "spank/task.h"

#include <stdio.h>
#include <string.h>

enum { N_PRELOAD = 16384, N_VARIABLE = 64 };

/* A second variable with the same value marks what the plugin has set. */
static const char OWN[] = "MPICOLOC_", COPY[] = "MPICOLOC_SITE_";

static void name_variable(char text[N_VARIABLE], const char *start, const char *name)
{
    snprintf(text, N_VARIABLE, "%s%s", start, name);
}

static int is_set(spank_t spank, const char *variable)
{
    char text[8];
    spank_err_t found = spank_getenv(spank, variable, text, sizeof text);
    return found == ESPANK_SUCCESS || found == ESPANK_NOSPACE;
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

void mt_forget(spank_t spank)
{
    char preload[N_PRELOAD] = "";
    forget(spank, "OUT");
    forget(spank, "TRACE");
    if (spank_getenv(spank, "LD_PRELOAD", preload, sizeof preload) != ESPANK_SUCCESS || !ms_strip_preload(preload))
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

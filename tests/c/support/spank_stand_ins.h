/* Slurm for the plugin in a test: what it is told, a line each, and a task whose environment is that of this process. */
#ifndef MPICOLOC_SPANK_STAND_INS_H
#define MPICOLOC_SPANK_STAND_INS_H

#include <slurm/spank.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

spank_err_t spank_getenv(spank_t spank, const char *name, char *text, int size)
{
    const char *value = getenv(name);
    (void)spank;
    if (!value)
        return ESPANK_ENV_NOEXIST;
    return snprintf(text, (size_t)size, "%s", value) < size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    (void)spank;
    return setenv(name, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
    (void)spank;
    return unsetenv(name) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static int is_now(const char *name, const char *value)
{
    const char *present = getenv(name);
    return value ? present && strcmp(present, value) == 0 : !present;
}

#endif

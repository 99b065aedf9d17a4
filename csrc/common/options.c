#include "common/options.h"

#include <math.h>
#include <stdlib.h>

/* MC_OPTION_ROWS(X) is generated from config.py: X(environment variable, default as text, or NULL). */
#define ROW(env, fallback) {env, fallback},
static const struct {
    const char *env, *fallback;
} rows[] = {MC_OPTION_ROWS(ROW)};

static int parse(const char *text, double *value)
{
    char *end;
    if (!text || !*text)
        return 0;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

double mc_option_number(int i_option)
{
    double value = 0.0;
    if (!parse(getenv(rows[i_option].env), &value))
        parse(rows[i_option].fallback, &value);
    return value;
}

const char *mc_option_text(int i_option)
{
    const char *text = getenv(rows[i_option].env);
    return text && *text ? text : rows[i_option].fallback;
}

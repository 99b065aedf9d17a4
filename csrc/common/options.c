#include "common/options.h"

#include <math.h>
#include <stdlib.h>

#define ROW(env, fallback, low, high) {env, fallback, low, high},
static const struct {
    const char *env, *fallback;
    double low, high;
} rows[] = {MC_OPTION_ROWS(ROW)};

double mc_option_number(int i_option)
{
    const char *text = getenv(rows[i_option].env);
    char *end;
    double value = text && *text ? strtod(text, &end) : NAN;
    if (value >= rows[i_option].low && value <= rows[i_option].high && isfinite(value) && *end == '\0')
        return value;
    return rows[i_option].fallback ? strtod(rows[i_option].fallback, NULL) : 0.0;
}

const char *mc_option_text(int i_option)
{
    const char *text = getenv(rows[i_option].env);
    return text && *text ? text : rows[i_option].fallback;
}

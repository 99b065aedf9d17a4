#include "common/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ROW(env, fallback, type, low, high) {env, fallback, type[0], low, high},
static const struct {
    const char *env, *fallback;
    char type; /* first letter of bool, int, float or str */
    double low, high;
} rows[] = {MC_OPTION_ROWS(ROW)};

#define WORD(text, value) {text, value},
static const struct {
    const char *text;
    double value;
} bool_words[] = {MC_BOOL_WORDS(WORD)};

static double parse(const char *text, char type)
{
    char *end;
    for (size_t i = 0; type == 'b' && i < sizeof bool_words / sizeof *bool_words; i++)
        if (strcasecmp(text, bool_words[i].text) == 0)
            return bool_words[i].value;
    if (type == 'b' || (type == 'i' && text[strspn(text, "+-0123456789")]))
        return NAN;
    double value = strtod(text, &end);
    return end > text && *end == '\0' ? value : NAN;
}

double mc_option_number(int i_option)
{
    const char *text = getenv(rows[i_option].env);
    double value = text ? parse(text, rows[i_option].type) : NAN;
    if (isfinite(value) && value >= rows[i_option].low && value <= rows[i_option].high)
        return value;
    return rows[i_option].fallback ? strtod(rows[i_option].fallback, NULL) : 0.0;
}

const char *mc_option_text(int i_option)
{
    const char *text = getenv(rows[i_option].env);
    return text && *text ? text : rows[i_option].fallback;
}

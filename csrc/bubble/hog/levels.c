/* Calibration files: lines of text, written by Python (mpicoloc/bubble/calibrate.py). This code reads the lines
   cpus PROCESSORS BUBBLES, probe BYTES LINES_PER_S, probe_alone LINES_PER_S, and
   level LEVEL BYTES LINES_PER_S SLOWDOWN LOW HIGH. */
#include "bubble/bubble.h"

#include <stdio.h>
#include <string.h>

static int read_level(mc_bubble_levels *levels, int level, const char *line)
{
    mc_bubble_setting *s = &levels->at[level];
    int n = sscanf(line, "level %*d %lu %lf %lf %lf %lf", &s->working_set_bytes, &s->lines_per_s,
                   &levels->slowdown[level], &levels->low[level], &levels->high[level]);
    return n >= 2 && s->lines_per_s >= 0;
}

int mc_bubble_levels_read(mc_bubble_levels *levels, const char *path)
{
    char line[512];
    int n = 0, is_right = 1;
    memset(levels, 0, sizeof *levels);
    FILE *file = fopen(path, "re");
    if (!file)
        return MC_BUBBLE_E_FILE;
    while (is_right && fgets(line, sizeof line, file)) {
        int level;
        if (sscanf(line, "cpus %d %d", &levels->n_cpus, &levels->n_bubbles) == 2 ||
            sscanf(line, "probe %lu %lf", &levels->probe.working_set_bytes, &levels->probe.lines_per_s) == 2 ||
            sscanf(line, "probe_alone %lf", &levels->probe_lines_per_s) == 1 || sscanf(line, "level %d", &level) != 1)
            continue;
        is_right = n < MC_N_BUBBLE_LEVELS && level == n && read_level(levels, level, line);
        n++;
    }
    fclose(file);
    return is_right && n == MC_N_BUBBLE_LEVELS ? MC_BUBBLE_OK : MC_BUBBLE_E_FORMAT;
}

int mc_bubble_setting_of(mc_bubble_setting *setting, const mc_bubble_levels *levels, double level, int n_shares)
{
    if (!(level >= 0 && level <= MC_BUBBLE_LEVEL_MAX))
        return MC_BUBBLE_E_LEVEL;
    int below = (int)level < MC_BUBBLE_LEVEL_MAX ? (int)level : MC_BUBBLE_LEVEL_MAX - 1;
    double part = level - below;
    const mc_bubble_setting *a = &levels->at[below], *b = &levels->at[below + 1];
    double bytes = (double)a->working_set_bytes * (1 - part) + (double)b->working_set_bytes * part;
    *setting = (mc_bubble_setting){
        .working_set_bytes = (uint64_t)(bytes / n_shares),
        .lines_per_s = (a->lines_per_s * (1 - part) + b->lines_per_s * part) / n_shares,
    };
    return MC_BUBBLE_OK;
}

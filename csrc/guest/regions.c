/* MPI_Pcontrol: units of work and named regions of the application. The application's side is
   mpicoloc/include/mpicoloc_app.h. */
#include "guest/regions.h"

#include <string.h>

typedef struct open_region {
    uint32_t i_row;
    uint32_t hash; /* hash of the region's name; it tells apart regions that share row 0 */
    uint64_t t_begin, paused_ns, comp_ns;
} open_region;

static __thread open_region open_regions[MC_N_OPEN_REGIONS];
static __thread uint32_t n_open; /* can exceed the array's size; regions that do not fit are not measured */

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Row of a name. Row 0 stands for all names that find no free row, and for the empty name, because an empty name marks
   a free row. */
static uint32_t find_region(mc_lane_head *head, const char *name)
{
    if (name[0] == '\0')
        return 0;
    for (uint32_t i = 1; i < MC_N_REGIONS; i++) {
        mc_region_row *row = &head->regions[i];
        if (row->name[0] == '\0')
            strncpy(row->name, name, sizeof row->name - 1);
        if (strncmp(row->name, name, sizeof row->name - 1) == 0)
            return i;
    }
    return 0;
}

/* This thread's time outside MPI calls up to the call of `frame`, partly estimated if not all calls were timed. */
static uint64_t comp_until(const mc_lane_head *head, const mc_frame *frame)
{
    uint64_t gap_ns = frame->t_enter - head->calls.t_last, paused_ns = frame->paused_ns - head->calls.paused_ns;
    return head->gap_ns + (gap_ns > paused_ns ? gap_ns - paused_ns : 0) - head->counters.sampled_ns;
}

static void begin(mc_lane_head *head, const mc_frame *frame, const char *name)
{
    uint32_t i = n_open++;
    if (i < MC_N_OPEN_REGIONS)
        open_regions[i] = (open_region){find_region(head, name), hash_of(name), frame->t_enter, frame->paused_ns,
                                        comp_until(head, frame)};
}

static void close_innermost(mc_lane_head *head, const mc_frame *frame)
{
    if (--n_open >= MC_N_OPEN_REGIONS)
        return;
    const open_region *region = &open_regions[n_open];
    mc_region_row *row = &head->regions[region->i_row];
    int64_t time_ns = (int64_t)(frame->t_enter - region->t_begin - (frame->paused_ns - region->paused_ns));
    /* part of the time is estimated, so the difference can be negative */
    int64_t comp_ns = (int64_t)(comp_until(head, frame) - region->comp_ns);
    time_ns = time_ns > 0 ? time_ns : 0;
    comp_ns = comp_ns > 0 ? comp_ns : 0;
    row->n++;
    row->time_ns += (uint64_t)time_ns;
    row->mpi_ns += (uint64_t)(time_ns > comp_ns ? time_ns - comp_ns : 0);
}

/* End the innermost open region with this name, and the regions inside it that were left open. If no open region has
   this name, do nothing. */
static void end(mc_lane_head *head, const mc_frame *frame, const char *name)
{
    uint32_t hash = hash_of(name), n_kept = n_open < MC_N_OPEN_REGIONS ? n_open : MC_N_OPEN_REGIONS;
    while (n_kept && open_regions[n_kept - 1].hash != hash)
        n_kept--;
    while (n_kept && n_open >= n_kept)
        close_innermost(head, frame);
}

void mc_pcontrol(mc_frame *frame, int level, va_list arguments)
{
    mc_lane_head *head = mc_self.tables.head;
    if (!frame->is_recorded)
        return;
    if (level == MC_PCONTROL_UNITS)
        mc_units(frame, va_arg(arguments, unsigned long));
    else if (level == MC_PCONTROL_BEGIN)
        begin(head, frame, va_arg(arguments, const char *));
    else if (level == MC_PCONTROL_END)
        end(head, frame, va_arg(arguments, const char *));
    else
        mc_pcontrol_level(frame, level);
}

void mc_pcontrol_level(mc_frame *frame, int level)
{
    if (frame->is_recorded && level == MC_PCONTROL_UNIT)
        mc_units(frame, 1);
}

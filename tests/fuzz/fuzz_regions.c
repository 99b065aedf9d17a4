/* Names that an application gives to its regions, in any order of begins and ends. */
#include "guest/regions.c"

#include "fuzz.h"

static void call(mc_frame *frame, int level, ...)
{
    va_list arguments;
    va_start(arguments, level);
    mc_pcontrol(frame, level, arguments);
    va_end(arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mc_lane lane;
    bytes input = {data, size};
    mc_frame frame = {.is_recorded = 1};
    memset(&lane.head, 0, sizeof lane.head);
    mc_self.tables = (mc_tables){.head = &lane.head};
    n_open = 0;
    while (input.n) {
        char name[2 * MC_REGION_LEN];
        int is_begin = (int)take(&input, 1) % 2, i_name = (int)take(&input, 1);
        size_t n = i_name % sizeof name;
        bytes part = {input.at, n < input.n ? n : input.n};
        take_text(&part, name, sizeof name);
        input.at += is_begin && input.n ? 1 : 0;
        input.n -= is_begin && input.n ? 1 : 0;
        frame.t_enter += 10;
        call(&frame, is_begin ? MC_PCONTROL_BEGIN : MC_PCONTROL_END, name);
        mc_pcontrol_level(&frame, i_name);
    }
    for (int i = 0; i < MC_N_REGIONS; i++) {
        const mc_region_row *row = &lane.head.regions[i];
        if (row->name[MC_REGION_LEN - 1] != '\0' || (i > 0 && row->n > 0 && row->name[0] == '\0'))
            abort();
    }
    return 0;
}

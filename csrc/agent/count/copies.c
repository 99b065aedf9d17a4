#include "agent/count/copies.h"

#include <unistd.h>

int mc_copies_read_maps(mc_maps *maps, const mc_rank *rank, const mc_counts *counts)
{
    const mc_counting *counting = &rank->segment->counting;
    uint64_t n_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    int status = mc_maps_read(maps, rank->pid);
    for (uint64_t i = 0; i < counting->n_copies && i < MC_N_CODE_COPIES; i++) {
        const mc_code_copy *copy = &counting->copies[i];
        if (copy->i_path < counts->n_paths)
            mc_maps_add(maps, counts->paths[copy->i_path], copy->address, copy->address + n_bytes, copy->offset);
    }
    return maps->n ? MC_OK : status;
}

int mc_copies_note(mc_counting *counting, const mc_place *place, uint64_t address)
{
    uint64_t in_page = address & ((uint64_t)sysconf(_SC_PAGESIZE) - 1);
    const mc_code_copy copy = {address - in_page, place->offset - in_page, place->i_path};
    if (MC_CODE_IN_PLACE)
        return MC_OK;
    for (uint64_t i = 0; i < counting->n_copies && i < MC_N_CODE_COPIES; i++)
        if (counting->copies[i].address == copy.address && counting->copies[i].offset == copy.offset &&
            counting->copies[i].i_path == copy.i_path)
            return MC_OK;
    if (counting->n_copies >= MC_N_CODE_COPIES)
        return MC_E_FULL;
    counting->copies[counting->n_copies++] = copy;
    return MC_OK;
}

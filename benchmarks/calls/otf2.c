/* otf2 write|read FOLDER RANKS EVENTS: as many calls as rings.c makes, as OTF2 has them: enter, perhaps a message, leave. Prints
   calls, seconds, and seconds of processor. */
#include "draw.h"
#include <otf2/otf2.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_REGIONS = 8, BATCH = 4096, CHUNK_BYTES = 4 << 20 };

static uint64_t n_left, n_ns;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static OTF2_FlushType pre_flush(void *data, OTF2_FileType type, OTF2_LocationRef location, void *caller, bool final)
{
    (void)data, (void)type, (void)location, (void)caller, (void) final;
    return OTF2_FLUSH;
}

static void put(OTF2_EvtWriter *writer, uint64_t *t, int i)
{
    int kind = i % N_REGIONS;
    uint64_t begin = *t += draw_ns(12), duration = draw_ns(kind == 4 ? 16 : 10);
    uint64_t bytes = i % 64 ? 8192 : draw() % 100000;
    OTF2_EvtWriter_Enter(writer, NULL, begin, (uint32_t)kind);
    if (kind < 4 && kind % 2)
        OTF2_EvtWriter_MpiRecv(writer, NULL, begin + duration, 1, 0, 0, bytes);
    else if (kind < 4)
        OTF2_EvtWriter_MpiSend(writer, NULL, begin, 1, 0, 0, bytes);
    OTF2_EvtWriter_Leave(writer, NULL, *t = begin + duration, (uint32_t)kind);
}

static void define(OTF2_Archive *archive, int n_ranks, uint64_t n_of_rank)
{
    OTF2_GlobalDefWriter *writer = OTF2_Archive_GetGlobalDefWriter(archive);
    OTF2_GlobalDefWriter_WriteClockProperties(writer, 1000000000, 0, UINT64_MAX / 2, OTF2_UNDEFINED_TIMESTAMP);
    OTF2_GlobalDefWriter_WriteString(writer, 0, "x");
    for (uint32_t i = 0; i < N_REGIONS; i++)
        OTF2_GlobalDefWriter_WriteRegion(writer, i, 0, 0, 0, OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_MPI,
                                         OTF2_REGION_FLAG_NONE, 0, 0, 0);
    OTF2_GlobalDefWriter_WriteSystemTreeNode(writer, 0, 0, 0, OTF2_UNDEFINED_SYSTEM_TREE_NODE);
    OTF2_GlobalDefWriter_WriteLocationGroup(writer, 0, 0, OTF2_LOCATION_GROUP_TYPE_PROCESS, 0,
                                            OTF2_UNDEFINED_LOCATION_GROUP);
    for (int i = 0; i < n_ranks; i++)
        OTF2_GlobalDefWriter_WriteLocation(writer, (uint64_t)i, 0, OTF2_LOCATION_TYPE_CPU_THREAD, n_of_rank, 0);
}

static int write_all(const char *folder, int n_ranks, uint64_t n_events)
{
    static OTF2_FlushCallbacks flush = {.otf2_pre_flush = pre_flush};
    uint64_t *t = calloc((size_t)n_ranks, sizeof *t), n_of_rank = n_events / (uint64_t)n_ranks;
    OTF2_Archive *archive = OTF2_Archive_Open(folder, "x", OTF2_FILEMODE_WRITE, CHUNK_BYTES, CHUNK_BYTES,
                                              OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    if (!archive || !t)
        return 1;
    OTF2_Archive_SetFlushCallbacks(archive, &flush, NULL);
    OTF2_Archive_SetSerialCollectiveCallbacks(archive);
    OTF2_Archive_OpenEvtFiles(archive);
    for (uint64_t done = 0; done < n_of_rank; done += BATCH)
        for (int rank = 0; rank < n_ranks; rank++) {
            OTF2_EvtWriter *writer = OTF2_Archive_GetEvtWriter(archive, (uint64_t)rank);
            for (uint64_t i = done; i < done + BATCH && i < n_of_rank; i++)
                put(writer, &t[rank], (int)i);
        }
    for (int rank = 0; rank < n_ranks; rank++)
        OTF2_Archive_CloseEvtWriter(archive, OTF2_Archive_GetEvtWriter(archive, (uint64_t)rank));
    OTF2_Archive_CloseEvtFiles(archive);
    define(archive, n_ranks, n_of_rank);
    OTF2_Archive_Close(archive);
    n_left = n_of_rank * (uint64_t)n_ranks;
    free(t);
    return 0;
}

static OTF2_CallbackCode on_enter(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position, void *data,
                                  OTF2_AttributeList *list, OTF2_RegionRef region)
{
    (void)location, (void)position, (void)data, (void)list, (void)region;
    n_ns -= time;
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode on_leave(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position, void *data,
                                  OTF2_AttributeList *list, OTF2_RegionRef region)
{
    (void)location, (void)position, (void)data, (void)list, (void)region;
    n_ns += time;
    n_left++;
    return OTF2_CALLBACK_SUCCESS;
}

static int read_all(const char *folder, int n_ranks)
{
    char path[4096];
    uint64_t n;
    snprintf(path, sizeof path, "%s/x.otf2", folder);
    OTF2_Reader *reader = OTF2_Reader_Open(path);
    if (!reader)
        return 1;
    OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    for (int i = 0; i < n_ranks; i++)
        OTF2_Reader_SelectLocation(reader, (uint64_t)i);
    OTF2_Reader_OpenEvtFiles(reader);
    OTF2_EvtReaderCallbacks *callbacks = OTF2_EvtReaderCallbacks_New();
    OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, on_enter);
    OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, on_leave);
    for (int i = 0; i < n_ranks; i++) {
        OTF2_EvtReader *events = OTF2_Reader_GetEvtReader(reader, (uint64_t)i);
        OTF2_Reader_RegisterEvtCallbacks(reader, events, callbacks, NULL);
        OTF2_Reader_ReadAllLocalEvents(reader, events, &n);
        OTF2_Reader_CloseEvtReader(reader, events);
    }
    OTF2_EvtReaderCallbacks_Delete(callbacks);
    OTF2_Reader_CloseEvtFiles(reader);
    OTF2_Reader_Close(reader);
    return n_ns == 0;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    double begin = now_s();
    int is_write = strcmp(argv[1], "write") == 0, n_ranks = atoi(argv[3]);
    int failed = is_write ? write_all(argv[2], n_ranks, strtoull(argv[4], NULL, 10)) : read_all(argv[2], n_ranks);
    printf("%llu %.6f %.6f\n", (unsigned long long)n_left, now_s() - begin, (double)clock() / CLOCKS_PER_SEC);
    return failed;
}

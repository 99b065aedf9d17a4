/* Prints for each offset read from stdin (hexadecimal, one a line) the entry of the function that holds it in the
   program named as argument, or "-". */
#include "agent/loop/entries.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    mc_object object;
    uint64_t offset, entry;
    if (argc != 2 || mc_object_open(&object, argv[1]) != 0)
        return 1;
    while (scanf("%" SCNx64, &offset) == 1)
        if (mc_object_entry(&object, offset, &entry) == 0)
            printf("%" PRIx64 "\n", entry);
        else
            printf("-\n");
    mc_object_close(&object);
    return 0;
}

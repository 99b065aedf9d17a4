/* Files of programs and what /proc says of where they are loaded: every file that the code opens is the input, a real
   program (this one) with pieces of it replaced. */
#define _GNU_SOURCE
#include "foreign.h"

#include "agent/code/object.c"
#include "agent/code/maps.c"
#undef open
#undef fopen

static const char maps_text[] = "55d0a0000000-55d0a0001000 r--p 00000000 fe:00 1234 /opt/a program\n"
                                "55d0a0001000-55d0a0003000 r-xp 00001000 fe:00 1234   /opt/a program\n"
                                "7f0000000000-7f0000200000 r-xp 00028000 fe:00 99  /usr/lib/libc.so.6\n"
                                "7f0000400000-7f0000500000 r-xp 00000000 00:00 0\n"
                                "7f0000600000-7f0000700000 r-xp 00000000 fe:00 7 /tmp/gone (deleted)\n"
                                "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

enum { N_COPY = 1 << 16 };

/* A header, and the sections .dynstr and .strtab, which holds their names. */
static size_t make_program(uint8_t *out)
{
    static const char names[] = "\0.strtab\0.dynstr", needed[] = "\0libm.so.6\0libgnat-12.so";
    elf_header head = {.e_shoff = 0x200, .e_shnum = 3, .e_shentsize = sizeof(elf_section), .e_shstrndx = 1};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    head.e_ident[EI_DATA] = ELFDATA2LSB;
    head.e_phentsize = sizeof(elf_segment);
    elf_section sections[3] = {{0}, {.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = 0x400, .sh_size = sizeof names}};
    sections[2] = (elf_section){.sh_name = 9, .sh_type = SHT_STRTAB, .sh_offset = 0x500, .sh_size = sizeof needed};
    memset(out, 0, 0x600);
    memcpy(out, &head, sizeof head);
    memcpy(out + head.e_shoff, sections, sizeof sections);
    memcpy(out + 0x400, names, sizeof names);
    memcpy(out + 0x500, needed, sizeof needed);
    return 0x600;
}

/* Undamaged, it is read rightly: otherwise all of this would test nothing. */
static void check_program(const mc_object *object)
{
    if (!mc_object_has_section(object, ".dynstr") || mc_object_has_section(object, ".gopclntab") ||
        !mc_object_section_holds(object, ".dynstr", "libgnat") || mc_object_section_holds(object, ".strtab", "libgnat"))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t text[N_COPY];
    static mc_maps maps;
    bytes input = {data, size};
    mc_object object;
    int n_patches = (int)take(&input, 1) % 4;
    size_t n = make_program(text);
    damage(text, n, &input, n_patches);
    file_text = (bytes){text, n_patches ? n - take(&input, 1) : n};
    if (mc_object_open(&object, "program") == MC_OK) {
        if (!n_patches)
            check_program(&object);
        mc_object_has_section(&object, ".dynstr");
        mc_object_section_holds(&object, ".strtab", "__gnat_personality");
        mc_object_close(&object);
    } else if (!n_patches) {
        abort();
    }
    memcpy(text, maps_text, sizeof maps_text);
    damage(text, sizeof maps_text, &input, n_patches);
    file_text.n = sizeof maps_text - 1;
    int status = mc_maps_read(&maps, 1);
    if (!n_patches && (status != MC_OK || maps.n != 1 || strcmp(maps.paths[0], "/opt/a program") != 0))
        abort();
    mc_maps_find(&maps, take(&input, 8));
    mc_maps_address(&maps, "/opt/a program", take(&input, 4));
    return 0;
}

/* How code of a running program is changed on this processor. */
#ifndef MPICOLOC_CODE_CHANGES_H
#define MPICOLOC_CODE_CHANGES_H

/* By a store into it, or by a changed copy of its page that takes its place. On aarch64 only branches and a few others may
   be overwritten where another processor may execute them. */
#ifndef MC_CODE_IN_PLACE /* tests set it */
#ifdef __aarch64__
#define MC_CODE_IN_PLACE 0
#else
#define MC_CODE_IN_PLACE 1
#endif
#endif

#endif

/* Memory of a thread, kept by it from call to call and freed with it. */
#ifndef MPICOLOC_SCRATCH_H
#define MPICOLOC_SCRATCH_H

#include <stddef.h>

/* At least n_bytes, whose contents last until the next call of this; NULL: there is none. */
void *mc_scratch(size_t n_bytes);

#endif

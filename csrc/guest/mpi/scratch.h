/* Memory of a thread. The thread keeps it from call to call and frees it when it ends. */
#ifndef MPICOLOC_SCRATCH_H
#define MPICOLOC_SCRATCH_H

#include <stddef.h>

/* At least n_bytes; the contents last until the next call. NULL: there is no memory. */
void *mc_scratch(size_t n_bytes);

#endif

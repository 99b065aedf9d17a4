/* The meter `none` measures nothing. A job has it if its option says so or if the job has lost the board. This file is
   also the template for a new meter: copy it, and fill in the operations that the meter needs. CONTRIBUTING.md lists
   the other steps. */
#include "agent/meters/meter.h"

const mc_meter_ops mc_meter_null = {
    .name = "none",
    .recorded_as = MC_METER_NONE,
    .open = NULL,      /* it works everywhere, and has no state */
    .close = NULL,     /* there is nothing to free */
    .step = NULL,      /* it does nothing between shutters */
    .is_due = NULL,    /* it needs no time between shutters */
    .search = NULL,    /* no places will ever be counted */
    .around_ns = NULL, /* there are no windows beside the shutter */
    .cycle_ns = NULL,  /* shutters have the length that suits the cycles that the ranks record */
    .measure = NULL,   /* nothing is read in the shutter */
};

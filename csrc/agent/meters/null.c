/* The meter `none` measures nothing. A job has it if its option says so, or if it has lost the board. It is also the
   template for a new meter: copy it and fill in what you need; CONTRIBUTING.md lists the other steps. */
#include "agent/meters/meter.h"

const mc_meter_ops mc_meter_null = {
    .name = "none",
    .recorded_as = MC_METER_NONE,
    .open = NULL,      /* it works everywhere, and has no state */
    .close = NULL,     /* so there is nothing to free */
    .step = NULL,      /* it looks for nothing between shutters */
    .is_due = NULL,    /* so it never asks for time to do so */
    .search = NULL,    /* no places will ever be counted */
    .around_ns = NULL, /* there are no windows beside the shutter */
    .cycle_ns = NULL,  /* shutters hold some of the cycles that the ranks record */
    .measure = NULL,   /* nothing is read in the shutter */
};

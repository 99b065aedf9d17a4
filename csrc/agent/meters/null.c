/* The meter none: nothing is measured. A job has it whose option says so, or that has lost the board. It is also the row to
   copy for another meter, which fills what it needs; CONTRIBUTING.md says what else belongs to one. */
#include "agent/meters/meter.h"

const mc_meter_ops mc_meter_null = {
    .name = "none",
    .recorded_as = MC_METER_NONE,
    .open = NULL,      /* it works everywhere, and keeps nothing */
    .close = NULL,     /* so there is nothing to free */
    .step = NULL,      /* it looks for nothing between shutters */
    .is_due = NULL,    /* and never asks for time to do so */
    .search = NULL,    /* no places will ever be counted */
    .around_ns = NULL, /* there are no windows beside the shutter */
    .cycle_ns = NULL,  /* shutters hold some of the cycles that the ranks record */
    .measure = NULL,   /* nothing is read in the shutter */
};

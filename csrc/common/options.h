/* Options as config.py's table defines them, read from the environment. */
#ifndef MPICOLOC_OPTIONS_H
#define MPICOLOC_OPTIONS_H

/* Not in quotes: an older one may lie beside this file and would be found first. */
#include <options_gen.h>

/* A bad value counts as not set: wrap and run refuse it before the job starts. */
double mc_option_number(int i_option);

/* The environment's text, else the default; NULL when neither is there. */
const char *mc_option_text(int i_option);

#endif

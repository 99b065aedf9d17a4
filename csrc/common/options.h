/* Options read from the environment; the table in config.py defines them. */
#ifndef MPICOLOC_OPTIONS_H
#define MPICOLOC_OPTIONS_H

/* In angle brackets, because quotes would find an older copy beside this file first. */
#include <options_gen.h>

/* Value of an option. A bad value counts as not set: `wrap` and `run` reject it before the job starts. */
double mc_option_number(int i_option);

/* The option's text in the environment, or the default if there is none; NULL if there is no default either. */
const char *mc_option_text(int i_option);

#endif

/* What the Slurm plugin was told: by the site in plugstack.conf, by the user with --mpicoloc. */
#ifndef MPICOLOC_SPANK_SETTINGS_H
#define MPICOLOC_SPANK_SETTINGS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_N_NAME = 256, MS_N_TRACE = 16, MS_N_PARTITIONS = 16 };

enum ms_wish { MS_NOT_SAID, MS_OFF, MS_ON };

/* All paths are absolute; an empty one was not given. */
struct ms_site {
    int is_default; /* every job, unless it says off */
    int n_partitions;
    char partitions[MS_N_PARTITIONS][MS_N_NAME];
    char library[PATH_MAX]; /* libmpicoloc-auto.so */
    char out[PATH_MAX];     /* with %j, %s, %u, %% */
    char key_file[PATH_MAX];
    char spool[PATH_MAX]; /* for signed profiles */
    char python[PATH_MAX];
};

struct ms_user {
    enum ms_wish wish;
    char trace[MS_N_TRACE]; /* number of events, or all */
};

/* Take one word of plugstack.conf. Returns NULL, or what is wrong with it; the word is then left out. */
const char *ms_take_word(struct ms_site *site, const char *word);

/* Take the value of --mpicoloc, NULL for none. Returns NULL, or what is wrong with it. */
const char *ms_take_option(struct ms_user *user, const char *value);

/* Whether a job in this partition, NULL if it is unknown, is measured. */
int ms_is_wanted(const struct ms_site *site, const struct ms_user *user, const char *partition);

/* `out` for a job; with NULL for the step, of all steps, as glob(3) takes it. Returns 0 if it does not fit or has an
   unknown %. */
int ms_expand(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid);

/* Whether each step has a file of its own. */
int ms_names_steps(const char *out);

/* Take out of an LD_PRELOAD what the plugin, and then libmpicoloc-auto.so, have put there; all else stays. Returns
   whether there was any: without libmpicoloc-auto.so our libraries are the user's own. */
int ms_strip_preload(char *preload);

/* The first name of Slurm's list of nodes: n[2-4,7],m -> n2. Cut off where it does not fit. */
void ms_first_node(char *name, size_t size, const char *list);

#endif

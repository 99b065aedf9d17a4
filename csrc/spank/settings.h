/* Settings of the Slurm plugin: by the site in plugstack.conf, by the user with --mpicoloc. */
#ifndef MPICOLOC_SPANK_SETTINGS_H
#define MPICOLOC_SPANK_SETTINGS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_N_NAME = 256, MS_N_TRACE = 16, MS_N_PARTITIONS = 16 };

enum ms_wish { MS_NOT_SAID, MS_OFF, MS_ON };

/* All paths are absolute; an empty one was not given. */
struct ms_site {
    int is_default; /* measure every job that does not say off */
    int n_partitions;
    char partitions[MS_N_PARTITIONS][MS_N_NAME];
    char library[PATH_MAX]; /* libmpicoloc-auto.so */
    char out[PATH_MAX];     /* with %j, %s, %u, %% */
    char key_file[PATH_MAX];
    char spool[PATH_MAX];  /* for signed profiles */
    char levels[PATH_MAX]; /* variables of jobs, by user and name: of their service levels */
    char python[PATH_MAX];
};

struct ms_user {
    enum ms_wish wish;
    char trace[MS_N_TRACE]; /* number of events, or all */
};

/* Read one word of plugstack.conf. Returns NULL, or what is wrong with it; a wrong word is ignored. */
const char *ms_take_word(struct ms_site *site, const char *word);

/* Read the value of --mpicoloc (NULL: none). Returns NULL, or what is wrong with it. */
const char *ms_take_option(struct ms_user *user, const char *value);

/* 1: a job in this partition is measured. NULL: the partition is unknown. */
int ms_is_wanted(const struct ms_site *site, const struct ms_user *user, const char *partition);

/* Expand `out` for a job and step. step NULL: a pattern of glob(3) for all steps. 0: it does not fit or has an
   unknown %. */
int ms_expand(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid);

/* 1: each step has a file of its own. */
int ms_names_steps(const char *out);

/* Remove from an LD_PRELOAD what the plugin and libmpicoloc-auto.so have added. Returns 1 if there was any: without
   libmpicoloc-auto.so our libraries were the user's own choice. */
int ms_strip_preload(char *preload);

/* The first name of Slurm's list of nodes: n[2-4,7],m -> n2. It is cut if it does not fit. */
void ms_first_node(char *name, size_t size, const char *list);

#endif

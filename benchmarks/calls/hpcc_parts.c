/* Main program for the sources of HPCC 1.5.0, in place of its src/hpcc.c: repeats some of its parts.

   hpcc_parts REPETITIONS PART...     # HPL DGEMM STREAM PTRANS RandomAccess MPIRandomAccess FFT MPIFFT

   Prints a line at the end of each part. Sizes are those of hpccinf.txt, as in HPCC. */
#include <hpcc.h>

typedef int part_function(HPCC_Params *params);

static int hpl(HPCC_Params *params)
{
    return HPL_main(0, NULL, &params->HPLrdata, &params->Failure);
}

static const struct {
    const char *name;
    part_function *run;
} parts[] = {
    {"HPL", hpl},
    {"DGEMM", HPCC_StarDGEMM},
    {"STREAM", HPCC_StarStream},
    {"PTRANS", PTRANS},
    {"RandomAccess", HPCC_StarRandomAccess},
    {"MPIRandomAccess", HPCC_MPIRandomAccess},
    {"FFT", HPCC_StarFFT},
    {"MPIFFT", HPCC_MPIFFT},
};

static int run_part(HPCC_Params *params, const char *name)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, name) != 0)
            continue;
        MPI_Barrier(MPI_COMM_WORLD);
        parts[i].run(params);
        if (rank == 0) {
            printf("part %s\n", name);
            fflush(stdout);
        }
        return 0;
    }
    fprintf(stderr, "hpcc_parts: no part %s\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    HPCC_Params params;
    int failed = 0, n = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    if (HPCC_Init(&params) != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < n && !failed; i++)
        for (int i_part = 2; i_part < argc && !failed; i_part++)
            failed = run_part(&params, argv[i_part]);
    HPCC_Finalize(&params);
    MPI_Finalize();
    return failed;
}

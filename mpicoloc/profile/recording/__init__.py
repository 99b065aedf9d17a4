"""The MPI calls and messages that a job recorded, whichever way they were kept."""

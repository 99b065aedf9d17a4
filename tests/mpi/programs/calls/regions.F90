program regions
#ifdef USE_F08
    use mpi_f08
#elif defined USE_MPI
    use mpi
#endif
    implicit none
#ifdef MPIF_H
    include 'mpif.h'
#endif
    integer :: ierror
    call MPI_Init(ierror)
    call MPI_Pcontrol(int(z'6d630001'))
    call MPI_Pcontrol(int(z'6d630001'))
    call MPI_Finalize(ierror)
end program

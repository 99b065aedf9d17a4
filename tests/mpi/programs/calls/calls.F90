! Known calls through mpif.h (-DMPIF_H), use mpi (-DUSE_MPI) or use mpi_f08 (-DUSE_F08).
program calls
#ifdef USE_F08
  use mpi_f08
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define DATATYPE type(MPI_Datatype)
#define STATUS type(MPI_Status) :: status
#else
#ifdef USE_MPI
  use mpi
#endif
#define COMM integer
#define REQUEST integer
#define DATATYPE integer
#define STATUS integer :: status(MPI_STATUS_SIZE)
#endif
  implicit none
#ifdef MPIF_H
  include 'mpif.h'
#endif
  integer :: rank, nranks, next, previous, ierr, i, n_got, name_length
  integer(kind=MPI_ADDRESS_KIND) :: tag_ub
  logical :: flag
  double precision :: given(100), taken(100), total(2)
  character(len=MPI_MAX_OBJECT_NAME) :: name
  COMM :: copy
  REQUEST :: requests(2)
  STATUS

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  next = mod(rank + 1, nranks)
  previous = mod(rank + nranks - 1, nranks)
  given = rank
  do i = 1, 10
    call MPI_Irecv(taken, 100, MPI_DOUBLE_PRECISION, previous, 1, MPI_COMM_WORLD, requests(1), ierr)
    call MPI_Isend(given, 100, MPI_DOUBLE_PRECISION, next, 1, MPI_COMM_WORLD, requests(2), ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  end do
  if (rank == 0) call MPI_Send(given, 3, MPI_DOUBLE_PRECISION, 1, 2, MPI_COMM_WORLD, ierr)
  if (rank == 1) call MPI_Recv(taken, 100, MPI_DOUBLE_PRECISION, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  if (rank == 0) call MPI_Send(given, 4, MPI_DOUBLE_PRECISION, 1, 3, MPI_COMM_WORLD, ierr)
  if (rank == 1) then
    call MPI_Recv(taken, 100, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
    call MPI_Get_count(status, MPI_DOUBLE_PRECISION, n_got, ierr)
    print '(a,i0)', 'got ', n_got
  end if
  total = rank
  call MPI_Allreduce(MPI_IN_PLACE, total, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, taken, 1, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, copy, ierr)
  call MPI_Comm_set_name(copy, 'a copy', ierr)
  call MPI_Comm_get_name(copy, name, name_length, ierr)
  call MPI_Comm_free(copy, ierr)
#ifdef USE_F08
  call MPI_Barrier(MPI_COMM_WORLD)
#else
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
#endif
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, tag_ub, flag, ierr)
  print '(a,i0,a,i0,a,2f6.1,1x,a,1x,l1)', 'rank ', rank, ' of ', nranks, ':', total, trim(name), flag .and. tag_ub > 32000
  call MPI_Finalize(ierr)
end program calls

! Receives that ask for more than comes, completed in every way, through mpif.h (-DMPIF_H), use mpi (-DUSE_MPI) or
! use mpi_f08 (-DUSE_F08). Each rank sends to the next one.
program completions
#ifdef USE_F08
  use mpi_f08
#define REQUEST type(MPI_Request)
#define MESSAGE type(MPI_Message)
#define WINDOW type(MPI_Win)
#define STATUS type(MPI_Status)
#define STATUSES(n) type(MPI_Status) :: statuses(n)
#else
#ifdef USE_MPI
  use mpi
#endif
#define REQUEST integer
#define MESSAGE integer
#define WINDOW integer
#define STATUSES(n) integer :: statuses(MPI_STATUS_SIZE, n)
#endif
  implicit none
#ifdef MPIF_H
  include 'mpif.h'
#endif
  integer :: rank, nranks, next, previous, ierr, i, way, n_done, n_left, position, indices(8)
  integer(kind=MPI_ADDRESS_KIND) :: n_bytes, at
  logical :: flag
  integer :: given(100), taken(100), memory(100)
  REQUEST :: requests(8), one
  MESSAGE :: message
  WINDOW :: window
  STATUSES(8)

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  next = mod(rank + 1, nranks)
  previous = mod(rank + nranks - 1, nranks)
  given = rank
  ! 9 ways with 4 messages of 4, 8, 12 and 16 bytes
  do way = 1, 9
    do i = 1, 4
      call MPI_Irecv(taken, 100, MPI_INTEGER, MPI_ANY_SOURCE, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
    do i = 1, 4
      call MPI_Isend(given, i, MPI_INTEGER, next, i, MPI_COMM_WORLD, requests(4 + i), ierr)
    end do
    n_left = 8
    flag = .false.
    select case (way)
    case (1)
      call MPI_Waitall(8, requests, MPI_STATUSES_IGNORE, ierr)
    case (2)
      call MPI_Waitall(8, requests, statuses, ierr)
    case (3)
      do i = 1, 8
        call MPI_Wait(requests(i), MPI_STATUS_IGNORE, ierr)
      end do
    case (4)
      do i = 1, 8
        call MPI_Waitany(8, requests, position, MPI_STATUS_IGNORE, ierr)
      end do
    case (5)
      do while (n_left > 0)
        call MPI_Waitsome(8, requests, n_done, indices, MPI_STATUSES_IGNORE, ierr)
        n_left = n_left - n_done
      end do
    case (6)
      do i = 1, 8
        flag = .false.
        do while (.not. flag)
          call MPI_Test(requests(i), flag, MPI_STATUS_IGNORE, ierr)
        end do
      end do
    case (7)
      do while (.not. flag)
        call MPI_Testall(8, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
    case (8)
      do while (n_left > 0)
        call MPI_Testsome(8, requests, n_done, indices, statuses, ierr)
        n_left = n_left - n_done
      end do
    case (9)
      do while (n_left > 0)
        call MPI_Testany(8, requests, position, flag, MPI_STATUS_IGNORE, ierr)
        if (flag) n_left = n_left - 1
      end do
    end select
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
  end do
  ! a persistent pair, 3 times 20 bytes
  call MPI_Send_init(given, 5, MPI_INTEGER, next, 10, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Recv_init(taken, 100, MPI_INTEGER, previous, 10, MPI_COMM_WORLD, requests(2), ierr)
  do i = 1, 3
    call MPI_Startall(2, requests, ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
  end do
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)
  ! a matched message of 24 bytes
  call MPI_Isend(given, 6, MPI_INTEGER, next, 11, MPI_COMM_WORLD, one, ierr)
  call MPI_Mprobe(MPI_ANY_SOURCE, 11, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, ierr)
  call MPI_Imrecv(taken, 100, MPI_INTEGER, message, requests(1), ierr)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
  call MPI_Wait(one, MPI_STATUS_IGNORE, ierr)
  ! 28 bytes into the next rank's window
  n_bytes = 400
  at = 0
  call MPI_Win_create(memory, n_bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, ierr)
  call MPI_Win_fence(0, window, ierr)
  call MPI_Put(given, 7, MPI_INTEGER, next, at, 7, MPI_INTEGER, window, ierr)
  call MPI_Win_fence(0, window, ierr)
  call MPI_Win_free(window, ierr)
  print '(a,i0,a,i0)', 'rank ', rank, ' has ', memory(7)
  call MPI_Finalize(ierr)
end program completions

! Computes for so many seconds between MPI_Init and MPI_Finalize and calls MPI never else; prints its wall and processor time.
module parts
contains
  subroutine smooth(field)
    real(8), intent(inout) :: field(:)
    real(8), allocatable :: line(:)
    integer :: i, k
    line = field
    do k = 1, 8
      do i = 2, size(field) - 1
        field(i) = 0.25d0 * (line(i - 1) + 2 * line(i) + line(i + 1))
      end do
      line = field
    end do
  end subroutine
end module

program rarely
  use mpi
  use parts
  real(8) :: field(100000), t0, c0, t1, c1, seconds
  character(32) :: text
  integer :: ierr
  integer(8) :: ticks, rate
  call get_command_argument(1, text)
  read (text, *) seconds
  call MPI_Init(ierr)
  call random_number(field)
  call system_clock(ticks, rate)
  t0 = real(ticks, 8) / rate
  call cpu_time(c0)
  t1 = t0
  do while (t1 < t0 + seconds)
    call smooth(field)
    call system_clock(ticks, rate)
    t1 = real(ticks, 8) / rate
  end do
  call cpu_time(c1)
  call MPI_Finalize(ierr)
  print '(a,f10.4,a,f10.4,a,f10.4)', 'wall ', t1 - t0, ' cpu ', c1 - c0, ' sum ', sum(field)
end program

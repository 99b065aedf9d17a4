! Fortran with OpenMP: strided fields, transcendental functions, formatted output of every digit.
program fields
  use omp_lib
  implicit none
  include 'mpif.h'
  integer, parameter :: n = 400
  real(8) :: a(n, n), b(n, n), total
  integer :: i, j, step, ierr, rank
  integer(8) :: hash
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  do j = 1, n
    do i = 1, n
      a(i, j) = sin(0.013d0 * i + 0.7d0 * rank) * cos(0.021d0 * j)
    end do
  end do
  hash = 1234567
  do step = 1, 1600
    !$omp parallel do private(i) num_threads(2)
    do j = 2, n - 1
      do i = 2, n - 1
        b(i, j) = 0.2d0 * (a(i, j) + a(i-1, j) + a(i+1, j) + a(i, j-1) + a(i, j+1)) + 1.0d-3 * exp(-a(i, j)**2)
      end do
    end do
    !$omp end parallel do
    a(2:n-1, 2:n-1) = b(2:n-1, 2:n-1)
    do i = 1, 2000
      hash = ieor(hash * 1103515245_8 + 12345_8, ishft(hash, -17))
    end do
    total = sum(a(:, mod(step, n) + 1))
    if (mod(step, 200) == 0) write (*, '(i6, es26.17, i22)') step, total, hash
  end do
  call MPI_Finalize(ierr)
end program fields

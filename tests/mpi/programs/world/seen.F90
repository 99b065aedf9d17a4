! The same questions in Fortran, where handles are other numbers and attributes have functions of their own.
module answers
#ifdef USE_F08
    use mpi_f08
#define COMM type(MPI_Comm)
#define GROUP type(MPI_Group)
#define ERRHANDLER type(MPI_Errhandler)
#else
    use mpi
#define COMM integer
#define GROUP integer
#define ERRHANDLER integer
#endif
    implicit none
    integer :: rank, size
contains
    subroutine say(what, n)
        character(len=*), intent(in) :: what
        integer, intent(in) :: n
        write (*, '(a, i0, a, a, a, i0)') 'rank ', rank, ': ', what, ' ', n
        flush (6)
    end subroutine

    subroutine compare(what, other)
        character(len=*), intent(in) :: what
        COMM, intent(in) :: other
        integer :: result, n, ierr
        call MPI_Comm_compare(MPI_COMM_WORLD, other, result, ierr)
        call MPI_Comm_size(other, n, ierr)
        call say(what // ': identical', merge(1, 0, result == MPI_IDENT))
        call say(what // ': congruent', merge(1, 0, result == MPI_CONGRUENT))
        call say(what // ': size', n)
    end subroutine

    subroutine copied(old, keyval, extra, value, copy, flag, ierr)
        COMM :: old
        integer :: keyval, ierr
        integer(kind=MPI_ADDRESS_KIND) :: extra, value, copy
        logical :: flag
        call compare('attribute copied', old)
        call say('attribute copied: MPI_COMM_WORLD', merge(1, 0, old == MPI_COMM_WORLD))
        call say('extra', int(extra))
        copy = value
        flag = .true.
        ierr = MPI_SUCCESS
    end subroutine

    subroutine deleted(old, keyval, value, extra, ierr)
        COMM :: old
        integer :: keyval, ierr
        integer(kind=MPI_ADDRESS_KIND) :: extra, value
        call say('attribute deleted', keyval - keyval) ! Open MPI 4.1 may pass no communicator at all
        call say('value', int(value))
        ierr = MPI_SUCCESS
    end subroutine

    subroutine failed(on, code)
        COMM :: on
        integer :: code, class, ierr
        call MPI_Error_class(code, class, ierr)
        call compare('error', on)
        call say('error class', class)
    end subroutine

    subroutine attributes()
        integer(kind=MPI_ADDRESS_KIND) :: value
        integer :: keyval, ierr
        logical :: flag
        COMM :: other
        call MPI_Comm_create_keyval(copied, deleted, keyval, 3_MPI_ADDRESS_KIND, ierr)
        call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, 5_MPI_ADDRESS_KIND, ierr)
        call MPI_Comm_dup(MPI_COMM_WORLD, other, ierr)
        value = 0
        call MPI_Comm_get_attr(other, keyval, value, flag, ierr)
        call say('of the dup', merge(int(value), -1, flag))
        call MPI_Comm_free(other, ierr)
        call MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, value, flag, ierr)
        call say('of world', merge(int(value), -1, flag))
        call MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval, ierr)
        call MPI_Comm_get_attr(MPI_COMM_WORLD, keyval, value, flag, ierr)
        call say('deleted', merge(0, 1, flag))
        call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, flag, ierr)
        call say('tag_ub', merge(int(value), -1, flag))
        call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, value, flag, ierr)
        call say('universe_size', merge(int(value), -1, flag))
        call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, 7_MPI_ADDRESS_KIND, ierr) ! until MPI_Finalize
    end subroutine

    subroutine errors()
        ERRHANDLER :: mine
        integer :: ierr, status
        call MPI_Comm_create_errhandler(failed, mine, ierr)
        call MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine, ierr)
        call MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_TAG, ierr)
        call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, status)
        call say('to a rank beyond', merge(1, 0, status /= MPI_SUCCESS))
        call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierr)
        call MPI_Errhandler_free(mine, ierr)
    end subroutine
end module

program seen
    use answers
    implicit none
    COMM :: other
    GROUP :: group
    integer :: n, ierr
    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
    call compare('world', MPI_COMM_WORLD)
    call compare('self', MPI_COMM_SELF)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, other, ierr)
    call compare('split', other)
    call MPI_Comm_free(other, ierr)
    call MPI_Comm_group(MPI_COMM_WORLD, group, ierr)
    call MPI_Group_size(group, n, ierr)
    call say('group', n)
    call MPI_Comm_create(MPI_COMM_WORLD, group, other, ierr)
    call compare('create', other)
    call MPI_Comm_free(other, ierr)
    call MPI_Group_free(group, ierr)
    call attributes()
    call errors()
    call MPI_Finalize(ierr)
end program

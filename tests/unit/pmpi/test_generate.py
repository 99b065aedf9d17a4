"""Wrappers from prototypes: what is parsed, what is left alone, which arguments are swapped and counted."""

import re
from pathlib import Path

import pytest

from mpicoloc.pmpi import build_shim, generate, generate_fortran

CALLS = generate.load_calls(Path(__file__).resolve().parents[3] / "csrc" / build_shim.CALLS)

HEADER = """
typedef int MPI_Comm;
typedef struct { int MPI_SOURCE; int (*hidden)(int MPI_Inner(int)); } MPI_Status;
static inline int helper(void) { return MPI_Hidden(1); }
__attribute__((visibility("default"))) int MPI_Send(const void *buf, int count, MPI_Datatype datatype,
    int dest, int tag, MPI_Comm comm) __attribute__((warn_unused_result));
int MPI_Alltoallw(const void *sendbuf, const int sendcounts[], const int sdispls[],
    const MPI_Datatype sendtypes[], void *recvbuf, const int recvcounts[], const int rdispls[],
    const MPI_Datatype recvtypes[], MPI_Comm comm);
extern int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group *newgroup);
int MPI_Comm_spawn_multiple(int count, char *array_of_commands[], char **array_of_argv[], MPI_Comm comm);
int MPI_Pcontrol(const int level, ...);
int MPI_Init(int *argc, char ***argv);
int MPI_Finalize(void);
int MPI_Type_size(MPI_Datatype, int *);
int MPI_Comm_get_name(MPI_Comm comm, char *comm_name, int *resultlen);
int MPI_Comm_get_attr(MPI_Comm comm, int comm_keyval, void *attribute_val, int *flag);
int MPI_Recv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
    MPI_Status *status);
int MPI_Send_init(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
    MPI_Request *request);
double MPI_Wtime(void);
MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint disp);
MPI_Fint MPI_Comm_c2f(MPI_Comm comm);
int MPI_Status_c2f(const MPI_Status *c_status, MPI_Fint *f_status);
int MPI_T_init_thread(int required, int *provided);
int MPI_Get_version(int *version, int *subversion);
int PMPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
int MPIX_Query_cuda_support(void);
"""


@pytest.fixture(scope="module")
def prototypes():
    return {p.name: p for p in generate.wrapped(generate.parse_prototypes(HEADER), CALLS)}


def test_every_function_but_the_documented_ones(prototypes):
    expected = """Send Alltoallw Group_range_incl Comm_spawn_multiple Pcontrol Init Finalize Type_size
                  Comm_get_name Comm_get_attr Recv Send_init"""
    assert set(prototypes) == {f"MPI_{name}" for name in expected.split()}


def test_parameters(prototypes):
    send = prototypes["MPI_Send"]
    assert [p.name for p in send.params] == ["buf", "count", "datatype", "dest", "tag", "comm"]
    assert [p.is_comm for p in send.params] == [False] * 5 + [True]
    assert prototypes["MPI_Group_range_incl"].params[2].decl == "int ranges[][3]"
    assert prototypes["MPI_Group_range_incl"].params[2].name == "ranges"
    assert prototypes["MPI_Finalize"].decl == "void"
    assert prototypes["MPI_Pcontrol"].is_variadic
    assert len({p.name for p in prototypes["MPI_Type_size"].params}) == 2


def wrapper(text, name):
    return re.search(rf"^MC_EXPORT \w+ {name}\(.*?^}}", text, re.MULTILINE | re.DOTALL).group(0)


def test_c_wrapper_swaps_the_world_and_counts(prototypes):
    text = generate.emit_c(list(prototypes.values()), CALLS)
    send = wrapper(text, "MPI_Send")
    assert "comm = mc_world(comm);" in send
    assert "mc_volume_send(&mc_v, (long long)count, datatype, dest, comm);" in send
    assert "status = &mc_status;" in wrapper(text, "MPI_Recv")
    assert "mc_persistent_keep(*request, &mc_v);" in wrapper(text, "MPI_Send_init")
    assert "return MC_POINTER(mc_next.p_MPI_Pcontrol)(level);" in wrapper(text, "MPI_Pcontrol")
    finalize = wrapper(text, "MPI_Finalize")
    assert (
        finalize.index("mc_leave") < finalize.index("mc_before_finalize") < finalize.rindex("p_MPI_Finalize")
    )


def test_call_numbers_follow_the_names(prototypes):
    listed = list(prototypes.values())
    header = generate.emit_header(listed, [], CALLS, "mpi.h", has_fortran=False)
    for number, p in enumerate(listed, start=1):
        assert f"MC_CALL_{p.name} = {number}," in header
    assert f"MC_N_CALLS = {len(listed)}" in header


def test_fortran_wrappers(prototypes):
    text = generate_fortran.emit_fortran(list(prototypes.values()), CALLS, "openmpi")
    for suffix in ("", "f08_"):
        named = wrapper(text, f"mpi_comm_get_name_{suffix}")
        assert (
            "(void *comm, void *comm_name, void *resultlen, MPI_Fint *mc_ierror, size_t mc_length0)" in named
        )
        assert "(MPI_Fint *mc_ierror)\n{" in wrapper(text, f"mpi_init_{suffix}")
        assert "(void *level)" in wrapper(text, f"mpi_pcontrol_{suffix}")
        assert "mc_volume_send(&mc_v, (long long)*(const MPI_Fint *)count, mc_f_type(datatype)" in wrapper(
            text, f"mpi_send_{suffix}"
        )
    spawn = wrapper(text, "mpi_comm_spawn_multiple_")
    assert "MPI_Fint *mc_ierror, size_t mc_length0, size_t mc_length1)" in spawn


def test_choice_buffers_of_an_open_mpi_with_large_counts_are_descriptors():
    header = """
    int MPI_Send_c(const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
    int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
        MPI_Datatype recvtype, int root, MPI_Comm comm);
    int MPI_Win_allocate(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm, void *baseptr, MPI_Win *win);
    int MPI_Buffer_detach(void *buffer, int *size);
    """
    found = generate.wrapped(generate.parse_prototypes(header), CALLS)
    text = generate_fortran.emit_fortran(found, CALLS, "openmpi")
    names = set(re.findall(r"^MC_EXPORT void (\w+)\(", text, re.MULTILINE))
    names_of = {"mpi_gather_", "mpi_gather_f08ts_", "mpi_win_allocate_cptr_"}
    others = {"mpi_win_allocate_", "mpi_win_allocate_f08_", "mpi_buffer_detach_", "mpi_buffer_detach_f08_"}
    assert names == {"mpi_send_c_f08ts_", *names_of, *others}
    assert "(long long)*(const MPI_Count *)count" in wrapper(text, "mpi_send_c_f08ts_")
    assert "mc_f_is_in_place(*(void **)sendbuf)" in wrapper(text, "mpi_gather_f08ts_")
    assert "mc_f_is_in_place(sendbuf)" in wrapper(text, "mpi_gather_")


def test_fortran_of_mpich_is_wrapped_only_where_it_bypasses_c(prototypes):
    text = generate_fortran.emit_fortran(list(prototypes.values()), CALLS, "mpich")
    assert '"pmpir_init_f08_"' in wrapper(text, "mpi_init_f08_")
    assert "mpi_send_" not in text
    assert " mpi_init_(" not in text


def test_operands_lie_within_their_prototypes(prototypes):
    for p in prototypes.values():
        for arg in CALLS.row(p.name).args:
            position = arg.partition(":")[2]
            assert int(position) < len(p.params)


def test_large_counts_share_a_row_and_kinds_are_named():
    assert CALLS.row("MPI_Send_c") == CALLS.row("MPI_Send")
    assert CALLS.kind("MPI_Iallreduce_c") == "collective"
    assert CALLS.kind("MPI_Waitall") == "completion"
    assert CALLS.kind("MPI_Get_processor_name") == "other"


def test_pmpi_names_serve_tools_before_and_pass_calls_from_tools_behind(prototypes):
    text = generate.emit_c(list(prototypes.values()), CALLS)
    send = wrapper(text, "PMPI_Send")
    assert (
        send.index("mc_is_inside") < send.index("return own_MPI_Send(") < send.index("mc_real.p_MPI_Send)(")
    )
    assert "mc_next.p_MPI_Send)(" in wrapper(text, "MPI_Send")
    assert "mc_world" not in wrapper(text, "PMPI_Comm_get_attr")
    assert "PMPI_Pcontrol(" not in text


def test_extensions_that_take_a_communicator_are_wrapped():
    text = "int MPIX_Barrier_init(MPI_Comm comm, MPI_Request *request); int MPIX_Query_cuda_support(void);"
    found = generate.wrapped(generate.parse_prototypes(text), CALLS)
    assert [p.name for p in found] == ["MPIX_Barrier_init"]

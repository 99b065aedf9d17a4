"""Numbers that Paraver's views know the functions of MPI by, as Extrae writes them."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoloc.core.tables import printable
from mpicoloc.profile.recording.functions import STATES, bare, event_of

_IN_ORDER = """
    Send Recv Isend Irecv Wait Waitall Bcast Barrier Reduce Allreduce Alltoall Alltoallv Gather Gatherv
    Scatter Scatterv Allgather Allgatherv Comm_rank Comm_size Comm_create Comm_dup Comm_split Comm_group
    Comm_free Comm_remote_group Comm_remote_size Comm_test_inter Comm_compare Scan Init Finalize Bsend
    Ssend Rsend Ibsend Issend Irsend Test Cancel Sendrecv Sendrecv_replace Cart_create Cart_shift
    Cart_coords Cart_get Cart_map Cart_rank Cart_sub Cartdim_get Dims_create Graph_get Graph_map
    Graph_create Graph_neighbors Graphdims_get Graph_neighbors_count Topo_test Waitany Waitsome Probe
    Iprobe Win_create Win_free Put Get Accumulate Win_fence Win_start Win_complete Win_post Win_wait
    Win_test Win_lock Win_unlock Pack Unpack Op_create Op_free Reduce_scatter Attr_delete Attr_get
    Attr_put Group_difference Group_excl Group_free Group_incl Group_intersection Group_rank
    Group_range_excl Group_range_incl Group_size Group_translate_ranks Group_union Group_compare
    Intercomm_create Intercomm_merge Keyval_free Keyval_create Abort Error_class Errhandler_create
    Errhandler_free Errhandler_get Error_string Errhandler_set Get_processor_name Initialized Wtick
    Wtime Address Bsend_init Buffer_attach Buffer_detach Request_free Recv_init Send_init Get_count
    Get_elements Pack_size Rsend_init Ssend_init Start Startall Testall Testany Test_cancelled Testsome
    Type_commit Type_contiguous Type_extent Type_free Type_hindexed Type_hvector Type_indexed Type_lb
    Type_size Type_struct Type_ub Type_vector File_open File_close File_read File_read_all File_write
    File_write_all File_read_at File_read_at_all File_write_at File_write_at_all Comm_spawn
    Comm_spawn_multiple Request_get_status Ireduce Iallreduce Ibarrier Ibcast Ialltoall Ialltoallv
    Iallgather Iallgatherv Igather Igatherv Iscatter Iscatterv Ireduce_scatter Iscan
    Reduce_scatter_block Ireduce_scatter_block Alltoallw Ialltoallw Get_accumulate
"""
VALUES = {name: i for i, name in enumerate(_IN_ORDER.split(), 1)}
TYPES = {
    50000001: "MPI Point-to-point",
    50000002: "MPI Collective Comm",
    50000003: "MPI Other",
    50000004: "MPI One-sided",
    50000005: "MPI I/O",
}
COLOURS = (
    (117, 195, 255), (0, 0, 255), (255, 255, 255), (255, 0, 0), (255, 0, 174), (179, 0, 0), (0, 255, 0),
    (255, 255, 0), (235, 0, 0), (0, 162, 0), (255, 0, 255), (100, 100, 177), (172, 174, 41), (255, 144, 26),
    (2, 255, 177), (192, 224, 0), (66, 66, 66),
)  # fmt: skip
"""Red, green and blue of each state, as in Paraver's own."""
RUNNING = STATES.index("Running")
_FIRST_OWN_VALUE = 1000


class Functions:
    """Type, value and state of each function of a recording, by its index.

    Attributes
    ----------
    types, values, states : list of int
    labels : dict
        Names of the values of each type.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.types: list[int] = []
        self.values: list[int] = []
        self.states: list[int] = []
        self.labels: dict[int, dict[int, str]] = {type_: {} for type_ in TYPES}
        n_own = 0
        for name in names:
            type_, state = event_of(name)
            value = VALUES.get(bare(name))
            if value is None:
                value, n_own = _FIRST_OWN_VALUE + n_own, n_own + 1
            self.types.append(type_)
            self.values.append(value)
            self.states.append(state)
            self.labels[type_].setdefault(value, printable(name))

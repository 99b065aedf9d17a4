"""Tables added up agree with adding them up row by row."""

import subprocess
import sys

import numpy as np
import sample
from hypothesis import given, strategies as st

from mpicoloc.core.profile import table
from mpicoloc.profile import hdf5
from mpicoloc.trace import sums

NAMES = st.sampled_from(["MPI_Send", "MPI_Sendrecv", "MPI_Sendrecv_replace", "MPI_Allreduce", ""])
NUMBERS = st.integers(0, 1 << 62)
ROWS = st.lists(
    st.tuples(NAMES, st.integers(0, 2), st.integers(-1, 1), st.integers(0, 2), NUMBERS), max_size=30
)


def of_rows(rows):
    names = ("call", "i_site", "i_module", "offset", "time_ns")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}
    return table("call_sites", {**columns, "max_ns": columns.get("time_ns", ()), "n": [1] * len(rows)})


@given(ROWS)
def test_sums_are_exact_and_the_longest_come_first(rows):
    for found, key in (
        (sums.by_function(of_rows(rows)), lambda call, *_: (call.encode(),)),
        (
            sums.by_site(of_rows(rows)),
            lambda call, i_site, i_module, offset: (call.encode(), i_site == 0, i_module, offset),
        ),
    ):
        wanted = {}
        for *keys, time_ns in rows:
            wanted.setdefault(key(*keys), []).append(time_ns)
        got = {key(row["call"].decode(), row["i_site"], row["i_module"], row["offset"]): row for row in found}
        assert len(found) == len(got) and got.keys() == wanted.keys()
        for name, row in got.items():
            assert int(row["time_ns"]) == sum(wanted[name]) % (1 << 64)
            assert (row["n"], row["max_ns"]) == (len(wanted[name]), max(wanted[name]))
        times = found["time_ns"].astype(float)
        assert (np.diff(times) <= 0).all()


@given(st.lists(st.tuples(NAMES, st.integers(-5, 5)), max_size=40))
def test_groups_are_in_the_order_of_their_values(rows):
    names, numbers = np.array([row[0] for row in rows], "S20"), np.array([row[1] for row in rows], int)
    order, start = sums.groups(names, numbers)
    values = [(names[i], numbers[i]) for i in order]
    assert sorted(order.tolist()) == list(range(len(rows))) and values == sorted(values)
    assert [values[i] for i in start] == sorted(set(values))


def test_showing_a_profile_waits_for_no_library_that_it_does_not_need(tmp_path):
    hdf5.write(sample.profile(), tmp_path / "p.h5")
    code = (
        "import sys; from mpicoloc.cli.main import main; main(sys.argv[1:]); print(*sys.modules, sep='\\n')"
    )
    command = [sys.executable, "-c", code, "show", str(tmp_path / "p.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "MPI_Allreduce" in done.stdout
    assert not {"pandas", "scipy", "matplotlib", "sqlalchemy", "mpi4py"} & set(done.stdout.splitlines())

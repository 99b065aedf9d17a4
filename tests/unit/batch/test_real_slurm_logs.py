"""48 jobs that ran in a real Slurm 22.05 (`mpicoloc slurm up --nodes 16 --cpus 1`), in two formats.

Its plugin jobcomp/filetxt wrote one file; the other has the same in the columns of `sacct`. Each job slept on
1 to 12 nodes of partition whole, for 1 to 8 s.
"""

from pathlib import Path

import numpy as np
import pytest

from mpicoloc.batch import allocation, engine, inputs, log_files, order
from mpicoloc.core import network as xgft

HERE = Path(__file__).resolve().parent
SACCT = HERE.parents[2] / "examples" / "batch" / "lab.sacct"
JOBCOMP = HERE / "jobs_of_lab.txt"


def read(path):
    log, damaged = log_files.parse(path.read_text().split("\n"), path.name)
    assert damaged == ()
    return log


def test_both_files_tell_the_same_jobs():
    one, other = read(SACCT), read(JOBCOMP)
    assert len(one) == 48 and sorted(one.number) == list(range(1, 49))
    places = np.argsort(one.number), np.argsort(other.number)
    for column in ("run_s", "limit_s", "n_nodes", "n_processors"):
        assert np.array_equal(getattr(one, column)[places[0]], getattr(other, column)[places[1]])
    for column in ("user", "partition", "program"):
        told = [
            [log.name(column, number) for number in getattr(log, column)[place].tolist()]
            for log, place in zip((one, other), places, strict=True)
        ]
        assert told[0] == told[1]
    assert set(one.names["program"].values()) == {"cfd", "md", "post"}


@pytest.mark.parametrize("path", [SACCT, JOBCOMP], ids=["sacct", "jobcomp"])
def test_jobs_wait_in_simulation_about_as_long_as_slurm_let_them(path):
    """Slurm's backfill gives each job a reservation, and its daemons take about a second for each job."""
    topology = xgft.parse_xgft("XGFT(2;4,4;1,1)", 1e9)
    lab = inputs.of_hosts(topology, np.arange(16))
    work = inputs.workload(read(path), 1, 16)
    done = engine.simulate(work, lab, order.named("conservative"), allocation.named("best-fit"))
    submit_s, start_s, end_s = np.array(
        [[float(word) for word in line.split("|")[4:7]] for line in SACCT.read_text().splitlines()[1:]]
    ).T
    assert done.completion_s == pytest.approx(end_s.max() - submit_s.min(), rel=0.05)
    wait_s = (start_s - submit_s).mean()
    assert work.log.wait_s.mean() == wait_s
    assert (done.start_s - done.arrival_s).mean() == pytest.approx(wait_s, rel=0.15)

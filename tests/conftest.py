"""Hooks and fixtures of all tests, which keep them away from the user's caches, options and shared memory."""

import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import hypothesis
import pytest

from mpicoloc.job import wrap

# There are more test processes than processors: BLAS threads that wait for each other would take these away.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Run as MPI jobs by e2e/test_ranks.py; here they would make this process an MPI program.
collect_ignore = [] if wrap.place_of(os.environ).launcher else ["ranks"]
ROOT = Path(__file__).resolve().parents[1]
# Whether one example takes 200 ms tells how busy the machine is; each test has a limit of time.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")
# A shell without job control starts what is in its background, as all of CI may be, with this signal ignored,
# and so would be the programs that tests interrupt.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).resolve().parent
LONG_S = 360
SLOW = """
conformance
e2e/faults
e2e/network/test_qos.py
e2e/reading/test_hostile_names.py
e2e/reading/test_replayed_requests.py
e2e/test_bubble.py
e2e/test_bubble_propagation.py
e2e/test_campaign.py
e2e/test_counters.py
e2e/test_demo.py
e2e/test_lab.py
e2e/test_processor.py
e2e/test_sweeps.py
fuzz
machines
mpi/conformance
mpi/test_compilers.py
mpi/test_endings.py
mpi/test_ends.py
mpi/test_messages.py
mpi/test_other_tools.py
mpi/test_presence.py
mpi/test_sanitizers.py
mpi/test_sessions.py
mpi/test_signals.py
mpi/test_volume.py
relocation
slurm/test_batch_beside_slurm.py
slurm/test_charges_of_slurm.py
slurm/test_levels_of_jobs.py
slurm/test_pairing.py
slurm/test_pairing_memory.py
slurm/test_plugin.py
slurm/test_sharing_by_slurm.py
slurm/test_slurm_away.py
slurm/test_slurm_day.py
slurm/test_slurm_model.py
slurm/test_users_of_slurm.py
unit/benchmarks/test_pairing_benchmark.py
unit/bill/test_by_hand_and_by_slurm.py
unit/bill/test_crash.py
unit/bill/test_desk.py
unit/bill/test_hostile_names_in_books.py
unit/bill/test_posts.py
unit/bill/test_spool_charged.py
unit/bill/test_spool_order.py
unit/bill/test_spool_overlap.py
unit/bill/test_spool_unprofiled.py
unit/c/test_agent_c.py
unit/c/test_count_c.py
unit/c/test_pmu_c.py
unit/c/test_tally_c.py
unit/cli/test_narrow.py
unit/cli/test_outputs.py
unit/cli/test_progress.py
unit/docs/test_docs_build.py
unit/measure/test_estimators.py
unit/network/test_collective_messages.py
unit/pairing/test_cli_fit.py
unit/pairing/test_fitting.py
unit/pairing/test_measured_scores.py
unit/pairing/test_regressors.py
unit/profile/test_checkpoint_files.py
unit/profile/test_foreign.py
unit/profile/test_parallel.py
unit/profile/test_signature.py
unit/slurm/test_job_history.py
unit/slurm/test_slurm_close.py
unit/trace/test_export_scale.py
"""
"""Files and folders that take most of the time and show what changed in mpicoloc, not whether an installation
works: `launch/test` leaves them out, and `launch/test --all` runs them."""
SLOW_BUT_IN_CI = ("e2e/reading/test_docs_commands.py",)
"""Likewise, but CI runs them, too."""


def pytest_configure():
    """A file that was renamed must not come back into the short run unseen."""
    missing = [name for name in (*SLOW.split(), *SLOW_BUT_IN_CI) if not (HERE / name).exists()]
    if missing:
        raise pytest.UsageError(f"tests/conftest.py names files that are not there: {' '.join(missing)}")


def pytest_itemcollected(item):
    """Mark what is slow."""
    slow = SLOW.split() + ([] if os.environ.get("CI") else list(SLOW_BUT_IN_CI))
    if any(item.path.is_relative_to(HERE / name) for name in slow):
        item.add_marker("slow")


def is_long(item):
    """Whether a test is allowed far more time than others."""
    mark = item.get_closest_marker("timeout")
    return mark is not None and mark.args[0] > LONG_S


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Each of several workers begins with its share of the long tests: short ones end the run at one time."""
    if "PYTEST_XDIST_WORKER_COUNT" not in os.environ:
        return
    n_workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    long, short = [item for item in items if is_long(item)], [item for item in items if not is_long(item)]
    found = []
    for i in range(n_workers):
        own = long[i::n_workers]
        # what xdist's worksteal gives it at first, in the order of the list
        n_more = max((len(items) - len(found)) // (n_workers - i) - len(own), 0)
        found += own + short[:n_more]
        del short[:n_more]
    items[:] = found + short


@pytest.fixture(autouse=True)
def own_environment(request, monkeypatch, tmp_path):
    """No option of the user's reaches a test; Open MPI as root, and more ranks than cores, are allowed."""
    for name in [name for name in os.environ if name.startswith("MPICOLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for prefix in ("OMPI", "PRTE"):
        monkeypatch.setenv(f"{prefix}_ALLOW_RUN_AS_ROOT", "1")
        monkeypatch.setenv(f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    if request.node.get_closest_marker("serial") is None:
        # Other tests may want the cores; a rank of MPICH that waits keeps one for a thousand polls otherwise.
        monkeypatch.setenv("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
    # Python's programs, mpicoloc's own among them, are found although the environment is not activated.
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    )


@pytest.fixture
def shm_dir(monkeypatch):
    """A folder in memory of this test's own, so that its jobs share no board with others."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="mpicoloc-test-", dir=base)
    monkeypatch.setenv("MPICOLOC_SHM_DIR", folder)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)

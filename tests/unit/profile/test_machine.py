"""Description of the node and resource usage of a rank's process, read from the kernel."""

import os
import subprocess
import sys

import numpy as np
import pytest

from mpicoloc.core.profile import table
from mpicoloc.profile import machine


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("model name\t: AMD EPYC  7763\nprocessor : 1\nmodel name : AMD EPYC  7763\n", "AMD EPYC 7763"),
        ("processor : 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n", "CPU 0x41 0xd0c 0x3"),
        ("", ""),
    ],
)
def test_the_processor_has_a_name(text, name):
    assert machine.cpu_model(text) == name


def test_the_node_fits_into_its_table():
    row = table("nodes", {name: [value] for name, value in machine.node().items()})[0]
    assert row["n_cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert row["memory_bytes"] > 1e6


def test_what_a_process_used_is_counted():
    code = "import time; x = bytearray(1 << 26); sum(range(10**7)); time.sleep(0.01); print(flush=1); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        used, peak_bytes = machine.usage(child.pid), machine.peak_rss_bytes(child.pid)
        child.communicate("\n", timeout=60)
    assert used["cpu_s"] > 0.02
    assert peak_bytes > 1 << 26
    assert used["minor_faults"] > 100
    assert used["voluntary_switches"] >= 1
    assert used["run_delay_s"] >= 0


def test_a_process_that_is_gone_tells_nothing():
    assert np.isnan([*machine.usage(0).values()]).all()
    assert np.isnan(machine.peak_rss_bytes(0))
    assert set(machine.usage(0)) == set(machine.usage(os.getpid())) == set(machine.USED)


@pytest.mark.parametrize(
    ("schedstat", "run_delay_s"), [("5000 2000000000 3", 4.0), ("0 0 0", np.nan), ("", np.nan)]
)
def test_a_kernel_that_does_not_count_run_delay_tells_none(monkeypatch, tmp_path, schedstat, run_delay_s):
    monkeypatch.setattr(machine, "_PROC", tmp_path)
    for thread in ("7", "8"):
        folder = tmp_path / "7" / "task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(schedstat)
    assert machine.usage(7)["run_delay_s"] == pytest.approx(run_delay_s, nan_ok=True)

"""SIGTRAP of a breakpoint whose reason a hypervisor lost, in C."""

import platform
import subprocess

import objects
import pytest
from c_tests import build
from objects import SANITIZED


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has such exceptions")
@pytest.mark.parametrize("is_virtual", [0, 1], ids=["real", "virtual"])
def test_a_lost_reason_harms_nobody_and_other_signals_do_what_they_did(tmp_path_factory, is_virtual):
    flags = (*SANITIZED, f"-DMC_TRAP_VIRTUAL={is_virtual}")
    program = build(tmp_path_factory, "test_trap", objects.of_csrc("common/proc.c", "common/trap.c"), flags)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

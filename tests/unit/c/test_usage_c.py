"""Resource usage that a rank reports, in C."""

import subprocess

import objects
from c_tests import build
from objects import SANITIZED


def test_usage_is_known_when_all_of_it_is_there(tmp_path_factory):
    program = build(tmp_path_factory, "test_usage", objects.of_csrc("guest/usage.c"), SANITIZED)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

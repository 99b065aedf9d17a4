"""Pages of code are replaced while threads execute them."""

import subprocess

import objects
from c_tests import build


def test_threads_execute_the_old_or_the_new_instruction(tmp_path_factory):
    program = build(
        tmp_path_factory, "test_code_copy", objects.of_csrc("guest/count/code_exchange.c"), objects.FLAGS
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr

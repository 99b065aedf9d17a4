"""The packet simulator under the sanitizers: addresses, undefined behaviour, leaks."""

from __future__ import annotations

from c_tests import CSRC_REPLAY, build, run
from objects import SANITIZED


def test_small_simulations_with_many_settings(tmp_path_factory, tmp_path):
    run(build(tmp_path_factory, "test_replay", CSRC_REPLAY, SANITIZED), tmp_path)

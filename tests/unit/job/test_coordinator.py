"""A coordinator that the launcher ends leaves its work to the keeper."""

import pytest

from mpicoloc.job import coordinator


def test_a_coordinator_that_is_ended_while_it_gathers_does_not_call_the_profile_failed(monkeypatch):
    """Or the keeper, which waits for the coordinator's word, would write none (Open MPI after quick_exit)."""
    said = []

    def end(key):
        raise coordinator._Stopped

    monkeypatch.setattr(coordinator, "_packed_part", end)
    monkeypatch.setattr(coordinator.contract, "tell_profile", lambda *words: said.append(words))
    with pytest.raises(coordinator._Stopped):
        coordinator._write_profile("key", None)
    assert not said


def test_a_coordinator_that_fails_tells_so(monkeypatch):
    said = []
    monkeypatch.setattr(coordinator, "_packed_part", lambda key: None)
    monkeypatch.setattr(coordinator.contract, "tell_profile", lambda *words: said.append(words))
    coordinator._write_profile("key", None)  # no communicator: AttributeError
    assert said == [("key", coordinator.contract.MC_PROFILE_FAILED, said[0][2])]
    assert "the coordinator failed" in said[0][2]

"""The JSON of `mpicoloc bubble` has the documented keys."""

import json

import numpy as np
import pytest
from bubbled_jobs import calibration_of
from json_output import documented

from mpicoloc.bubble import actions
from mpicoloc.bubble.sensitivity import Scored
from mpicoloc.core.bubbles import SensitivityCurve
from mpicoloc.core.profile import Estimate

ENDS = np.array([1.0, 1.5])
CURVE = SensitivityCurve("lu", np.array([0.0, 8.0]), ENDS, ENDS, ENDS, 40)
SLOWDOWN = Estimate(1.3, 1.2, 1.4, 40, "1", "counts")


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("bubble score", lambda: actions.score_json(Scored(SLOWDOWN, SLOWDOWN, False))),
        ("bubble sensitivity", lambda: actions.curve_json(CURVE, "counts")),
        ("bubble levels", lambda: actions.levels_json(calibration_of())),
    ],
)
def test_keys_are_the_documented_ones(name, made):
    found, wanted = json.loads(json.dumps(made(), allow_nan=False)), documented(name)
    assert list(found) == list(wanted)
    for key, value in wanted.items():
        if isinstance(value, dict):
            assert list(found[key]) == list(value)

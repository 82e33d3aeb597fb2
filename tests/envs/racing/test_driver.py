"""The driver who knows the track completes laps."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from cenie.envs.racing.circuits import LIMITS

EXAMPLE = Path(__file__).parents[3] / "examples" / "drive_circuits.py"


@pytest.mark.slow
def test_the_driver_completes_laps_of_all_circuits():
    spec = importlib.util.spec_from_file_location("drive_circuits", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    lap = example.drive(list(LIMITS))
    assert np.asarray(lap.solved).all()
    assert np.asarray(lap.earned).min() > 650
    # A return is what the tiles are worth, less a tenth for each physics step.
    np.testing.assert_allclose(lap.earned, 1000 - 0.1 * np.asarray(lap.state.time), atol=0.5)

"""What the preset `hard` says of each method."""

import pytest

from cenie.experiment.presets import preset
from cenie.methods.table import METHODS


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_trained_on_filled_levels_for_the_same_steps(method):
    config = preset("maze", method, "hard")
    teacher = config.teacher
    generator = getattr(teacher, "generator", getattr(teacher, "replaces", "filled"))
    # POET begins with one level, which must be solvable; ALP-GMM draws from its own space of tasks.
    assert generator == ("simple" if method == "poet" else "filled")
    assert (config.env.size, config.env.fill, config.env.max_steps) == (21, (0.0, 0.6), 150)
    assert config.run.env_steps == 60_000_000
    # The budget of steps ends every run, and the learning rate falls for none.
    assert config.updates * config.student.num_levels * config.student.num_steps > config.run.env_steps
    assert config.student.ppo.final_learning_rate_fraction == 1.0


def test_novelty_has_the_weight_of_the_paper_where_there_is_a_weight():
    assert preset("maze", "plr-cenie", "hard").teacher.alpha.value == 0.5
    assert preset("maze", "plr-cenie-dagger", "hard").teacher.alpha.value == 1.0
    assert preset("maze", "plr-cenie", "quick").teacher.alpha.value == 0.25

"""Fits shared out over devices: two host devices must find what one finds."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from cenie.methods.cenie import CenieNovelty
from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig, MixtureConfig, NeighboursConfig
from cenie.replay.outcomes import Points
from cenie.replay.play import REPLAY, Play
from cenie.xla.devices import level_mesh

MESH = level_mesh(2)


@pytest.mark.parametrize(
    "config",
    [
        MixtureConfig(window=4, components=(2, 4), silhouette_rows=None),
        MixtureConfig(
            window=4, components=(2, 4), silhouette_rows=30, screening_steps=2, screening_candidates=2
        ),
        MixtureConfig(window=4, components=(2, 4), covariance="full", silhouette_rows=None),
        NeighboursConfig(window=4),
    ],
    ids=["exact", "screening", "full", "neighbours"],
)
def test_a_fit_by_two_devices_is_that_of_one(config: CoverageConfig) -> None:
    """The others get the result of the first. A fit once had collectives in its loops, and XLA aborted."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(4, 1, 3))
    points = jnp.asarray(centres + rng.normal(size=(4, 30, 3)), jnp.float32)
    state = coverage.push(coverage.init(config, 30, 3), points, jnp.ones((4, 30), bool))
    one, two = (
        jax.jit(partial(coverage.fit, config, mesh=mesh))(state, jax.random.key(1)) for mesh in (None, MESH)
    )
    assert bool(one.fitted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), one, two)


@pytest.mark.parametrize("due", [True, False])
def test_a_fit_that_is_not_due_changes_nothing(due: bool) -> None:
    config = MixtureConfig(window=4, components=(2, 3), selection="bic")
    points = jnp.asarray(np.random.default_rng(0).normal(size=(4, 30, 3)), jnp.float32)
    state = coverage.push(coverage.init(config, 30, 3), points, jnp.ones((4, 30), bool))
    fit = jax.jit(partial(coverage.fit, config, mesh=MESH))
    after = fit(fit(state, jax.random.key(1)), jax.random.key(2), due=jnp.asarray(due))
    once = fit(state, jax.random.key(1))
    same = [np.array_equal(a, b) for a, b in zip(jax.tree.leaves(once), jax.tree.leaves(after), strict=True)]
    assert all(same) != due


def test_a_fit_by_two_devices_has_no_collective_in_loops_and_conditions() -> None:
    """On busy cores XLA takes a late partner for a deadlock, and does not order what conditions hide."""
    novelty = CenieNovelty(MixtureConfig(window=4, components=(2, 6), silhouette_rows=30), 4)
    points = Points(jnp.zeros((4, 30, 3)), jnp.ones((4, 30), bool))
    played = Play((), points=points, kind=jnp.asarray(REPLAY), stored_in=jnp.arange(4))
    traced = jax.make_jaxpr(
        lambda state, enters, key: novelty.learn(state, played, enters=enters, key=key, mesh=MESH)
    )(novelty.init((30, 3)), jnp.ones((), bool), jax.random.key(0))
    inside, outside = [], []

    def walk(jaxpr, hidden: bool) -> None:
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name.startswith(("psum", "all_gather")):
                (inside if hidden else outside).append(name)
            for inner in jaxprs_in_params(equation.params):
                walk(inner, hidden or name in ("scan", "while", "cond"))

    walk(traced.jaxpr, False)
    assert inside == []
    assert outside

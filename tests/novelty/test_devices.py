"""Fits shared out over devices: two host devices must find what one finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from cenie.devices import level_mesh
from cenie.novelty import coverage
from cenie.novelty.config import CoverageConfig, MixtureConfig, NeighboursConfig

MESH = level_mesh(2)


@pytest.mark.parametrize(
    "config",
    [
        MixtureConfig(window=4, components=(2, 4), silhouette_rows=None),
        MixtureConfig(
            window=4, components=(2, 4), silhouette_rows=30, screening_steps=2, screening_candidates=2
        ),
        MixtureConfig(window=4, components=(2, 4), covariance="tied", silhouette_rows=None),
        NeighboursConfig(window=4),
    ],
    ids=["exact", "screening", "tied", "neighbours"],
)
def test_a_fit_by_two_devices_is_that_of_one(config: CoverageConfig) -> None:
    """A fit once exchanged numbers in every step of its loops, and XLA aborted on busy cores."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(4, 1, 3))
    points = jnp.asarray(centres + rng.normal(size=(4, 30, 3)), jnp.float32)
    state = coverage.push(coverage.init(config, 30, 3), points, jnp.ones((4, 30), bool))
    one, two = (
        jax.jit(coverage.fit, static_argnums=(0, 3))(config, state, jax.random.key(1), mesh)
        for mesh in (None, MESH)
    )
    assert bool(one.fitted)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), one, two)


def test_loops_of_a_fit_by_two_devices_exchange_nothing() -> None:
    """On busy cores XLA takes a late partner for a deadlock: exchanges must be few, and outside of loops."""
    config = MixtureConfig(window=4, components=(2, 6), screening_steps=2, silhouette_rows=30)
    state = coverage.init(config, 30, 3)
    traced = jax.make_jaxpr(lambda state, key: coverage.fit(config, state, key, MESH))(
        state, jax.random.key(0)
    )
    inside, outside = [], []

    def walk(jaxpr, in_loop: bool) -> None:
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            if name.startswith(("psum", "all_gather")):
                (inside if in_loop else outside).append(name)
            for inner in jaxprs_in_params(equation.params):
                walk(inner, in_loop or name in ("scan", "while"))

    walk(traced.jaxpr, False)
    assert inside == []
    assert outside

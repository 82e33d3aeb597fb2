"""Sharing out work over devices: two host devices must find what one finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh

from cenie.novelty import coverage, devices
from cenie.novelty.config import CoverageConfig

MESH = Mesh(np.array(jax.devices()[:2]), ("levels",))


def halves(rows: jax.Array, more: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {"half": rows / 2.0, "sum": rows[:, None] + more["other"]}


@pytest.mark.parametrize("count", [1, 4, 5])
def test_shared_rows_come_back_in_their_order(count: int) -> None:
    rows, more = jnp.arange(float(count)), {"other": jnp.arange(3.0 * count).reshape(count, 3)}
    expected = devices.side_by_side(None, lambda team, *rows: devices.shared(team, halves, *rows), rows, more)
    found = jax.jit(
        lambda *rows: devices.side_by_side(
            MESH, lambda team, *rows: devices.shared(team, halves, *rows), *rows
        )
    )(rows, more)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(found["half"], np.arange(count) / 2.0)


@pytest.mark.parametrize("count", [1, 4, 5])
def test_each_row_is_counted_once_in_a_sum(count: int) -> None:
    """Devices get equally many rows, so that one of them may get a copy."""

    def total(real: jax.Array, rows: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(real, rows, 0.0))

    found = jax.jit(
        lambda rows: devices.side_by_side(MESH, lambda team, rows: devices.summed(team, total, rows), rows)
    )(jnp.arange(1.0, count + 1))
    assert float(found) == count * (count + 1) / 2


def test_devices_work_on_different_rows() -> None:
    def who(rows: jax.Array) -> jax.Array:
        return jnp.full(rows.shape, jax.lax.axis_index("levels"))

    found = jax.jit(
        lambda rows: devices.side_by_side(MESH, lambda team, rows: devices.shared(team, who, rows), rows)
    )(jnp.zeros(5))
    assert found.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"silhouette_rows": None},
        {"silhouette_rows": 30, "screening_points": 40},
        {"covariance": "tied", "silhouette_rows": None},
        {"model": "neighbours"},
    ],
    ids=["exact", "screening", "tied", "neighbours"],
)
def test_a_fit_by_two_devices_is_that_of_one(settings: dict) -> None:
    """A fit once exchanged numbers in every step of its loops, and XLA aborted on busy cores."""
    config = CoverageConfig(window=4, components=(2, 4), **settings)
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
    config = CoverageConfig(window=4, components=(2, 6), screening_points=40, silhouette_rows=30)
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

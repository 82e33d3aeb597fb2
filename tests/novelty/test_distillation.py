import jax
import jax.numpy as jnp
import numpy as np
import optax

from cenie.novelty import distillation
from cenie.novelty.config import DistillationConfig

CONFIG = DistillationConfig(steps=200, size=16, batch=32)
KEY = jax.random.key(0)
POINTS = jax.random.normal(jax.random.key(1), (60, 3))
ALL = jnp.ones(60, bool)

fit = jax.jit(distillation.fit, static_argnums=0)


def test_adam_is_adam() -> None:
    layers = [{"weights": jnp.arange(6.0).reshape(2, 3), "biases": jnp.ones(3)}]
    optimiser = optax.adam(0.1)
    expected, state = layers, optimiser.init(layers)
    ours = (layers, *(jax.tree.map(jnp.zeros_like, layers) for _ in range(2)))
    for number in range(1, 6):
        gradient = jax.tree.map(
            lambda leaf, seed=number: jax.random.normal(jax.random.key(seed), leaf.shape), layers
        )
        updates, state = optimiser.update(gradient, state)
        expected = optax.apply_updates(expected, updates)
        ours = distillation.adam(ours, gradient, jnp.int32(number), 0.1)
    for a, b in zip(jax.tree.leaves(ours[0]), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_training_lowers_the_error_where_the_points_are() -> None:
    fitted = fit(CONFIG, KEY, POINTS, valid=ALL, previous=distillation.init(CONFIG, 3))
    assert float(fitted.diagnostics["after"]) < 0.3 * float(fitted.diagnostics["before"])
    density = distillation.log_density(CONFIG, fitted.model, POINTS)
    np.testing.assert_allclose(-density.mean(), fitted.diagnostics["after"], rtol=1e-4)
    elsewhere = distillation.log_density(CONFIG, fitted.model, POINTS + 5.0)
    assert float(elsewhere.max()) < float(density.mean())


def test_the_target_never_moves_and_the_predictor_goes_on_only_if_told_to() -> None:
    start = distillation.init(CONFIG, 3)
    fresh, warm = CONFIG, DistillationConfig(**{**vars(CONFIG), "warm_start": True})
    once = fit(fresh, KEY, POINTS, valid=ALL, previous=start)
    for leaf, other in zip(jax.tree.leaves(once.model.target), jax.tree.leaves(start.target)):
        np.testing.assert_array_equal(leaf, other)
    anew = fit(fresh, KEY, POINTS, valid=ALL, previous=once.model).diagnostics
    again = fit(warm, KEY, POINTS, valid=ALL, previous=once.model).diagnostics
    np.testing.assert_allclose(anew["before"], once.diagnostics["before"], rtol=1e-4)
    np.testing.assert_allclose(again["before"], once.diagnostics["after"], rtol=1e-4)

"""Novelty by random network distillation: what a predictor has not learned to predict is novel.

A fixed random network maps points to numbers; a second one is trained on the points of the window to give
the same numbers. Its error stands in for the negative log-density.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from cenie.novelty.config import DistillationConfig
from cenie.novelty.interface import Fitted

_LAYERS = 3
_FARTHEST = 10.0
"""Inputs are limited to so many standard deviations, so that no point overflows the networks."""

_TARGET_SEED = 0x7A26E7
"""No seed that a caller is likely to fit with: a predictor that starts as the target learns nothing."""

_FIRST_DECAY, _SECOND_DECAY, _EPSILON = 0.9, 0.999, 1e-8

Layers = list[dict[str, jax.Array]]
"""Weights [in, out] and biases [out] of each layer."""


_Training = tuple[Layers, Layers, Layers]
"""Parameters, and the running first and second moments of their gradient."""


class DistillationModel(NamedTuple):
    """Both networks, and the shift and scale [d] of their inputs."""

    shift: jax.Array
    scale: jax.Array
    target: Layers
    predictor: Layers


def init(config: DistillationConfig, dimensions: int) -> DistillationModel:
    """The target is the same in all runs: it is a yardstick, and nothing is averaged over it."""
    target_key, predictor_key = jax.random.split(jax.random.key(_TARGET_SEED))
    return DistillationModel(
        shift=jnp.zeros(dimensions),
        scale=jnp.ones(dimensions),
        target=_random_layers(config, target_key, dimensions),
        predictor=_random_layers(config, predictor_key, dimensions),
    )


def fit(
    config: DistillationConfig,
    key: jax.Array,
    points: jax.Array,
    *,
    valid: jax.Array,
    previous: DistillationModel,
) -> Fitted:
    """Train a predictor on the valid ones of clean points [n, d]. Consumes the key.

    It starts anew, so that only the window counts, or from the previous one with `warm_start`.
    Diagnostics: the mean error over the window `before` and `after` training.
    """
    start_key, batch_key = jax.random.split(key)
    dimensions = points.shape[1]
    count = jnp.sum(valid)
    weight = valid / jnp.maximum(count, 1)
    shift = weight @ points
    scale = jnp.sqrt(weight @ jnp.square(points - shift) + config.reg)
    start = previous.predictor if config.warm_start else _random_layers(config, start_key, dimensions)
    inputs = _limited(points, shift, scale)
    goals = _outputs(previous.target, inputs)
    # Valid points first, so that a number below their count is one of them.
    order = jnp.argsort(~valid, stable=True)

    def loss(layers: Layers, inputs: jax.Array, goals: jax.Array) -> jax.Array:
        return jnp.mean(_error(layers, inputs, goals))

    def step(training: _Training, number: jax.Array) -> tuple[_Training, None]:
        uniform = jax.random.uniform(jax.random.fold_in(batch_key, number), (config.batch,))
        batch = order[jnp.minimum((uniform * count).astype(jnp.int32), jnp.maximum(count - 1, 0))]
        gradient = jax.grad(loss)(training[0], inputs[batch], goals[batch])
        return adam(training, gradient, number + 1, config.learning_rate), None

    zeros = jax.tree.map(jnp.zeros_like, start)
    (predictor, _, _), _ = lax.scan(step, (start, zeros, zeros), jnp.arange(config.steps))
    before, after = (weight @ _error(layers, inputs, goals) for layers in (start, predictor))
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((shift, scale, predictor))]
    return Fitted(
        model=DistillationModel(shift, scale, previous.target, predictor),
        ok=(count > 0) & jnp.stack(finite).all() & jnp.isfinite(after),
        diagnostics={"before": before, "after": after},
    )


def unfitted(config: DistillationConfig) -> dict[str, jax.Array]:
    """The diagnostics before any fit."""
    return {"before": jnp.zeros(()), "after": jnp.zeros(())}


def log_density(config: DistillationConfig, model: DistillationModel, points: jax.Array) -> jax.Array:
    """The negative error [n] at points [n, d]: no density, but ordered like one."""
    inputs = _limited(points, model.shift, model.scale)
    return -_error(model.predictor, inputs, _outputs(model.target, inputs))


def adam(training: _Training, gradient: Layers, number: jax.Array, rate: float) -> _Training:
    """One step of Adam, the `number`-th from 1: new parameters and running moments of the gradient."""
    layers, first, second = training
    first = jax.tree.map(lambda m, g: _FIRST_DECAY * m + (1.0 - _FIRST_DECAY) * g, first, gradient)
    second = jax.tree.map(lambda v, g: _SECOND_DECAY * v + (1.0 - _SECOND_DECAY) * g * g, second, gradient)
    first_share, second_share = 1.0 - _FIRST_DECAY**number, 1.0 - _SECOND_DECAY**number

    def moved(layer: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return layer - rate * (m / first_share) / (jnp.sqrt(v / second_share) + _EPSILON)

    return jax.tree.map(moved, layers, first, second), first, second


def _random_layers(config: DistillationConfig, key: jax.Array, dimensions: int) -> Layers:
    """Normal weights that keep the scale of their inputs; biases too, lest the networks be odd functions."""
    layers, width = [], dimensions
    for layer_key in jax.random.split(key, _LAYERS):
        weight_key, bias_key = jax.random.split(layer_key)
        weights = jax.random.normal(weight_key, (width, config.size)) * (2.0 / width) ** 0.5
        layers.append({"weights": weights, "biases": jax.random.normal(bias_key, weights.shape[1:])})
        width = config.size
    return layers


def _outputs(layers: Layers, inputs: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        inputs = jax.nn.relu(inputs @ layer["weights"] + layer["biases"])
    return inputs @ layers[-1]["weights"] + layers[-1]["biases"]


def _error(layers: Layers, inputs: jax.Array, goals: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(_outputs(layers, inputs) - goals), axis=1)


def _limited(points: jax.Array, shift: jax.Array, scale: jax.Array) -> jax.Array:
    return jnp.clip((points - shift) / scale, -_FARTHEST, _FARTHEST)

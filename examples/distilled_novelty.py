"""A coverage model of your own: CENIE's novelty by random network distillation instead of mixtures.

    python examples/distilled_novelty.py [--out runs/distilled] [--updates 200]

A fixed random network maps points to numbers. A second one, the predictor, learns on the points of the window
to give the same numbers. Where it fails, the student has seldom been: the negative error stands in for a
log-density (Burda et al., 2019). Such a model is a frozen record of settings that names four functions; the
window, Eq. 3, refits, checkpoints and logs are the library's.
"""

import argparse
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import cenie
from cenie.methods.cenie import CenieNovelty
from cenie.novelty import CoverageModel, Fitted

Layers = list[dict[str, jax.Array]]


class Distilled(NamedTuple):
    """Both networks, and the shift and scale [d] of their inputs."""

    shift: jax.Array
    scale: jax.Array
    target: Layers
    predictor: Layers


@dataclass(frozen=True)
class Distillation:
    """The error of a network that learns on the window to predict a random one."""

    window: int = 32
    max_points: int | None = 16384
    steps: int = 256
    batch: int = 256
    size: int = 64
    learning_rate: float = 1e-3
    reg: float = 1e-2

    @property
    def model(self) -> CoverageModel:
        return CoverageModel(init, fit, unfitted, log_density)


def init(config: Distillation, dimensions: int) -> Distilled:
    """The target is the same in all runs."""
    target, predictor = (
        random_layers(config, key, dimensions) for key in jax.random.split(jax.random.key(7))
    )
    return Distilled(jnp.zeros(dimensions), jnp.ones(dimensions), target, predictor)


def fit(
    config: Distillation, key: jax.Array, points: jax.Array, *, valid: jax.Array, previous: Distilled
) -> Fitted:
    """Train a new predictor on the valid ones of the points [n, d]."""
    start_key, batch_key = jax.random.split(key)
    count = jnp.sum(valid)
    weight = valid / jnp.maximum(count, 1)
    shift = weight @ points
    scale = jnp.sqrt(weight @ jnp.square(points - shift) + config.reg)
    inputs = limited(points, shift, scale)
    goals = outputs(previous.target, inputs)
    order = jnp.argsort(~valid, stable=True)  # valid points first
    optimiser, start = optax.adam(config.learning_rate), random_layers(config, start_key, points.shape[1])

    def loss(layers: Layers, batch: jax.Array) -> jax.Array:
        return jnp.mean(error(layers, inputs[batch], goals[batch]))

    def step(training: Any, step_key: jax.Array) -> tuple[Any, None]:
        layers, state = training
        batch = order[jax.random.randint(step_key, (config.batch,), 0, jnp.maximum(count, 1))]
        updates, state = optimiser.update(jax.grad(loss)(layers, batch), state)
        return (optax.apply_updates(layers, updates), state), None

    keys = jax.random.split(batch_key, config.steps)
    (predictor, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), keys)
    before, after = (weight @ error(layers, inputs, goals) for layers in (start, predictor))
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((shift, scale, predictor, after))]
    model = Distilled(shift, scale, previous.target, predictor)
    return Fitted(model, (count > 0) & jnp.stack(finite).all(), {"before": before, "after": after})


def unfitted(config: Distillation) -> dict[str, jax.Array]:
    """The diagnostics before any fit."""
    return {"before": jnp.zeros(()), "after": jnp.zeros(())}


def log_density(config: Distillation, model: Distilled, points: jax.Array) -> jax.Array:
    """The negative error [n] at points [n, d]: no density, but ordered like one."""
    inputs = limited(points, model.shift, model.scale)
    return -error(model.predictor, inputs, outputs(model.target, inputs))


def random_layers(config: Distillation, key: jax.Array, dimensions: int) -> Layers:
    layers, width = [], dimensions
    for layer_key in jax.random.split(key, 3):
        weight_key, bias_key = jax.random.split(layer_key)
        weights = jax.random.normal(weight_key, (width, config.size)) * (2.0 / width) ** 0.5
        layers.append({"weights": weights, "biases": jax.random.normal(bias_key, (config.size,))})
        width = config.size
    return layers


def outputs(layers: Layers, inputs: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        inputs = jax.nn.relu(inputs @ layer["weights"] + layer["biases"])
    return inputs @ layers[-1]["weights"] + layers[-1]["biases"]


def error(layers: Layers, inputs: jax.Array, goals: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(outputs(layers, inputs) - goals), axis=1)


def limited(points: jax.Array, shift: jax.Array, scale: jax.Array) -> jax.Array:
    """Within 10 standard deviations, so that no point overflows the networks."""
    return jnp.clip((points - shift) / scale, -10.0, 10.0)


def main(out: str, overrides: dict[str, Any], coverage: Distillation) -> dict[str, Any]:
    """Train PLR-perp with this novelty; the last row of its log."""
    config = cenie.preset("maze", "plr-robust", overrides=overrides)
    novelty = CenieNovelty(coverage, config.teacher.replay.capacity)
    run = cenie.train(config, out, cenie.Parts(novelty=novelty))
    return {name: values[-1] for name, values in run.metrics.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", default="runs/distilled")
    parser.add_argument("--updates", type=int, default=200)
    options = parser.parse_args()
    print(main(options.out, {"updates": options.updates}, Distillation()))

"""Proximal policy optimisation for students with and without memory.

optax is loaded where it is used: it takes 0.2 CPU seconds, which a config that is refused need not wait for.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cenie.records import Advantages, Memory, Observation, Rollout
from cenie.student.advantage import gae
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.networks.base import Network, frames_seen
from cenie.student.returns import ReturnScale, initial_scale, scale_rewards
from cenie.xla import devices

if TYPE_CHECKING:
    import optax

Metrics = dict[str, Array]


class StudentState(eqx.Module):
    """Everything that learning changes.

    `updates` counts calls of `learn`, `skipped` the gradient steps left out because a loss or a gradient
    was not finite, and `bad_in_a_row` the latest updates in a row with such a step.
    """

    network: Network
    optimiser: PyTree
    return_scale: ReturnScale
    updates: Int[Array, ""]
    skipped: Int[Array, ""]
    bad_in_a_row: Int[Array, ""]


class _Batch(eqx.Module):
    """The input of the loss. The leading axis is levels (with memory) or single steps (without).

    Of a network that looks back, `observation` is where in the film the last observations of a step are.
    `weight`, if not all steps count, is what a step counts in means over the whole rollout: 0, or as much
    more than 1 as makes up for the others.
    """

    memory: Memory
    observation: Observation
    start: Array
    action: Array
    log_prob: Array
    value: Array
    advantage: Array
    target: Array
    weight: Array | None = None


def init_student(config: StudentConfig, network: Network) -> StudentState:
    """A student that has not learned yet."""
    zero = jnp.zeros((), jnp.int32)
    optimiser = _optimiser(config.ppo).init(eqx.filter(network, eqx.is_inexact_array))
    return StudentState(network, optimiser, initial_scale(), zero, zero, zero)


def advantages_for(config: StudentConfig, state: StudentState, rollout: Rollout) -> Advantages:
    """The advantages that `learn` would use for this rollout (on normalised rewards, where configured).

    Only `learn` keeps the return statistics: a rollout that is scored but not learned from leaves the
    student untouched.
    """
    return _scaled_advantages(config.ppo, state, rollout)[1]


def learn(
    config: StudentConfig,
    state: StudentState,
    rollout: Rollout,
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> tuple[StudentState, Metrics]:
    """One update: several epochs of gradient steps on a rollout. Consumes the key.

    With a `mesh` of one axis, each device differentiates its own part of every minibatch. A gradient
    step whose loss or gradient is not finite changes nothing and is counted.
    """
    return_scale, advantages = _scaled_advantages(config.ppo, state, rollout)
    batch, film = _batch(state.network, rollout, advantages)
    film = None if film is None else state.network.film(film)
    # Every device looks frames up in the film, which must not need a collective in a loop.
    film = devices.replicate(mesh, film)
    rate = _learning_rate(config.ppo, state.updates)

    def gradient_step(
        carry: tuple[Network, PyTree], minibatch: _Batch
    ) -> tuple[tuple[Network, PyTree], Metrics]:
        gradient, metrics = _gradient(config.ppo, carry[0], film, minibatch, mesh)
        return _apply(config.ppo, carry, gradient, metrics, rate)

    def epoch(carry: tuple[Network, PyTree], key: PRNGKeyArray) -> tuple[tuple[Network, PyTree], Metrics]:
        return jax.lax.scan(gradient_step, carry, _minibatches(batch, config.ppo.minibatches, key))

    (network, optimiser), metrics = jax.lax.scan(
        epoch, (state.network, state.optimiser), jax.random.split(key, config.ppo.epochs)
    )
    skipped = jnp.sum(metrics.pop("skipped"))
    state = StudentState(
        network=network,
        optimiser=optimiser,
        return_scale=return_scale,
        updates=state.updates + 1,
        skipped=state.skipped + skipped,
        bad_in_a_row=jnp.where(skipped > 0, state.bad_in_a_row + 1, 0),
    )
    target, counts = advantages.target, rollout.counts
    unexplained = jnp.var(target - rollout.value, where=counts) / jnp.var(target, where=counts)
    metrics = {name: jnp.mean(values) for name, values in metrics.items()}
    return state, metrics | {
        "explained_variance": 1.0 - unexplained,
        "learning_rate": rate,
        "skipped": skipped,
        "masked": jnp.zeros((), jnp.int32) if rollout.masked is None else jnp.sum(rollout.masked),
    }


def _scaled_advantages(
    ppo: PPOConfig, state: StudentState, rollout: Rollout
) -> tuple[ReturnScale, Advantages]:
    scale, unit = state.return_scale, None
    if ppo.normalise_returns:
        scale, reward = scale_rewards(scale, rollout.reward, rollout.done, ppo.gamma)
        rollout = eqx.tree_at(lambda r: r.reward, rollout, reward)
        unit = jnp.full(reward.shape[0], scale.deviation)
    advantages = gae(
        rollout, ppo.gamma, ppo.gae_lambda, ppo.bootstrap_at_rollout_end, ppo.bootstrap_at_timeout
    )
    return scale, dataclasses.replace(advantages, unit=unit)


def _batch(network: Network, rollout: Rollout, advantages: Advantages) -> tuple[_Batch, Observation | None]:
    """The rollout, advantages normalised over the steps that count, in a row if there is no memory.

    Of a network that looks back also the film: all observations in a row, with those in its memory.
    """
    advantage, counts = advantages.advantage, rollout.counts
    mean, deviation = jnp.mean(advantage, where=counts), jnp.std(advantage, ddof=1, where=counts)
    batch = _Batch(
        memory=rollout.memory,
        observation=rollout.observation,
        start=rollout.start,
        action=rollout.action,
        log_prob=rollout.log_prob,
        value=rollout.value,
        advantage=(advantage - mean) / (deviation + 1e-5),
        target=advantages.target,
        weight=None if counts is None else counts / jnp.mean(counts),
    )
    if network.recurrent:
        return batch, None
    film = None
    if network.lookback:
        film = jax.tree.map(
            lambda *parts: jnp.concatenate(parts, axis=1), rollout.memory, rollout.observation
        )
        length = network.lookback + rollout.start.shape[1]
        places = frames_seen(rollout.start, network.lookback)
        places += length * jnp.arange(rollout.start.shape[0])[:, None, None]
        batch = eqx.tree_at(lambda b: (b.memory, b.observation), batch, ((), places))
    return jax.tree.map(lambda values: values.reshape(-1, *values.shape[2:]), (batch, film))


def _minibatches(batch: _Batch, count: int, key: PRNGKeyArray) -> _Batch:
    """The batch cut into `count` equal random parts along a new leading axis. Consumes the key."""
    if count == 1:
        return jax.tree.map(lambda values: values[None], batch)
    order = jax.random.permutation(key, batch.log_prob.shape[0]).reshape(count, -1)
    return jax.tree.map(lambda values: values[order], batch)


def _gradient(
    ppo: PPOConfig, network: Network, film: Observation | None, batch: _Batch, mesh: Mesh | None
) -> tuple[PyTree, Metrics]:
    """Gradient of the loss and its parts, averaged over the devices of the mesh."""

    def gradient_of(replicated: tuple[Network, Observation | None], batch: _Batch) -> tuple[PyTree, Metrics]:
        network, film = replicated
        gradient = eqx.filter_grad(lambda network, batch: _loss(ppo, network, film, batch), has_aux=True)
        return _mean_over_parts(gradient, network, batch)

    return devices.mean_over_devices(mesh, gradient_of, (network, film), batch)


def _mean_over_parts(gradient: Callable[..., Any], network: Network, batch: _Batch) -> Any:
    """The gradient of as many rows at a time as the network likes best; losses are means over equal rows."""
    rows = batch.log_prob.shape[0]
    size = min(network.rows_at_once or rows, rows)
    while rows % size:
        size -= 1
    if network.recurrent or size == rows:
        return gradient(network, batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(rows // size, size, *leaf.shape[1:]), batch)
    shapes = jax.eval_shape(gradient, network, jax.tree.map(lambda leaf: leaf[0], parts))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def add(total: Any, part: _Batch) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, gradient(network, part)), None

    total, _ = jax.lax.scan(add, zeros, parts)
    return jax.tree.map(lambda leaf: leaf * (size / rows), total)


def _loss(
    ppo: PPOConfig, network: Network, film: Observation | None, batch: _Batch
) -> tuple[Float[Array, ""], Metrics]:
    if network.recurrent:
        decision = network.sequence(batch.memory, batch.observation, batch.start)
    elif network.lookback:
        decision = network.look(film, batch.observation)
    else:
        _, decision = network.step((), batch.observation, batch.start)
    log_ratio = decision.policy.log_prob(batch.action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - ppo.clip, 1.0 + ppo.clip)
    policy_loss = -_mean(jnp.minimum(ratio * batch.advantage, clipped * batch.advantage), batch)
    value_loss = _value_loss(ppo, decision.value, batch)
    entropy = _mean(decision.policy.entropy(), batch)
    loss = policy_loss + ppo.value_coef * value_loss - ppo.entropy_coef * entropy
    return loss, {
        "loss": loss,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": _mean(ratio - 1.0 - log_ratio, batch),
        "clip_fraction": _mean(jnp.abs(ratio - 1.0) > ppo.clip, batch),
    }


def _mean(values: Array, batch: _Batch) -> Float[Array, ""]:
    """The mean over the steps of a batch, by their weights if they have any."""
    return jnp.mean(values if batch.weight is None else batch.weight * values)


def _value_loss(ppo: PPOConfig, value: Array, batch: _Batch) -> Float[Array, ""]:
    """Half the squared error, the worse of clipped and not; or a Huber loss with threshold 1."""
    if not ppo.value_clip:
        import optax

        return _mean(optax.huber_loss(value, batch.target), batch)
    clipped = batch.value + jnp.clip(value - batch.value, -ppo.clip, ppo.clip)
    worse = jnp.maximum((value - batch.target) ** 2, (clipped - batch.target) ** 2)
    return 0.5 * _mean(worse, batch)


def _apply(
    ppo: PPOConfig,
    carry: tuple[Network, PyTree],
    gradient: PyTree,
    metrics: Metrics,
    rate: Float[Array, ""],
) -> tuple[tuple[Network, PyTree], Metrics]:
    """One optimiser step, unless the loss or the gradient is not finite."""
    import optax

    network, optimiser = carry
    norm = optax.tree.norm(gradient)
    direction, stepped = _optimiser(ppo).update(gradient, optimiser)
    moved = eqx.apply_updates(network, jax.tree.map(lambda leaf: -rate * leaf, direction))
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(norm)
    carry = jax.tree.map(lambda new, old: jnp.where(finite, new, old), (moved, stepped), carry)
    return carry, metrics | {"gradient_norm": norm, "skipped": (~finite).astype(jnp.int32)}


def _optimiser(ppo: PPOConfig) -> "optax.GradientTransformation":
    import optax

    return optax.chain(optax.clip_by_global_norm(ppo.max_grad_norm), optax.scale_by_adam(eps=ppo.adam_eps))


def _learning_rate(ppo: PPOConfig, updates: Int[Array, ""]) -> Float[Array, ""]:
    if ppo.final_learning_rate_fraction == 1.0:
        return jnp.asarray(ppo.learning_rate)
    if ppo.decay_updates is None:
        raise ValueError("a decaying learning rate needs decay_updates, the length of the decay")
    progress = jnp.clip((updates - ppo.decay_from) / ppo.decay_updates, 0.0, 1.0)
    return ppo.learning_rate * (1.0 - (1.0 - ppo.final_learning_rate_fraction) * progress)

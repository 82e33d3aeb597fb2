"""Networks of one's own, made of ordinary parts of Equinox: they are learned, saved and gone on with."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cenie
from cenie.rundir.checkpoint import digest
from cenie.student.partition import partitioned, whole
from tests.tiny import SETTINGS

MAZE = {
    "env.size": 5,
    "env.max_steps": 8,
    "student.ppo.final_learning_rate_fraction": 1.0,
    "run.suite": "cenie8",
    "run.devices": 1,
}
CHANNELS, WIDTH = 3, 4


class Part(eqx.Module):
    """From the image [5, 5, 3] of a maze to some numbers."""

    layer: Any

    def __call__(self, image):
        return self.layer(image.reshape(-1))


class Convolved(Part):
    def __call__(self, image):
        return self.layer(jnp.moveaxis(image, -1, 0)).reshape(-1)


class Attentive(Part):
    def __call__(self, image):
        tokens = image.reshape(-1, CHANNELS)
        return self.layer(tokens, tokens, tokens).mean(axis=0)


def normalised(key):
    """Of several layers, with a function among them that no other network has."""
    first = eqx.nn.Linear(75, WIDTH, key=key)
    return eqx.nn.Sequential([first, eqx.nn.LayerNorm(WIDTH), eqx.nn.Lambda(lambda x: jnp.sin(x))])


PARTS = {
    "mlp": lambda key: Part(eqx.nn.MLP(75, WIDTH, 8, 2, key=key)),
    "attention": lambda key: Attentive(eqx.nn.MultiheadAttention(1, CHANNELS, key=key)),
    "layer-norm": lambda key: Part(normalised(key)),
    "convolution": lambda key: Convolved(eqx.nn.Conv2d(CHANNELS, 1, 4, key=key)),
    "gru": lambda key: eqx.nn.GRUCell(75, WIDTH, key=key),
}
SIZES = {"attention": CHANNELS}


class Heads(cenie.Network):
    """What all of these networks end in."""

    recurrent: ClassVar[bool] = False
    body: Any
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear
    scale: float = 1.0
    """A plain number is a constant."""

    def decide(self, features):
        each = jax.vmap(self.actor)(features), jax.vmap(self.critic)(features)
        return cenie.Decision(cenie.Categorical(each[0]), self.scale * each[1][:, 0], features)

    def initial_memory(self, count) -> Any:
        return ()

    def step(self, memory, observation, start):
        return (), self.decide(jax.vmap(self.body)(observation.image / 10.0))

    def sequence(self, memory, observation, start):
        raise NotImplementedError


class Remembering(Heads):
    recurrent: ClassVar[bool] = True

    def initial_memory(self, count) -> Any:
        return jnp.zeros((count, WIDTH))

    def step(self, memory, observation, start):
        memory = jnp.where(start[:, None], 0.0, memory)
        memory = jax.vmap(self.body)(observation.image.reshape(len(start), -1) / 10.0, memory)
        return memory, self.decide(memory)

    def sequence(self, memory, observation, start):
        steps = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (observation, start))
        _, decisions = jax.lax.scan(lambda memory, step: self.step(memory, *step), memory, steps)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), decisions)


def made_of(part):
    """What makes networks with such a part."""

    def make(observation_space, action_space, key):
        keys = jax.random.split(key, 3)
        size, kind = SIZES.get(part, WIDTH), Remembering if part == "gru" else Heads
        actor, critic = (eqx.nn.Linear(size, count, key=key) for count, key in zip((action_space.n, 1), keys))
        return kind(PARTS[part](keys[2]), actor, critic)

    return make


def config(**changes: object) -> cenie.Config:
    return cenie.preset("maze", "dr", overrides=SETTINGS | MAZE | changes)


# Memory and a part of several axes; a part with a function is the one that is saved below.
OFTEN = ("attention", "gru")


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=() if part in OFTEN else pytest.mark.slow) for part in PARTS]
)
def test_a_network_with_this_part_learns(part):
    _, setup = cenie.build(config(), cenie.Parts(network=made_of(part)))
    before = cenie.init(setup, seed=0)
    after, _, metrics, _ = cenie.cycles(setup, before, count=2, updates=2)
    assert np.isfinite(metrics["student/loss"]).all()
    assert (metrics["student/gradient_norm"] > 0).all()
    networks = [whole(state.student.network) for state in (before, after)]
    assert all(isinstance(network, Heads) and network.scale == 1.0 for network in networks)
    arrays = [jax.tree.leaves(eqx.filter(network, eqx.is_array)) for network in networks]
    assert all((old != new).any() for old, new in zip(*arrays, strict=True))


def test_such_a_network_is_saved_and_gone_on_with_to_the_bit(tmp_path):
    parts = cenie.Parts(network=made_of("layer-norm"))
    cenie.train(config(), tmp_path / "whole", parts, quiet=True)
    cenie.train(config(updates=2), tmp_path / "halved", parts, quiet=True)
    cenie.train(config(), tmp_path / "halved", parts, resume=True, quiet=True)
    runs = [cenie.load_run(tmp_path / name, parts) for name in ("whole", "halved")]
    assert digest(runs[0].state) == digest(runs[1].state)
    assert int(runs[1].state.counters.updates) == 6
    assert isinstance(runs[1].network, Heads)
    suite = runs[0].domain.suites["cenie8"]()
    rows = [
        cenie.evaluate(runs[0].domain, network, suite, episodes=1, seed=0)
        for network in (runs[0].network, runs[1].state.student.network)
    ]
    assert rows[0] == rows[1]


def with_scale(scale: Any) -> Heads:
    layer = eqx.nn.Linear(WIDTH, 1, key=jax.random.key(0))
    return Heads(layer, layer, layer, scale)


def test_a_network_of_arrays_stays_as_it_is():
    network = partitioned(with_scale(np.float32(2.0)))
    assert isinstance(network, Heads)
    assert isinstance(network.scale, jax.Array)


def test_a_part_that_cannot_be_compared_is_refused_by_name():
    with pytest.raises(ValueError, match=r"network: \.scale is of type set, which is no array"):
        partitioned(with_scale({1, 2}))

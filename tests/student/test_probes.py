"""A learner that cannot do these cannot do anything (reliability list N1 and B5)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray

from cenie.envs.base import Environment
from cenie.envs.reset import step_and_restart
from cenie.student.config import PPOConfig, StudentConfig
from cenie.student.encoders import Bits, Flat
from cenie.student.networks.base import Decision
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.recurrent import Gru, Lstm
from cenie.student.networks.table import make_network
from cenie.student.ppo import StudentState, init_student, learn
from cenie.student.rollout import collect
from tests.student.probes import FAULTS, TASKS, Faulty, Probe

SEEDS = 5
UPDATES = 150
PPO = PPOConfig(
    learning_rate=5e-3, final_learning_rate_fraction=0.1, decay_updates=UPDATES,
    gamma=0.5, epochs=4, minibatches=2, max_grad_norm=1.0,
)  # fmt: skip
MLP = StudentConfig(network=Mlp(hidden_sizes=(16,)), ppo=PPO, num_levels=16, num_steps=12)
LSTM = dataclasses.replace(
    MLP, network=Lstm(encoder=Bits(size=8, codes=(2, 8)), memory_size=16, head_size=16, forget_bias=1.0)
)
FLAT = {"encoder": Flat(size=16), "memory_size": 16, "head_size": 16}
GRU = dataclasses.replace(MLP, network=Gru(**FLAT))
FLAT_LSTM = dataclasses.replace(MLP, network=Lstm(**FLAT, forget_bias=1.0))
STUDENTS = {
    "mlp": (MLP, Probe()),
    "lstm": (LSTM, Probe(as_view=True)),
    "gaussian": (MLP, Probe(continuous=True)),
}
# What "match" and "recall" ask for includes the others, and this one takes long.
EVERY_STUDENT = [pytest.param(kind, marks=pytest.mark.slow if kind == "lstm" else ()) for kind in STUDENTS]
# Flat features and memory: all five abilities at once are what "recall" asks for.
ANY_OBSERVATION = {
    "gru": (GRU, Probe()),
    "gru on parts": (GRU, Probe(as_view=True)),
    "gru gaussian": (GRU, Probe(continuous=True)),
    "lstm gaussian": (FLAT_LSTM, Probe(continuous=True)),
}


@eqx.filter_jit
def train(
    config: StudentConfig, environment: Environment, level: Array, keys: PRNGKeyArray, updates: int
) -> tuple[StudentState, dict[str, Array]]:
    """One student per key, trained on `level` in all columns."""

    def one(key: PRNGKeyArray) -> tuple[StudentState, dict[str, Array]]:
        network_key, key = jax.random.split(key)
        network = make_network(
            config.network, environment.observation_space, environment.action_space, network_key
        )
        levels = jnp.broadcast_to(level, config.num_levels)

        def update(state: StudentState, key: PRNGKeyArray) -> tuple[StudentState, dict[str, Array]]:
            play_key, learn_key = jax.random.split(key)
            rollout = collect(
                environment,
                state.network,
                levels,
                key=play_key,
                num_steps=config.num_steps,
                advance=step_and_restart,
            )
            return learn(config, state, rollout, learn_key)

        return jax.lax.scan(update, init_student(config, network), jax.random.split(key, updates))

    return jax.vmap(one)(keys)


def trained(kind: str, task: str) -> tuple[Decision, Decision]:
    """What students of all seeds think at the steps of an episode showing -1 or 1: leading [seed, 1, t]."""
    config, environment = (STUDENTS | ANY_OBSERVATION)[kind]
    level = jnp.array(TASKS.index(task))
    state, _ = train(config, environment, level, jax.random.split(jax.random.key(0), SEEDS), UPDATES)

    def decide(sign: float) -> Decision:
        seen = [environment.observe(level, jnp.array(t), jnp.array(sign), jnp.zeros(())) for t in range(3)]
        observation = jax.tree.map(lambda *steps: jnp.stack(steps)[None], *seen)
        start = jnp.array([[True, False, False]])
        return eqx.filter_vmap(lambda net: net.sequence(net.initial_memory(1), observation, start))(
            state.network
        )

    return decide(-1.0), decide(1.0)


def right(kind: str, decision: Decision, sign: float) -> np.ndarray:
    """How far each decision leans to the right action: its probability, or the sign of its mean."""
    if "gaussian" in kind:
        return np.asarray(decision.policy.mean[..., 0] * sign > 0.5, np.float32)
    p = np.asarray(jax.nn.softmax(decision.policy.logits))  # pyright: ignore
    return p[..., 1 if sign > 0 else 0]


@pytest.mark.parametrize("kind", EVERY_STUDENT)
def test_value_of_a_constant_reward(kind: str) -> None:
    for decision in trained(kind, "constant"):
        np.testing.assert_allclose(decision.value[:, 0, 0], 1.0, atol=0.1)


@pytest.mark.parametrize("kind", EVERY_STUDENT)
def test_value_is_read_from_the_observation(kind: str) -> None:
    for decision, sign in zip(trained(kind, "observe"), (-1.0, 1.0)):
        np.testing.assert_allclose(decision.value[:, 0, 0], sign, atol=0.1)


@pytest.mark.parametrize("kind", EVERY_STUDENT)
def test_value_of_a_delayed_reward_is_discounted(kind: str) -> None:
    for decision in trained(kind, "delay"):
        np.testing.assert_allclose(decision.value[:, 0, 0], PPO.gamma, atol=0.1)
        np.testing.assert_allclose(decision.value[:, 0, 1], 1.0, atol=0.1)


@pytest.mark.parametrize("kind", EVERY_STUDENT)
def test_the_paying_action_is_found(kind: str) -> None:
    for decision in trained(kind, "act"):
        assert (right(kind, decision, 1.0)[:, 0, 0] > 0.9).all()


@pytest.mark.parametrize("kind", STUDENTS)
def test_the_action_follows_the_observation_and_credit_reaches_back(kind: str) -> None:
    for decision, sign in zip(trained(kind, "match"), (-1.0, 1.0)):
        assert (right(kind, decision, sign)[:, 0, 0] > 0.9).all()


@pytest.mark.parametrize(
    "kind",
    [
        "lstm",
        "gru on parts",
        pytest.param("lstm gaussian", marks=pytest.mark.slow),
        pytest.param("gru", marks=pytest.mark.slow),
        pytest.param("gru gaussian", marks=pytest.mark.slow),
    ],
)
def test_a_student_with_memory_acts_on_what_it_no_longer_sees(kind: str) -> None:
    for decision, sign in zip(trained(kind, "recall"), (-1.0, 1.0)):
        assert (right(kind, decision, sign)[:, 0, 2] > 0.9).all()


def test_a_student_without_memory_cannot() -> None:
    for decision, sign in zip(trained("mlp", "recall"), (-1.0, 1.0)):
        assert (right("mlp", decision, sign)[:, 0, 2] < 0.9).any()


@pytest.mark.parametrize("value_clip", [True, False])
@pytest.mark.parametrize("fault", range(len(FAULTS)), ids=FAULTS)
def test_no_environment_can_poison_the_student(fault: int, value_clip: bool) -> None:
    ppo = dataclasses.replace(
        PPO, epochs=1, minibatches=1, value_clip=value_clip, normalise_returns=not value_clip
    )
    config = dataclasses.replace(MLP, ppo=ppo, num_levels=2, num_steps=8)
    keys = jax.random.key(0)[None]
    state, metrics = train(config, Faulty(), jnp.array(fault), keys, 1000)
    for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)):
        assert np.isfinite(leaf).all()
    masked, skipped = int(metrics["masked"].sum()), int(state.skipped[0])
    assert (masked > 0) == (FAULTS[fault] in ("nan reward", "inf reward", "nan observation"))
    # A squared error of 1e30 is infinite; scaled rewards and a Huber loss stay finite.
    assert (skipped > 0) == (FAULTS[fault] == "huge reward" and value_clip)

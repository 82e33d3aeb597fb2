"""A domain of one's own: a cart that is pushed over hills. Trained from Python and from the command line.

    python examples/hills.py runs/hills
    cd examples && cenie train hills:domain plr-cenie --out ../runs/hills

A level is the heights of a few posts between which the ground is smooth. The cart feels the slope under it
and ahead of it, and pushes with a continuous force. How far it got is the score of an episode. What a domain
may offer beside the four parts that it needs is here too: edits, statistics, levels as points of a box, and a
design environment, in which a teacher sets up the posts one by one.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

import cenie
from cenie.settings import setting

SLOPES = 64
"""Places at which the slope of a prepared level is known."""


@dataclass(frozen=True)
class HillsConfig:
    """The settings of the domain: fields with defaults, and bounds where they have some."""

    posts: int = setting(6, minimum=2, maximum=64)
    max_steps: int = setting(60, minimum=1, maximum=10_000)
    highest: float = setting(0.5, above=0.0)
    """Height of the highest post; the way is 1 long."""


class Hills(eqx.Module):
    """A level: all that a teacher stores, edits and compares."""

    heights: Float[Array, "*n posts"]


class Ground(eqx.Module):
    """A prepared level: the slope at many places, computed once for a whole rollout."""

    slopes: Float[Array, "*n places"]


class CartState(eqx.Module):
    """Where the cart is between 0 and 1, how fast it goes, and for how many steps it has been going."""

    place: Float[Array, "*n"]
    speed: Float[Array, "*n"]
    time: Int[Array, "*n"]


class Cart(cenie.Environment):
    """Push the cart to the end of the way; the reward of a step is the way it made."""

    max_steps: int = eqx.field(static=True)
    observation_space: cenie.Box = eqx.field(static=True, default=cenie.Box((4,), -5.0, 5.0))
    action_space: cenie.Box = eqx.field(static=True, default=cenie.Box((1,), -1.0, 1.0))

    def prepare(self, level: Hills) -> Ground:
        posts = jnp.linspace(0.0, 1.0, level.heights.shape[0])
        ground = jnp.interp(jnp.linspace(0.0, 1.0, SLOPES + 1), posts, level.heights)
        slopes = jnp.diff(ground) * SLOPES
        return Ground(jnp.convolve(slopes, jnp.full(5, 0.2), mode="same"))

    def reset(self, key: PRNGKeyArray, level: Ground) -> tuple[Array, CartState]:
        state = CartState(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32))
        return self._observe(level, state), state

    def step(self, key: PRNGKeyArray, level: Ground, state: CartState, action: Array) -> cenie.Step:
        force = jnp.clip(action[0], -1.0, 1.0)
        speed = 0.95 * state.speed + 0.01 * force - 0.005 * self._slope(level, state.place)
        place = jnp.clip(state.place + speed, 0.0, 1.0)
        after = CartState(place, place - state.place, state.time + 1)
        arrived = place >= 1.0
        return cenie.Step(
            observation=self._observe(level, after),
            state=after,
            reward=place - state.place,
            terminated=arrived,
            truncated=~arrived & (after.time >= self.max_steps),
            solved=arrived,
        )

    def _slope(self, level: Ground, place: Float[Array, ""]) -> Float[Array, ""]:
        index = jnp.clip((place * SLOPES).astype(jnp.int32), 0, SLOPES - 1)
        return jnp.clip(level.slopes[index], -5.0, 5.0)

    def _observe(self, level: Ground, state: CartState) -> Float[Array, "4"]:
        ahead = self._slope(level, state.place + 0.1)
        return jnp.stack([state.place, 20 * state.speed, self._slope(level, state.place), ahead])


class Building(eqx.Module):
    """A design so far: the posts that stand, and how many they are."""

    heights: Float[Array, "*n posts"]
    built: Int[Array, "*n"]


class Plan(NamedTuple):
    """What is seen of a design. (A dict of spaces could not be a part of a compiled program.)"""

    heights: Any
    built: Any


class Builder(cenie.Environment):
    """The design environment: one post per step, of the height that the action says."""

    highest: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_space: Plan = eqx.field(static=True)
    action_space: cenie.Box = eqx.field(static=True, default=cenie.Box((1,), -1.0, 1.0))

    def __init__(self, config: HillsConfig):
        self.highest, self.max_steps = config.highest, config.posts
        heights = cenie.Box((config.posts,), 0.0, config.highest)
        self.observation_space = Plan(heights, cenie.Discrete(config.posts + 1))
        self.action_space = cenie.Box((1,), -1.0, 1.0)

    def reset(self, key: PRNGKeyArray, level: Array) -> tuple[Plan, Building]:
        state = Building(jnp.zeros(self.max_steps), jnp.zeros((), jnp.int32))
        return Plan(state.heights, state.built), state

    def step(self, key: PRNGKeyArray, level: Array, state: Building, action: Array) -> cenie.Step:
        height = self.highest * (jnp.clip(action[0], -1.0, 1.0) + 1.0) / 2.0
        after = Building(state.heights.at[state.built].set(height), state.built + 1)
        seen, no = Plan(after.heights, after.built), jnp.zeros((), bool)
        return cenie.Step(seen, after, jnp.zeros(()), after.built >= self.max_steps, no, no)


def suite(config: HillsConfig) -> cenie.Suite:
    """Held-out levels. With `bounds` the score of an episode is its return: here, how far the cart got."""
    x = np.linspace(0.0, 1.0, config.posts)

    def entry(name: str, heights: Callable[[np.random.Generator], np.ndarray]) -> cenie.SuiteEntry:
        def draw(rng: np.random.Generator) -> Hills:
            return Hills(np.float32(config.highest * heights(rng)))

        return cenie.SuiteEntry(name, "", draw, bounds=(0.0, 1.0))

    entries = [
        entry("flat", lambda rng: 0 * x),
        entry("climb", lambda rng: x),
        entry("valley", lambda rng: 1 - np.sin(np.pi * x)),
        entry("waves", lambda rng: (1 - np.cos(12 * x)) / 2),
        entry("random", lambda rng: rng.random(config.posts)),
    ]
    return cenie.Suite("hills", entries)


def domain(config: HillsConfig) -> cenie.Domain:
    """The domain with the given settings: what `cenie train hills:domain` finds."""

    def generate(key: PRNGKeyArray) -> Hills:
        return Hills(jax.random.uniform(key, (config.posts,), maxval=config.highest))

    def flat(key: PRNGKeyArray) -> Hills:
        return Hills(jnp.zeros(config.posts))

    def edit(key: PRNGKeyArray, level: Hills) -> Hills:
        """Another height for one post."""
        which, height = jax.random.split(key)
        post = jax.random.randint(which, (), 0, config.posts)
        return Hills(level.heights.at[post].set(jax.random.uniform(height, maxval=config.highest)))

    return cenie.Domain(
        name="hills",
        summary="a cart that is pushed over hills (an example)",
        environment=Cart(config.max_steps),
        generators={"random": generate, "flat": flat},
        roles={"simple": "flat"},
        suites={"hills": lambda: suite(config)},
        edit=edit,
        statistics=lambda level: {"climb": jnp.sum(jnp.maximum(jnp.diff(level.heights), 0.0))},
        design=lambda generator: cenie.Design(
            Builder(config), jnp.zeros(()), lambda state: Hills(state.heights)
        ),
        parameters=cenie.ParameterSpace(
            low=np.zeros(config.posts),
            high=np.full(config.posts, config.highest),
            encode=lambda level: level.heights,
            decode=Hills,
        ),
        presets={"quick": QUICK},
    )


QUICK = {
    "updates": 60,
    "student.num_levels": 16,
    "student.num_steps": 128,
    "student.network.kind": "mlp",
    "student.network.hidden_sizes": (32, 32),
    "student.ppo.learning_rate": 1e-3,
    "student.ppo.epochs": 4,
    "student.ppo.minibatches": 4,
    "student.ppo.normalise_returns": True,
    "teacher.replay.capacity": 128,
    "teacher.replay.priority.temperature": 1.0,
    "run.evaluate_every": 20,
    "run.checkpoint_every": 20,
    "run.episodes": 2,
}


def main(out: str, overrides: dict[str, object] | None = None) -> tuple[float, float]:
    """Train `plr-cenie`; the scores of the held-out levels before and after."""
    config = cenie.preset("hills:domain", "plr-cenie", overrides=overrides)
    run = cenie.train(config, out)
    played = run.evaluations
    first, last = (cenie.suite_mean(each.level_means()) for each in (played.after(0), played.last()))
    print(f"how far the cart got: {first:.2f} untrained, {last:.2f} trained; {len(run.buffer)} levels stored")
    return first, last


def check() -> list[str]:
    """What is wrong with the environments; both lists should be empty."""
    made = domain(HillsConfig())
    levels = [made.generators["random"](jax.random.key(seed)) for seed in range(2)]
    key, design = jax.random.key(2), made.design("random")
    problems = cenie.check_environment(made.environment, levels[0], key, other_level=levels[1])
    return problems + cenie.check_environment(design.environment, design.task, key)


if __name__ == "__main__":
    main(*sys.argv[1:])

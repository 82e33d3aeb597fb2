"""`check_environment`: what an environment from elsewhere does wrong, in words.

The checks go from the outside in. Spaces and shapes come first and end the check if they are wrong, as
nothing could be played then; then purity, by tracing; then what happens in played episodes.
"""

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from cenie.envs.base import Environment
from cenie.records import EnvState, Level, Step
from cenie.spaces import Box, Discrete, Space

EPISODES = 8
LONGEST_CHECK = 5000
"""Steps after which the check of an episode gives up waiting for its end."""


_SCALARS = {"reward": "float32", "terminated": "bool", "truncated": "bool", "solved": "bool"}
"""The parts of a step beside observation and state."""


class _Play(eqx.Module):
    """A record of `n` episodes of up to `t` steps; entries after the end of an episode are False or 0.

    `outside` and `infinite` tell for each leaf of the observation whether a value left its space or was
    not finite. `fingerprint` sums up observation, state, reward and flags, to compare whole episodes.
    """

    running: Bool[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    solved: Bool[Array, "*batch"]
    bad_reward: Bool[Array, "*batch"]
    outside: Bool[Array, "*batch leaves"]
    infinite: Bool[Array, "*batch leaves"]
    fingerprint: Float[Array, "*batch parts"]


def check_environment(
    environment: Environment, level: Level, key: PRNGKeyArray, *, other_level: Level | None = None
) -> list[str]:
    """Look for the problems of an environment on a training level.

    Args:
        environment: The environment.
        level: A level that students may train on.
        key: Draws the actions, and whatever the environment draws; consumed.
        other_level: A different level. With it, environments that ignore the level are found too.

    Returns:
        A sentence for each problem, with advice; an empty list if none was found.
    """
    problems = list(_declared(environment, level, other_level))
    problems = problems or list(_fixed(environment))
    problems = problems or list(_shapes(environment, level, key))
    problems = problems or list(_purity(environment, level, key))
    if problems:
        return problems
    play = _play(environment, level, key)
    problems = list(_episodes(environment, play))
    if not _same(play, _play(environment, level, key)):
        problems.append(
            "two runs with the same key differ: draw all randomness from the key, and call no host function"
        )
    elif other_level is not None and _same(play, _play(environment, other_level, key)):
        problems.append(
            "the level is ignored: two different levels played exactly alike; read the level passed in"
        )
    return problems


def _declared(environment: Environment, level: Level, other_level: Level | None) -> Iterator[str]:
    spaces = {"action_space": environment.action_space}
    spaces |= {f"observation_space{name}": space for name, space in _named(environment.observation_space)}
    for name, space in spaces.items():
        if not isinstance(space, Discrete | Box):
            yield f"{name} is {type(space).__name__}: it must be made of Discrete and Box"
        elif isinstance(space, Discrete) and space.n < 1:
            yield f"{name} has no values: n is {space.n} and must be at least 1"
        elif isinstance(space, Box) and not space.low <= space.high:
            yield f"{name} has no values: low is {space.low}, high is {space.high}"
    if not isinstance(environment.max_steps, int) or environment.max_steps < 1:
        yield f"max_steps must be a whole number of at least 1, got {environment.max_steps}"
    if not jax.tree.leaves(level):
        yield "the level has no arrays, so that there is no level axis to play a batch along; add one"
    not_arrays = [*_not_arrays("the level", level), *_not_arrays("the second level", other_level)]
    yield from not_arrays
    if other_level is not None and jax.tree.leaves(level) and not not_arrays:
        yield from _compare("the second level", other_level, level)


def _fixed(environment: Environment) -> Iterator[str]:
    try:
        hash(environment)
    except TypeError as error:
        yield f"it cannot be a part of a program ({error}): use tuples, not dicts or lists, in its fields"


def _shapes(environment: Environment, level: Level, key: PRNGKeyArray) -> Iterator[str]:
    """Whether the environment can be traced and batched, and returns the same types all along."""
    state: Any = None
    try:
        prepared = jax.eval_shape(_fresh(environment.prepare), level)
        if not jax.tree.leaves(prepared):
            yield "prepare returns no arrays: return what reset and step need of the level"
            return
        shapes, raw = _traced(environment.reset, key, prepared)
        if not isinstance(raw, tuple | list) or len(raw) != 2:
            yield f"reset must return an observation and a state, got {type(raw).__name__}; return a pair"
            return
        observation, state = shapes
        action = jax.eval_shape(lambda key: _sample(environment.action_space, key), key)
        step, raw_step = _traced(environment.step, key, prepared, state, action)
        if not isinstance(step, Step):
            yield f"step must return a cenie.records.Step, got {type(step).__name__}; fill in its fields"
            return
        single = (jax.eval_shape(lambda level: level, level), key, prepared, state, action)
        levels, *batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), single)
        jax.eval_shape(jax.vmap(_fresh(environment.prepare)), levels)
        jax.eval_shape(jax.vmap(_fresh(environment.step)), *batch)
        jax.eval_shape(jax.vmap(_fresh(environment.reset)), *batch[:2])
    except Exception as error:  # Whatever a foreign environment raises is the finding.
        first = str(error).strip().splitlines()[:1]
        yield (
            f"it cannot be compiled and batched ({type(error).__name__}: {''.join(first)}); use jax.numpy, "
            "no Python conditions on arrays, no shapes that depend on values"
        )
        for name in _empty_parts(state):
            yield f"the state after reset{name} is None; give it the array that step will put there"
        return
    not_arrays = [
        *_not_arrays("the observation after reset", raw[0]),
        *_not_arrays("the state after reset", raw[1]),
        *_not_arrays("the observation after step", raw_step.observation),
        *_not_arrays("the state after step", raw_step.state),
        *(
            problem
            for name in _SCALARS
            for problem in _not_arrays(name, getattr(raw_step, name), _SCALARS[name])
        ),
    ]
    if not_arrays:
        yield from not_arrays
        return
    yield from _compare("the observation after reset", observation, environment.observation_space)
    yield from _compare("the observation after step", step.observation, environment.observation_space)
    yield from _compare("the state after step", step.state, state)
    for name, dtype in _SCALARS.items():
        yield from _compare(name, getattr(step, name), jax.ShapeDtypeStruct((), np.dtype(dtype)))


def _traced(method: Callable[..., Any], *arguments: Any) -> tuple[Any, Any]:
    """The shapes of what a method returns, and what it returned to the tracer: Python numbers still show."""
    returned = []

    def keep(*arguments: Any) -> Any:
        returned.append(method(*arguments))
        return returned[-1]

    return jax.eval_shape(keep, *arguments), returned[-1]


def _not_arrays(what: str, tree: PyTree, dtype: str | None = None) -> Iterator[str]:
    """Leaves without a shape and a dtype of their own: nothing can be stacked, indexed or compared there."""
    for name, leaf in _named(tree):
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            continue
        if isinstance(leaf, bool | int | float):
            usual = "bool" if isinstance(leaf, bool) else "int32" if isinstance(leaf, int) else "float32"
            advice = f"make it an array, e.g. jnp.asarray({leaf!r}, '{dtype or usual}')"
            yield f"{what}{name} is the Python number {leaf!r}; {advice}"
        else:
            yield f"{what}{name} is a {type(leaf).__name__}; it must be made of arrays"


def _empty_parts(tree: PyTree) -> list[str]:
    """Where the tree is None, which JAX does not count as a leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is None)[0]
    return [jax.tree_util.keystr(path) for path, leaf in leaves if leaf is None and path]


def _compare(what: str, found: PyTree, wanted: PyTree) -> Iterator[str]:
    """Differences of structure, shape and dtype; `wanted` may be made of spaces."""
    found_leaves, wanted_leaves = _named(found), _named(wanted)
    if [name for name, _ in found_leaves] != [name for name, _ in wanted_leaves]:
        yield f"{what} has the parts {_names(found_leaves)}, expected {_names(wanted_leaves)}; return these"
        return
    for (name, leaf), (_, want) in zip(found_leaves, wanted_leaves):
        if tuple(leaf.shape) != tuple(want.shape):
            yield f"{what}{name} has the shape {tuple(leaf.shape)}, expected {tuple(want.shape)}; reshape it"
        if str(leaf.dtype) != str(want.dtype):
            yield f"{what}{name} has the dtype {leaf.dtype}, expected {want.dtype}; convert it with astype"


def _purity(environment: Environment, level: Level, key: PRNGKeyArray) -> Iterator[str]:
    """Side effects, hidden Python state and random keys that are used twice, all seen by tracing."""
    prepared = jax.jit(environment.prepare)(level)
    _, state = jax.jit(environment.reset)(key, prepared)
    action = _sample(environment.action_space, key)
    for name, method, arguments in (
        ("prepare", environment.prepare, (level,)),
        ("reset", environment.reset, (key, prepared)),
        ("step", environment.step, (key, prepared, state, action)),
    ):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            first = jax.make_jaxpr(_fresh(method))(*arguments)
            second = jax.make_jaxpr(_fresh(method))(*arguments)
        if printed.getvalue() or first.effects:
            yield f"{name} has side effects (prints or callbacks); make it a pure function"
        if _text(first) != _text(second) or not _equal(first.consts, second.consts):
            yield f"{name} depends on hidden Python state: traced twice, it is two different programs"
        try:
            with jax.debug_key_reuse(True):
                unused = [jax.random.clone(value) if value is key else value for value in arguments]
                jax.jit(_fresh(method))(*unused)
        except jax.errors.KeyReuseError:
            yield f"{name} uses a random key twice; split it and use each part once"


def _episodes(environment: Environment, play: _Play) -> Iterator[str]:
    """Yield the faults found in played episodes."""
    names = [f"observation{name}" for name, _ in _named(environment.observation_space)]
    for number, name in enumerate(names):
        if np.any(play.infinite[:, :, number]):
            yield f"{name} has values that are not finite; guard divisions, roots and logarithms"
        elif np.any(play.outside[:, :, number]):
            yield f"{name} leaves its declared space; widen the space or clip the value"
    if np.any(play.bad_reward):
        yield "the reward is not finite; guard divisions, roots and logarithms"
    if np.any(play.terminated & play.truncated):
        yield "terminated and truncated are both set; a step that reaches its end has not run out of time"
    ended = play.terminated | play.truncated
    if np.any(play.solved & ~ended):
        yield "solved is set in the middle of an episode; set it only where the episode ends"
    if environment.max_steps > 1 and np.all(ended[:, 0]):
        yield "every episode ends at its first step; the flags may be set at reset already"
    if environment.max_steps < LONGEST_CHECK and np.any(play.running[:, environment.max_steps]):
        yield f"an episode goes on after max_steps = {environment.max_steps}; truncate it, or raise max_steps"


@eqx.filter_jit
def _play(environment: Environment, level: Level, key: PRNGKeyArray) -> _Play:
    """Random actions in several episodes without restarts, one step more than they may last."""
    steps = min(environment.max_steps + 1, LONGEST_CHECK)
    prepared = environment.prepare(level)

    def episode(key: PRNGKeyArray) -> _Play:
        reset_key, key = jax.random.split(key)
        observation, state = environment.reset(reset_key, prepared)

        def step(carry: tuple[EnvState, Array], key: PRNGKeyArray) -> tuple[tuple[EnvState, Array], _Play]:
            state, running = carry
            action_key, step_key = jax.random.split(key)
            action = _sample(environment.action_space, action_key)
            result = environment.step(step_key, prepared, state, action)
            row = _look(environment, result, running)
            return (result.state, running & ~result.terminated & ~result.truncated), row

        first = Step(observation, state, jnp.float32(0.0), *(jnp.zeros((), bool),) * 3)
        at_reset = _look(environment, first, jnp.ones((), bool))
        _, rows = jax.lax.scan(step, (state, jnp.ones((), bool)), jax.random.split(key, steps))
        # The flags of the first observation are not known; its values count with the first step.
        joined = jax.tree.map(lambda a, b: b.at[0].set(a | b[0]) if b.dtype == bool else b, at_reset, rows)
        return eqx.tree_at(lambda play: play.running, joined, rows.running)

    return jax.vmap(episode)(jax.random.split(key, EPISODES))


def _look(environment: Environment, step: Step, running: Bool[Array, ""]) -> _Play:
    """The row of a `_Play` for one step."""
    spaces = [space for _, space in _named(environment.observation_space)]
    # Arrays of NumPy are fine in an environment.
    step = jax.tree.map(jnp.asarray, step)
    leaves = [leaf for _, leaf in _named(step.observation)]
    parts = [*jax.tree.leaves((step.observation, step.state)), step.reward, step.terminated, step.truncated]
    row = {
        "running": jnp.ones((), bool),
        "terminated": step.terminated,
        "truncated": step.truncated,
        "solved": step.solved,
        "bad_reward": ~jnp.isfinite(step.reward),
        "outside": jnp.stack([~_inside(space, leaf) for space, leaf in zip(spaces, leaves)]),
        "infinite": jnp.stack([~jnp.all(jnp.isfinite(leaf)) for leaf in leaves]),
        "fingerprint": jnp.stack([_fingerprint(part) for part in parts]),
    }
    masked = {name: jnp.where(running, value, jnp.zeros_like(value)) for name, value in row.items()}
    return _Play(**masked)


def _fingerprint(part: Array) -> Float[Array, ""]:
    """A number that is likely to change with any entry of an array."""
    if jnp.issubdtype(part.dtype, jax.dtypes.prng_key):
        part = jax.random.key_data(part)
    flat = part.reshape(-1).astype(jnp.float32)
    return jnp.sum(flat * jnp.cos(jnp.arange(flat.shape[0])))


def _inside(space: Space, value: Array) -> Bool[Array, ""]:
    low, high = (0, space.n - 1) if isinstance(space, Discrete) else (space.low, space.high)
    return jnp.all((value >= low) & (value <= high))


def _sample(space: Space, key: PRNGKeyArray) -> Array:
    if isinstance(space, Discrete):
        return jax.random.randint(key, space.shape, 0, space.n).astype(space.dtype)
    low, high = max(space.low, -1e6), min(space.high, 1e6)
    return jax.random.uniform(key, space.shape, minval=low, maxval=high).astype(space.dtype)


def _same(first: _Play, second: _Play) -> bool:
    return bool(np.array_equal(first.fingerprint, second.fingerprint, equal_nan=True))


def _equal(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second))


def _text(jaxpr: Any) -> str:
    return re.sub(r"0x[0-9a-f]+", "", str(jaxpr))


def _fresh(method: Callable[..., Any]) -> Callable[..., Any]:
    """A new function, so that JAX traces it again instead of remembering the last time."""
    return lambda *arguments: method(*arguments)


def _named(tree: PyTree) -> list[tuple[str, Any]]:
    """Leaves with the names of their places; spaces count as leaves."""
    return [
        (jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _names(leaves: list[tuple[str, Any]]) -> str:
    return ", ".join(name or "(one array)" for name, _ in leaves) or "(none)"

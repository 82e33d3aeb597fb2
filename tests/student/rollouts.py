"""Rollouts made by hand, for tests of what is computed from them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from cenie.records import Rollout


def random_rollout(seed: int, n: int, t: int, actions: int = 3, **fields: Any) -> Rollout:
    """Random numbers everywhere, episodes of random lengths, time-outs and real ends mixed."""
    rng = np.random.default_rng(seed)
    done = rng.random((n, t)) < 0.3
    truncated = done & (rng.random((n, t)) < 0.5)
    start = np.concatenate([np.ones((n, 1), bool), done[:, :-1]], axis=1)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    values: dict[str, Any] = {
        "observation": normal(n, t, 2),
        "action": jnp.asarray(rng.integers(0, actions, (n, t)), jnp.int32),
        "log_prob": jnp.log(jnp.asarray(rng.uniform(0.2, 0.6, (n, t)), jnp.float32)),
        "value": normal(n, t),
        "reward": normal(n, t),
        "terminated": jnp.asarray(done & ~truncated),
        "truncated": jnp.asarray(truncated),
        "solved": jnp.asarray(done & ~truncated),
        "start": jnp.asarray(start),
        "memory": (),
        "last_value": normal(n),
        "final_value": normal(n, t),
    }
    return Rollout(**{**values, **fields})

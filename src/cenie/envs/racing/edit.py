"""The editor: some control points move a little. The paper has none in this domain; so ACCEL works here."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from cenie.envs.racing.config import POINTS
from cenie.envs.racing.level import PLAYFIELD, RacingLevel


def edit(key: PRNGKeyArray, level: RacingLevel, *, num_edits: int, distance: float) -> RacingLevel:
    """Move `num_edits` points by up to `distance` in both directions, within the square. Consumes the key."""
    # One draw for all: each random function called adds about a second of compile time.
    chances = jax.random.uniform(key, (POINTS, 3))
    rank = jnp.argsort(jnp.argsort(chances[:, 0]))
    way = (2.0 * chances[:, 1:] - 1.0) * distance
    moved = jnp.clip(jnp.asarray(level.points) + way, 0.0, jnp.float32(PLAYFIELD))
    return RacingLevel(jnp.where((rank < num_edits)[:, None], moved, level.points))

"""A track: the tiles of its road and the kerbs beside them, as they are driven on and drawn."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from cenie.envs.racing.curve import sample_curve
from cenie.envs.racing.level import PLAYFIELD, RacingLevel
from cenie.records import AnyArray

HALF_WIDTH = 40 / 6
"""From the centre of the road to its edge."""
KERB_WIDTH = 8 / 6
KERB_RUN = 4
"""Nodes in a row at which the road must turn the same way, and strongly, for a kerb."""
NOWHERE = 1e6
"""Where the corners of tiles and kerbs lie that do not exist."""


class Circuit(eqx.Module):
    """A closed centre line as it is driven: a held-out level.

    `nodes` are centred, `normal` is the angle of the road's cross-section at each node, in which the car
    starts at node 0, and only the first `count` of them exist. Where `normal` changes by more than `sharp`
    there may be a kerb. `playfield` is half the side of the field, and `time_limit` counts physics steps.
    """

    nodes: Float[AnyArray, "*n 2 t"]
    normal: Float[AnyArray, "*n t"]
    count: Int[AnyArray, "*n"]
    sharp: Float[AnyArray, "*n"]
    playfield: Float[AnyArray, "*n"]
    time_limit: Int[AnyArray, "*n"]


class Track(eqx.Module):
    """The tiles of a road, in the order in which they are drawn; tile i joins node i - 1 to node i.

    Corners are in the order of a quadrilateral: left and right of node i, right and left of the node before
    it, where left is against `normal`. The tile before the first is the last one that exists. Arrays have the
    tiles last. A kerb is drawn directly after its tile, white for even i and red for odd ones.
    """

    nodes: Float[Array, "*n 2 t"]
    normal: Float[Array, "*n t"]
    exists: Bool[Array, "*n t"]
    count: Int[Array, "*n"]
    road: Float[Array, "*n 2 4 t"]
    """x and y of the four corners of each tile."""
    kerb: Float[Array, "*n 2 4 t"]
    kerbed: Bool[Array, "*n t"]
    """Whether a tile has a kerb; where not, its corners lie far away."""
    playfield: Float[Array, "*n"]
    """The field is a square of twice this side around the origin."""


def track_of_level(level: RacingLevel, samples: int) -> Track:
    """The track through the control points, centred in its field."""
    nodes, direction, count = sample_curve(jnp.asarray(level.points), samples)
    exists = jnp.arange(nodes.shape[1]) < count
    lowest = jnp.min(jnp.where(exists, nodes, jnp.inf), axis=1, keepdims=True)
    highest = jnp.max(jnp.where(exists, nodes, -jnp.inf), axis=1, keepdims=True)
    normal = direction + math.pi / 2
    # As they are: where a direction jumps by a turn, the mean is larger.
    turns = jnp.abs(jnp.diff(normal)) * exists[1:]
    sharp = jnp.sum(turns) / (count - 1)
    return _track(nodes - (lowest + highest) / 2, normal, count, sharp, jnp.float32(PLAYFIELD))


def track_of_circuit(circuit: Circuit) -> Track:
    """The track along a centre line."""
    nodes, normal = jnp.asarray(circuit.nodes), jnp.asarray(circuit.normal)
    sharp, playfield = jnp.asarray(circuit.sharp), jnp.asarray(circuit.playfield)
    return _track(nodes, normal, jnp.asarray(circuit.count), sharp, playfield)


def _track(
    nodes: Float[Array, "2 t"],
    normal: Float[Array, " t"],
    count: Int[Array, ""],
    sharp: Float[Array, ""],
    playfield: Float[Array, ""],
) -> Track:
    index = jnp.arange(len(normal))
    exists = index < count
    before = _before(index, 1, count)
    unit = jnp.stack([jnp.cos(normal), jnp.sin(normal)])
    turn = normal - normal[before]
    kerbed = _kerbed(turn, sharp, count) & exists
    side = -jnp.sign(turn)

    def quad(inner: Array | float, outer: Array | float) -> Float[Array, "2 4 t"]:
        old, old_unit = nodes[:, before], unit[:, before]
        corners = (
            nodes + inner * unit,
            nodes + outer * unit,
            old + outer * old_unit,
            old + inner * old_unit,
        )
        return jnp.stack(corners, axis=1)

    road = quad(-HALF_WIDTH, HALF_WIDTH)
    kerb = quad(side * HALF_WIDTH, side * (HALF_WIDTH + KERB_WIDTH))
    return Track(
        nodes=nodes,
        normal=normal,
        exists=exists,
        count=count,
        road=jnp.where(exists, road, NOWHERE),
        kerb=jnp.where(kerbed, kerb, NOWHERE),
        kerbed=kerbed,
        playfield=playfield,
    )


def _kerbed(turn: Float[Array, " t"], sharp: Float[Array, ""], count: Int[Array, ""]) -> Bool[Array, " t"]:
    """Which tiles have a kerb: those where the last turns were all sharp and the same way, and those before.

    The marks are made from the first node on, and are seen where they fall ahead: behind the seam they
    spread twice.
    """
    index = jnp.arange(len(turn))
    last = [turn[_before(index, k, count)] for k in range(KERB_RUN)]
    strong = jnp.all(jnp.abs(jnp.stack(last)) > sharp, axis=0)
    hard = strong & (jnp.abs(sum(map(jnp.sign, last))) == KERB_RUN)
    hard &= index < count
    from_end = index - count
    for first in range(KERB_RUN - 1):
        hard |= hard[first] & (from_end < 0) & (from_end >= first - KERB_RUN + 1)
    padded = jnp.concatenate([hard, jnp.zeros(KERB_RUN - 1, bool)])
    spread = jnp.stack([padded[k : k + len(turn)] for k in range(KERB_RUN)])
    return jnp.any(spread, axis=0)


def _before(index: Int[Array, " t"], steps: int, count: Int[Array, ""]) -> Int[Array, " t"]:
    return jnp.where(index < steps, index - steps + count, index - steps)

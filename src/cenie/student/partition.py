"""Networks of any parts: what is an array is learned, and all else is a part of the network's structure.

Compiled programs take and return arrays alone. Layers of Equinox also hold functions (the activation of
`eqx.nn.MLP`) and plain numbers (the rate of a `Dropout`), which must stay what they are.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from cenie.records import Memory, Observation
from cenie.student.networks.base import Decision, Network


class Partitioned(Network):
    """A network in two halves: its `arrays`, and everything else, which is hashed and compared."""

    arrays: Network
    rest: Network = eqx.field(static=True)

    @property
    def whole(self) -> Network:
        """The network as it was made, with its present arrays."""
        return eqx.combine(self.arrays, self.rest)

    @property
    def recurrent(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rest.recurrent

    @property
    def lookback(self) -> int:
        return self.whole.lookback

    @property
    def rows_at_once(self) -> int | None:
        return self.whole.rows_at_once

    def film(self, observations: Observation) -> Observation:
        return self.whole.film(observations)

    def look(self, film: Observation, places: Int[Array, "n seen"]) -> Decision:
        return self.whole.look(film, places)

    def initial_memory(self, count: int) -> Memory:
        return self.whole.initial_memory(count)

    def step(
        self, memory: Memory, observation: Observation, start: Bool[Array, " n"]
    ) -> tuple[Memory, Decision]:
        return self.whole.step(memory, observation, start)

    def sequence(self, memory: Memory, observation: Observation, start: Bool[Array, "n t"]) -> Decision:
        return self.whole.sequence(memory, observation, start)


def partitioned(network: Network) -> Network:
    """The network with nothing but arrays as leaves: itself, if it has no others.

    Args:
        network: Any network. Arrays of NumPy count as arrays.

    Returns:
        The network itself, or it in two halves.

    Raises:
        ValueError: If a leaf is no array and cannot be hashed.
    """
    network = jax.tree.map(lambda leaf: jnp.asarray(leaf) if _is_numpy(leaf) else leaf, network)
    arrays, rest = eqx.partition(network, eqx.is_array)
    constants = jax.tree.leaves_with_path(rest)
    if not constants:
        return network
    for path, leaf in constants:
        try:
            hash(leaf)
        except TypeError as error:
            name = jax.tree_util.keystr(path)
            raise ValueError(
                f"network: {name} is of type {type(leaf).__name__}, which is no array and cannot be hashed"
            ) from error
    return Partitioned(arrays, rest)


def whole(network: Network) -> Network:
    """The network as it was made, whether it came in two halves or not."""
    return network.whole if isinstance(network, Partitioned) else network


def _is_numpy(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)

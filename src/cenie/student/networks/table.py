"""The networks that settings can name."""

from jaxtyping import PRNGKeyArray, PyTree

from cenie.settings import SettingsError
from cenie.spaces import Space
from cenie.student.encoders import parts_of
from cenie.student.networks.base import Network
from cenie.student.networks.board import Board
from cenie.student.networks.memoryless import Memoryless
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.pixels import Pixels
from cenie.student.networks.recurrent import Gru, Lstm

NetworkConfig = Lstm | Gru | Mlp | Memoryless | Pixels | Board
"""The settings of a network; their `kind` tells them apart."""


def make_network(
    config: NetworkConfig, observation_space: PyTree[Space], action_space: Space, key: PRNGKeyArray
) -> Network:
    """The network that `config` names, sized for the spaces of a domain. Consumes the key.

    Raises `SettingsError` if it cannot read such observations.
    """
    spaces = parts_of(observation_space)
    misfits = list(config.misfits(spaces, action_space))
    if misfits:
        raise SettingsError(misfits)
    return config.make(spaces, action_space, key)

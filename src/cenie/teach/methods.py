"""The settings of each method and the table of methods. Imports no JAX: the command line reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DomainRandomisation:
    """Settings of `dr`: a random level for every environment in every cycle."""

    generator: str = "uniform60"


@dataclass(frozen=True)
class Method:
    """A row of the table of methods; `recipe` names a function of `cenie.teach.recipes`."""

    summary: str
    recipe: str
    settings: type


METHODS = {
    "dr": Method("domain randomisation: random levels, learn from all of them", "dr", DomainRandomisation),
}

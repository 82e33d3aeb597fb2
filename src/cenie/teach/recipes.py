"""Methods as recipes: each function turns its settings and a domain into a `Curriculum`."""

from cenie.envs.base import Domain
from cenie.teach.curriculum import Curriculum
from cenie.teach.methods import DomainRandomisation


def dr(domain: Domain, settings: DomainRandomisation) -> Curriculum:
    """Domain randomisation: one random level per environment and cycle, repeated until the cycle ends."""
    return Curriculum(generate=domain.generators[settings.generator], learn_on_new=True)

"""A method of one's own: the curriculum is passed from Python (`cenie.Parts`), so that it has no settings."""

from dataclasses import dataclass

from jax.sharding import Mesh

from cenie.methods.family import Family, LevelFactory
from cenie.methods.table import OWN, Method
from cenie.settings import Problem, SettingsError, show
from cenie.teach.curriculum import Curriculum


@dataclass(frozen=True)
class OwnTeacher(Family):
    """A curriculum that is passed from Python. It has no settings."""

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        raise SettingsError([Problem("curriculum", f"is needed for the method {show(OWN)}")])


METHODS = (Method(OWN, "own method", "#222222", OwnTeacher()),)

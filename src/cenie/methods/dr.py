"""Domain randomisation: random levels, and the student learns from all of them (Tobin et al., 2017)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh

from cenie.envs.base import Domain
from cenie.methods.family import Family, LevelFactory, generator_problems, generator_setting
from cenie.methods.table import Method
from cenie.settings import Problem
from cenie.student.config import StudentConfig
from cenie.teach.curriculum import Curriculum
from cenie.teach.source import RandomSource


@dataclass(frozen=True)
class RandomTeacher(Family):
    """Random levels in every cycle, and the student learns from all of them."""

    generator: str = generator_setting("random", source="paper")

    def curriculum(self, domain: LevelFactory, mesh: Mesh | None = None) -> Curriculum:
        return Curriculum(RandomSource(domain.generator(self.generator)), learn_on_new=True)

    def problems(self, entry: Domain, env: Any, student: StudentConfig) -> Iterator[Problem]:
        yield from generator_problems(entry, self.generator)

    @property
    def needs_levels_alone(self) -> bool:
        return True


METHODS = (
    Method("dr", "DR", "#7f7f7f", RandomTeacher(), papers={"tobin2017domain": "domain randomisation"}),
)

# mypy: implicit-reexport
"""The public names of `import cenie`, each once, with its home. Loaded when one is first used."""

from cenie.bridges.environment import as_level
from cenie.bridges.features import state_action_features
from cenie.bridges.gymnax import from_gymnax, gymnax_domain, to_gymnax
from cenie.bridges.jaxued import from_jaxued
from cenie.bridges.teacher import Teacher
from cenie.envs.base import (
    Design,
    Domain,
    Environment,
    ParameterSpace,
    Renderer,
    Suite,
    SuiteEntry,
    TaskSpace,
)
from cenie.envs.check import check_environment
from cenie.envs.parameters import Parameters, parameter_domain
from cenie.experiment.build import Parts, build
from cenie.experiment.config import Config
from cenie.experiment.evaluate import evaluate
from cenie.experiment.rows import level_scores, solved_rates, suite_mean
from cenie.records import Step
from cenie.replay.buffer import BufferState
from cenie.replay.outcomes import Outcomes
from cenie.replay.play import Play
from cenie.replay.scores import Score, episode_mean
from cenie.rundir.export import Student, export_student, load_student
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.run import Run, load_run
from cenie.rundir.snapshots import read_snapshot
from cenie.settings import SettingsError
from cenie.spaces import Box, Discrete
from cenie.student.actions import Categorical, DiagonalGaussian
from cenie.student.networks.base import Decision, Network
from cenie.teach.curriculum import Column, Curriculum, Editing, Replay
from cenie.teach.cycle import init
from cenie.teach.novelty import Novelty
from cenie.teach.source import RandomSource, Source
from cenie.training.api import preset, train
from cenie.xla.parts import cycle, cycles

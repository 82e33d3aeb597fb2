"""Driving as an environment: actions that last several physics steps, what they pay, and when it ends."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, UInt8

from cenie.envs.base import Environment
from cenie.envs.racing.car import Car, hull_position
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.contact import Tiles, tiles_of, touched_by_car, touched_by_wheels, under_hull
from cenie.envs.racing.frame import frame, paint
from cenie.envs.racing.level import RacingLevel
from cenie.envs.racing.physics import drive, settled, unsettled_wheels
from cenie.envs.racing.track import Circuit, Track, track_of_circuit, track_of_level
from cenie.records import Step
from cenie.spaces import Space

LAP_REWARD = 1000.0
"""All tiles of a track are worth this together."""
STEP_COST = 0.1
OUTSIDE_REWARD = -100.0
"""The reward of a step that leaves the field, whatever else happens in it."""

# What training adds, and when it gives up.
END_BONUS = 100.0
GRASS_COST = 0.05
GRASS_GREEN = 185.0
"""A frame whose mean of green is above this shows grass alone."""
MEMORY = 100
HOPELESS = -0.1 + 1e-6
"""An episode ends when the mean of the last `MEMORY` rewards is no better; rounding must not decide."""

Frame = UInt8[Array, "*n size size 3"]


class RacingState(eqx.Module):
    """The state of an episode."""

    car: Car
    visited: Bool[Array, "*n t"]
    """Tiles that a wheel has touched."""
    shown: Bool[Array, "*n t"]
    """Tiles that any part of the car had touched after the last action, which shows in pictures."""
    paid: Int[Array, "*n"]
    """The number of visited tiles that have been paid for."""
    time: Int[Array, "*n"]
    """Physics steps so far."""
    recent: Float[Array, "*n 100"]
    """The last rewards of training, 0 before the first step; the newest is at `time` modulo 100."""
    on_grass: Bool[Array, "*n"]
    """Whether the newest frame that was looked at shows grass alone."""


class Course(eqx.Module):
    """A track, prepared for contacts and pictures, with the state and the frame that episodes begin with."""

    tiles: Tiles
    count: Int[Array, "*n"]
    playfield: Float[Array, "*n"]
    time_limit: Int[Array, "*n"]
    view: Any
    """Whatever frames are made of."""
    start: RacingState
    first_frame: Frame


class Racing(Environment):
    """Drive a lap around a track, seen from above.

    In training levels are control points; in `evaluation` they may also be circuits, rewards are not shaped,
    and only the rules of the race end an episode.
    """

    config: RacingConfig = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    observation_space: PyTree = eqx.field(static=True)
    action_space: Space = eqx.field(static=True)

    def __init__(self, config: RacingConfig, *, evaluation: bool = False):
        if evaluation:
            config = dataclasses.replace(config, shaping=False, renderer=config.evaluation_renderer)
        self.config = config
        self.max_steps = config.max_steps
        self.observation_space = config.observation_parts[0]
        self.action_space = config.action_space

    def prepare(self, level: RacingLevel | Circuit) -> Course:
        if isinstance(level, Circuit):
            return self.course_of(track_of_circuit(level), jnp.asarray(level.time_limit))
        track = track_of_level(level, self.config.curve_samples)
        return self.course_of(track, jnp.int32(self.config.time_limit))

    def course_of(self, track: Track, time_limit: Int[Array, ""]) -> Course:
        """Prepare a track. What happens in the first step of an episode happens here, once."""
        tiles, view = tiles_of(track), paint(self.config, track)
        place, angle = track.nodes[:, 0], track.normal[0]
        touched = touched_by_wheels(tiles, unsettled_wheels(place), jnp.broadcast_to(angle, (4,)))
        car = dataclasses.replace(settled(place, angle), on_road=jnp.any(touched, axis=1))
        visited = jnp.any(touched, axis=0)
        shown = visited | under_hull(tiles, car)
        first = frame(self.config, view, car, shown)
        start = RacingState(
            car=car,
            visited=visited,
            shown=shown,
            paid=jnp.int32(0),
            time=jnp.int32(0),
            recent=jnp.zeros(MEMORY),
            on_grass=_shows_grass(first),
        )
        return Course(tiles, track.count, track.playfield, time_limit, view, start, first)

    def reset(self, key: PRNGKeyArray, level: Course) -> tuple[Frame, RacingState]:
        """Begin an episode, always in the same way."""
        return level.first_frame, level.start

    def step(self, key: PRNGKeyArray, level: Course, state: RacingState, action: Float[Array, " 3"]) -> Step:
        """Hold an action for several physics steps, or until the episode ends; deterministic."""
        no = jnp.zeros((), bool)
        drive = _Drive(state, jnp.float32(0.0), terminated=no, truncated=no, solved=no)
        drive = jax.lax.scan(
            lambda drive, _: (self._physics_step(level, drive, action), None),
            drive,
            length=self.config.action_repeat,
        )[0]
        state = drive.state
        shown = state.shown | state.visited | under_hull(level.tiles, state.car)
        state = dataclasses.replace(state, shown=shown)
        seen = self._frame(level, state)
        if self.config.shaping and self.config.green == "observed":
            state = dataclasses.replace(state, on_grass=_shows_grass(seen))
        return Step(seen, state, drive.reward, drive.terminated, drive.truncated, drive.solved)

    def _physics_step(self, level: Course, old: "_Drive", action: Float[Array, " 3"]) -> "_Drive":
        """One physics step, unless the episode has ended.

        Contacts are those before the car moves, and change its grip in the step after.
        """
        state = old.state
        ended = old.terminated | old.truncated
        touched = touched_by_car(level.tiles, state.car)
        visited = state.visited | (jnp.any(touched, axis=0) & ~ended)
        moved = drive(state.car, 2.0 * action[0] - 1.0, action[1], action[2])
        state = dataclasses.replace(
            state,
            car=dataclasses.replace(moved, on_road=jnp.any(touched, axis=1)),
            visited=visited,
            paid=jnp.sum(visited, dtype=jnp.int32),
            time=state.time + 1,
        )
        new_tiles = (state.paid - old.state.paid).astype(jnp.float32)
        outside = jnp.any(jnp.abs(hull_position(state.car)) > level.playfield)
        reward = new_tiles * (LAP_REWARD / level.count) - STEP_COST
        reward = jnp.where(outside, OUTSIDE_REWARD, reward)
        finished = state.paid == level.count
        terminated, out_of_time = finished | outside, state.time >= level.time_limit
        if self.config.shaping:
            if self.config.green == "exact":
                state = dataclasses.replace(state, on_grass=_shows_grass(self._frame(level, state)))
            reward += jnp.where(terminated | out_of_time, END_BONUS, 0.0)
            if self.config.green != "never":
                reward -= jnp.where(state.on_grass, GRASS_COST, 0.0)
            now = jnp.arange(MEMORY) == state.time % MEMORY
            state = dataclasses.replace(state, recent=jnp.where(now, reward, state.recent))
            terminated |= jnp.mean(state.recent) <= HOPELESS
        new = _Drive(
            state=state,
            reward=old.reward + reward,
            terminated=terminated,
            truncated=out_of_time & ~terminated,
            solved=finished & ~outside,
        )
        new = jax.tree.map(lambda a, b: jnp.where(ended, a, b), old, new)
        # An ended episode has touched nothing more: its tiles need no choice between old and new.
        return dataclasses.replace(new, state=dataclasses.replace(new.state, visited=visited))

    def _frame(self, level: Course, state: RacingState) -> Frame:
        return frame(self.config, level.view, state.car, state.shown | state.visited)


class _Drive(eqx.Module):
    """The state carried from one physics step to the next, and the values for a `Step`."""

    state: RacingState
    reward: Float[Array, "*n"]
    terminated: Bool[Array, "*n"]
    truncated: Bool[Array, "*n"]
    solved: Bool[Array, "*n"]


def _shows_grass(seen: Frame) -> Bool[Array, ""]:
    green = seen[..., 1]
    return jnp.sum(green, dtype=jnp.int32) > GRASS_GREEN * green.size

"""Frames of the original drawing calls, made by OpenGL: what the renderers are compared with.

    pip install PyOpenGL
    python -m tests.envs.racing.gl_frames

It needs Mesa's EGL (Debian: libegl1, libgl1-mesa-dri), but no screen, and writes `gl_frames.npz` beside this
file, which the tests read: they need neither. The calls are those of gym 0.15.7 and of the original code's
tracks, in the same order and with the same matrices, without the digits of the score; shapes are gymnasium's.
"""

import ctypes
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

FIXTURE = Path(__file__).with_name("gl_frames.npz")
SIZE = 96
LEVELS, CARS = 4, 12
WIDTH, HEIGHT, ZOOM = 1000, 800, 2.7 * 6.0

UNIT_TEST_POINTS = np.array(
    [
        *((100, 50), (200, 40), (280, 90), (310, 170), (290, 250), (220, 300)),
        *((150, 310), (90, 280), (40, 220), (30, 150), (50, 100), (170, 120)),
    ],
    np.float32,
)


def scenes(seed: int = 0) -> dict[str, np.ndarray]:
    """Levels, and cars for each of them, on the road and beside it, with the tiles that they touched."""
    rng = np.random.default_rng(seed)
    points = np.stack(
        [UNIT_TEST_POINTS] + [rng.uniform(0, 2000 / 6, (12, 2)).astype(np.float32) for _ in range(LEVELS - 1)]
    )
    shape = (LEVELS, CARS)
    speed = rng.uniform(0.0, 60.0, shape) * (rng.random(shape) < 0.85)
    # Where the car faces, relative to the road, and where it drives, relative to that.
    skew, drift = rng.normal(0.0, 0.3, shape), rng.normal(0.0, 0.4, shape)
    aside = rng.uniform(-9.0, 9.0, shape)
    aside[:, -3:] = rng.uniform(-60.0, 60.0, (LEVELS, 3))
    node = rng.integers(0, 468, shape)
    # Cars drive from the last tiles to the first, and miss some.
    touched = (np.arange(468) >= node[..., None]) & (rng.random((*shape, 468)) < 0.97)
    # Values are relative to a place of the track; `place_cars` turns them into cars.
    return {
        "points": points,
        "node": node,
        "aside": aside,
        "skew": skew,
        "drift": drift,
        "speed": speed,
        "turn": rng.normal(0.0, 2.0, shape),
        "front": rng.uniform(-0.42, 0.42, shape),
        "spin": rng.uniform(0.0, 120.0, (*shape, 4)),
        "phase": rng.uniform(0.0, 20.0, (*shape, 4)),
        "touched": touched,
    }


def place_cars(scene: dict[str, np.ndarray], nodes: np.ndarray, normal: np.ndarray) -> dict[str, np.ndarray]:
    """Fields of `Car` [cars, ...] of one level, whose nodes [2, t] and angles of cross-sections are given."""
    node = scene["node"]
    unit = np.stack([np.cos(normal), np.sin(normal)])
    centre = (nodes[:, node] + scene["aside"] * unit[:, node]).T
    angle = normal[node] + scene["skew"]
    heading = angle + math.pi / 2 + scene["drift"]
    velocity = scene["speed"][:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    joint = np.zeros((len(node), 4))
    joint[:, :2] = scene["front"][:, None]
    values = {
        "centre": centre,
        "angle": angle,
        "last_angle": angle,
        "velocity": velocity,
        "turn": scene["turn"],
        "joint": joint,
        "joint_rate": np.zeros((len(node), 4)),
        "spin": scene["spin"],
        "phase": scene["phase"],
        "gas": np.zeros(len(node)),
    }
    fields = {name: np.asarray(value, np.float32) for name, value in values.items()}
    return {**fields, "on_road": np.zeros((len(node), 4), bool)}


def main() -> None:
    """Draw all scenes and write the fixture."""
    import jax

    from cenie.envs.racing.car import Car
    from cenie.envs.racing.level import make_level
    from cenie.envs.racing.track import track_of_level

    draw = _gl()
    scene, frames, cars = scenes(), [], []
    for number, points in enumerate(scene["points"]):
        level = {name: values[number] for name, values in scene.items()}
        track = jax.tree.map(np.asarray, track_of_level(make_level(points), 40))
        placed = place_cars(level, track.nodes, track.normal)
        cars.append(placed)
        for index in range(CARS):
            car = Car(**{name: values[index] for name, values in placed.items()})
            frames.append(draw(track, car, level["touched"][index]))
    np.savez_compressed(
        FIXTURE,
        frames=np.stack(frames).reshape(LEVELS, CARS, SIZE, SIZE, 3),
        points=scene["points"],
        touched=np.packbits(scene["touched"], axis=-1),
        **{f"car_{name}": np.stack([placed[name] for placed in cars]) for name in cars[0]},
    )


def _gl() -> Any:
    """A function that draws a scene with OpenGL into a picture without a window."""
    os.environ["PYOPENGL_PLATFORM"] = "egl"
    os.environ["EGL_PLATFORM"] = "surfaceless"
    from gymnasium.envs.box2d import car_dynamics as gym
    from OpenGL import EGL, GL

    from cenie.envs.racing.car import hull_position, hull_velocity, wheel_angles, wheel_positions

    display = EGL.eglGetDisplay(EGL.EGL_DEFAULT_DISPLAY)
    EGL.eglInitialize(display, ctypes.c_long(), ctypes.c_long())
    EGL.eglBindAPI(EGL.EGL_OPENGL_API)
    wanted = [EGL.EGL_SURFACE_TYPE, EGL.EGL_PBUFFER_BIT, EGL.EGL_RENDERABLE_TYPE, EGL.EGL_OPENGL_BIT]
    wanted += [EGL.EGL_RED_SIZE, 8, EGL.EGL_GREEN_SIZE, 8, EGL.EGL_BLUE_SIZE, 8, EGL.EGL_NONE]
    configs, count = (EGL.EGLConfig * 1)(), ctypes.c_long()
    EGL.eglChooseConfig(display, wanted, configs, 1, count)
    size = [EGL.EGL_WIDTH, SIZE, EGL.EGL_HEIGHT, SIZE, EGL.EGL_NONE]
    surface = EGL.eglCreatePbufferSurface(display, configs[0], size)
    context = EGL.eglCreateContext(display, configs[0], EGL.EGL_NO_CONTEXT, [EGL.EGL_NONE])
    assert EGL.eglMakeCurrent(display, surface, surface, context)
    print(GL.glGetString(GL.GL_RENDERER))
    GL.glViewport(0, 0, SIZE, SIZE)
    GL.glMatrixMode(GL.GL_PROJECTION)
    GL.glOrtho(0, WIDTH, 0, HEIGHT, -1, 1)
    GL.glMatrixMode(GL.GL_MODELVIEW)

    def polygon(corners: Any, colour: Any) -> None:
        GL.glColor4f(*colour, 1.0)
        GL.glBegin(GL.GL_QUADS if len(corners) == 4 else GL.GL_POLYGON)
        for x, y in corners:
            GL.glVertex3f(float(x), float(y), 0.0)
        GL.glEnd()

    def body(corners: Any, place: Any, angle: float) -> np.ndarray:
        cos, sin = math.cos(angle), math.sin(angle)
        return np.asarray(corners) @ np.array([(cos, sin), (-sin, cos)]) + np.asarray(place, np.float64)

    def field(half: float) -> None:
        polygon([(-half, half), (half, half), (half, -half), (-half, -half)], (0.4, 0.8, 0.4))
        side = half / 20.0
        for x in range(-20, 20, 2):
            for y in range(-20, 20, 2):
                left, low = side * x, side * y
                corners = [(left + side, low), (left, low), (left, low + side), (left + side, low + side)]
                polygon(corners, (0.4, 0.9, 0.4))

    def road(track: Any, touched: np.ndarray) -> None:
        for i in range(int(track.count)):
            grey = 0.4 + (0.0 if touched[i] else 0.01 * (i % 3))
            polygon(track.road[:, :, i].T, (grey, grey, grey))
            if track.kerbed[i]:
                polygon(track.kerb[:, :, i].T, (1, 1, 1) if i % 2 == 0 else (1, 0, 0))

    def wheel(place: Any, angle: float, phase: float) -> None:
        w, r = gym.WHEEL_W * gym.SIZE, gym.WHEEL_R * gym.SIZE
        polygon(body([(-w, r), (w, r), (w, -r), (-w, -r)], place, angle), (0.0, 0.0, 0.0))
        s1, s2 = math.sin(phase), math.sin(phase + 1.2)
        c1, c2 = math.cos(phase), math.cos(phase + 1.2)
        if s1 > 0 and s2 > 0:
            return
        c1, c2 = np.sign(c1) if s1 > 0 else c1, np.sign(c2) if s2 > 0 else c2
        tread = [(-w, r * c1), (w, r * c1), (w, r * c2), (-w, r * c2)]
        polygon(body(tread, place, angle), (0.3, 0.3, 0.3))

    def draw(track: Any, car: Any, touched: np.ndarray) -> np.ndarray:
        (x, y), (vx, vy) = (np.asarray(part, np.float64) for part in (hull_position(car), hull_velocity(car)))
        angle = math.atan2(vx, vy) if math.hypot(vx, vy) > 0.5 else -float(car.angle)
        GL.glClearColor(0, 0, 0, 1)
        GL.glClear(GL.GL_COLOR_BUFFER_BIT)
        GL.glLoadIdentity()
        cos, sin = math.cos(angle), math.sin(angle)
        GL.glTranslatef(
            WIDTH / 2 - (x * ZOOM * cos - y * ZOOM * sin), HEIGHT / 4 - (x * ZOOM * sin + y * ZOOM * cos), 0
        )
        GL.glRotatef(math.degrees(angle), 0, 0, 1)
        GL.glScalef(ZOOM, ZOOM, 1)
        field(float(track.playfield))
        road(track, touched)
        for part in zip(np.asarray(wheel_positions(car)), np.asarray(wheel_angles(car)), car.phase):
            wheel(*part)
        for corners in (gym.HULL_POLY1, gym.HULL_POLY2, gym.HULL_POLY3, gym.HULL_POLY4):
            polygon(body(np.array(corners) * gym.SIZE, (x, y), float(car.angle)), (0.8, 0.0, 0.0))
        GL.glLoadIdentity()
        s, h = WIDTH / 40.0, HEIGHT / 40.0
        polygon([(WIDTH, 0), (WIDTH, 5 * h), (0, 5 * h), (0, 0)], (0, 0, 0))
        speed, spin = 0.02 * math.hypot(vx, vy), 0.01 * np.asarray(car.spin)
        bars = [(5, speed, (1, 1, 1)), (7, spin[0], (0, 0, 1)), (8, spin[1], (0, 0, 1))]
        bars += [(9, spin[2], (0.2, 0, 1)), (10, spin[3], (0.2, 0, 1))]
        for place, value, colour in bars:
            top = h + h * value
            corners = [(place * s, top), ((place + 1) * s, top), ((place + 1) * s, h), (place * s, h)]
            polygon(corners, colour)
        lines = [(20, -10.0 * car.joint[0], (0, 1, 0)), (30, -0.8 * car.turn, (1, 0, 0))]
        for place, value, colour in lines:
            end = (place + value) * s
            polygon([(place * s, 4 * h), (end, 4 * h), (end, 2 * h), (place * s, 2 * h)], colour)
        GL.glFinish()
        pixels = GL.glReadPixels(0, 0, SIZE, SIZE, GL.GL_RGB, GL.GL_UNSIGNED_BYTE)
        return np.frombuffer(pixels, np.uint8).reshape(SIZE, SIZE, 3)[::-1]

    return draw


if __name__ == "__main__":
    main()

"""Splitting, sharing and gathering: two host devices must find what one finds, in one process or in two."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cenie.xla import devices
from tests.processes import run

MESH = devices.level_mesh(2)


def halves(rows: jax.Array, more: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {"half": rows / 2.0, "sum": rows[:, None] + more["other"]}


@pytest.mark.parametrize("count", [1, 4, 5])
def test_shared_rows_come_back_in_their_order(count: int) -> None:
    rows, more = jnp.arange(float(count)), {"other": jnp.arange(3.0 * count).reshape(count, 3)}
    expected = devices.side_by_side(None, lambda team, *rows: devices.shared(team, halves, *rows), rows, more)
    found = jax.jit(
        lambda *rows: devices.side_by_side(
            MESH, lambda team, *rows: devices.shared(team, halves, *rows), *rows
        )
    )(rows, more)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(found["half"], np.arange(count) / 2.0)


@pytest.mark.parametrize("when", [True, False])
def test_what_the_first_device_finds_is_everywhere(when: bool) -> None:
    def find(rows: jax.Array) -> dict[str, jax.Array]:
        return {"sum": rows.sum(), "flags": rows > 1.0, "nan": rows / 0.0, "count": jnp.int32(len(rows))}

    rows = jnp.array([0.0, 1.0, -2.0])
    found = jax.jit(lambda when, rows: devices.on_first_device(MESH, when, find, rows))(
        jnp.asarray(when), rows
    )
    expected = find(rows) if when else jax.tree.map(jnp.zeros_like, find(rows))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert all(leaf.is_fully_replicated for leaf in jax.tree.leaves(found))


def test_devices_work_on_different_rows() -> None:
    def who(rows: jax.Array) -> jax.Array:
        return jnp.full(rows.shape, jax.lax.axis_index("levels"))

    found = jax.jit(
        lambda rows: devices.side_by_side(MESH, lambda team, rows: devices.shared(team, who, rows), rows)
    )(jnp.zeros(5))
    assert found.tolist() == [0, 1, 0, 1, 0]


def test_spread_rows_are_whole_again_on_the_host() -> None:
    rows = {"odd": np.arange(5.0), "keys": jax.random.split(jax.random.key(0), 5)}
    placed = devices.shard_rows(MESH, rows)
    assert placed["odd"].sharding.shard_shape(placed["odd"].shape) == (3,)
    np.testing.assert_array_equal(devices.to_host(placed["odd"]), [0, 1, 2, 3, 4, 4])
    assert jnp.all(placed["keys"][:5] == rows["keys"])


def test_each_device_treats_its_own_rows() -> None:
    @jax.jit
    def run(rows: jax.Array) -> jax.Array:
        own = devices.split(MESH, rows)
        return devices.on_own_rows(MESH, lambda rows: jnp.full(rows.shape, rows.shape[0]), own)

    assert run(jnp.zeros(6)).tolist() == [3] * 6


def test_a_gradient_is_averaged_once() -> None:
    """With JAX's check of what varies, the devices would be added up twice."""

    def gradient(weight: jax.Array, rows: jax.Array) -> jax.Array:
        return jax.grad(lambda weight: jnp.mean(weight * rows))(weight)

    weight, rows = jnp.asarray(2.0), jnp.arange(4.0)
    expected = devices.mean_over_devices(None, gradient, weight, rows)
    found = jax.jit(lambda weight, rows: devices.mean_over_devices(MESH, gradient, weight, rows))(
        weight, rows
    )
    assert float(found) == float(expected) == 1.5


def test_one_device_needs_no_mesh_and_one_process_writes() -> None:
    assert devices.level_mesh(1) is None
    assert devices.is_writer()


def in_two_processes(*arguments: str, temporary: Path) -> list[str]:
    """What each of two processes that share one program printed."""
    with socket.create_server(("localhost", 0)) as server:
        address = f"localhost:{server.getsockname()[1]}"
    environment = os.environ | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "tests.processes", address]
    both = [
        subprocess.Popen(
            [*command, number, *arguments],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in ("0", "1")
    ]
    try:
        printed = [process.communicate(timeout=240)[0] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], "\n".join(printed)
    return printed


def test_two_processes_read_what_lies_on_both(tmp_path: Path) -> None:
    first, second = (text.splitlines()[-1] for text in in_two_processes("split", temporary=tmp_path))
    found = "0.0 2.0 4.0 6.0 8.0 8.0 0.0 1.0 True"
    assert (first, second) == (f"{found} True", f"{found} False")


@pytest.mark.slow
def test_two_processes_train_as_one_does_and_one_of_them_writes(tmp_path: Path) -> None:
    """Evaluations, checkpoints and a resume included."""
    together, alone, temporary = (tmp_path / name for name in ("together", "alone", "temporary"))
    temporary.mkdir()
    for resume in ([], ["resume"]):
        in_two_processes("train", str(together), *resume, temporary=temporary)
        run(str(alone), resume=bool(resume))
    assert list(temporary.iterdir()) == []
    # Sums of two do not depend on the order: the same bytes, whoever computed them.
    snapshots = [f"snapshots/{path.name}" for path in (alone / "snapshots").iterdir()]
    assert snapshots
    for name in ("metrics.jsonl", "evaluations.csv", "levels.csv", "summary.json", *snapshots):
        assert (together / name).read_bytes() == (alone / name).read_bytes() != b""

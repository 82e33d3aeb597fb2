"""Checkpoints keep every bit, and survive damage, full disks, kills and hostile files."""

import errno
import hashlib
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save as to_safetensors

from cenie.rundir.checkpoint import CheckpointError, digest, load_newest, newest_first, save, sweep
from cenie.rundir.files import RunDirectoryError
from cenie.rundir.manifest import Unusable

LIKE = {"w": np.zeros((8, 8), np.float32), "n": np.zeros((), np.int32)}
FIXTURES = Path(__file__).parent / "fixtures"


def state(number: int) -> dict[str, np.ndarray]:
    return {"w": np.full((8, 8), number, np.float32), "n": np.asarray(number, np.int32)}


def two_checkpoints(directory: Path) -> Path:
    """Steps 1 and 2; returns the newer one."""
    save(directory, state(1), step=1, facts={})
    return save(directory, state(2), step=2, facts={})


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def assert_falls_back(directory: Path, reason: str) -> None:
    before = names(directory)
    loaded = load_newest(directory, LIKE)
    assert loaded is not None
    assert (loaded.step, digest(loaded.tree)) == (1, digest(state(1)))
    assert len(loaded.skipped) == 1
    assert "step-00000002" in loaded.skipped[0]
    assert reason in loaded.skipped[0]
    assert names(directory) == before


class Student(eqx.Module):
    weight: jax.Array
    scale: float
    activation: object = eqx.field(static=True)
    function: object


# Bits


dtypes = st.sampled_from(
    ["bool", "int8", "int32", "int64", "uint8", "uint32", "float16", "float32", "float64", "bfloat16"]
)


@st.composite
def raw_arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of arbitrary bits: also NaN payloads, subnormals and negative zero."""
    dtype = np.dtype(draw(dtypes))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    bits = draw(hnp.arrays(np.uint8, (*shape, dtype.itemsize)))
    if dtype.name == "bool":
        return bits[..., 0] > 127
    return np.ascontiguousarray(bits).view(dtype).reshape(shape)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(max_size=5), raw_arrays(), max_size=4))
def test_every_bit_survives(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, np.ndarray]) -> None:
    directory = tmp_path_factory.mktemp("bits")
    save(directory, tree, step=0, facts={})
    loaded = load_newest(directory, tree)
    assert loaded is not None
    for name, array in tree.items():
        restored = loaded.tree[name]
        assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
        assert restored.tobytes() == array.tobytes()
    assert digest(loaded.tree) == digest(tree)


def test_a_strided_array_is_stored_by_its_values(tmp_path: Path) -> None:
    tree = {"w": np.arange(12, dtype=np.int32).reshape(3, 4).T[::-1]}
    save(tmp_path, tree, step=0, facts={})
    loaded = load_newest(tmp_path, tree)
    assert loaded is not None
    np.testing.assert_array_equal(loaded.tree["w"], tree["w"])


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_typed_keys_come_back_as_typed_keys(tmp_path: Path, impl: str) -> None:
    tree = {"one": jax.random.key(7, impl=impl), "many": jax.random.split(jax.random.key(8, impl=impl), 3)}
    save(tmp_path, tree, step=0, facts={})
    like = jax.tree.map(lambda key: jax.ShapeDtypeStruct(key.shape, key.dtype), tree)
    loaded = load_newest(tmp_path, like)
    assert loaded is not None
    assert loaded.tree["many"].dtype == tree["many"].dtype
    assert jax.random.uniform(loaded.tree["one"]) == jax.random.uniform(tree["one"])
    assert digest(loaded.tree) == digest(tree)


def test_a_key_of_another_kind_does_not_fit(tmp_path: Path) -> None:
    save(tmp_path, {"key": jax.random.key(0, impl="rbg")}, step=0, facts={})
    with pytest.raises(RunDirectoryError, match=r"\['key'\] is key<rbg>\[\], expected key<fry>\[\]"):
        load_newest(tmp_path, {"key": jax.random.key(0, impl="threefry2x32")})


def test_static_parts_come_from_the_code_and_arrays_from_the_file(tmp_path: Path) -> None:
    saved = Student(jnp.arange(3.0), 0.5, jax.nn.relu, np.tanh)
    like = Student(jnp.zeros(3), 0.25, jax.nn.gelu, np.sin)
    save(tmp_path, (saved, [jnp.ones((0, 2), jnp.bfloat16)]), step=4, facts={"updates": 9})
    loaded = load_newest(tmp_path, (like, [jnp.zeros((0, 2), jnp.bfloat16)]))
    assert loaded is not None
    student, (empty,) = loaded.tree
    assert isinstance(student.weight, np.ndarray)
    np.testing.assert_array_equal(student.weight, [0.0, 1.0, 2.0])
    assert (student.scale, student.activation, student.function) == (0.25, jax.nn.gelu, np.sin)
    assert (empty.shape, empty.dtype) == ((0, 2), ml_dtypes.bfloat16)
    assert (loaded.step, loaded.facts, loaded.skipped) == (4, {"updates": 9}, [])


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.asarray([0.0, -0.0], np.float32)},
        {"w": np.asarray([0, 0], np.int32)},
        {"w": np.zeros((2, 1), np.float32)},
        {"v": np.zeros(2, np.float32)},
        {"w": np.zeros(2, np.float32), "x": np.zeros(0, np.float32)},
    ],
)
def test_the_digest_tells_apart_what_is_not_bit_equal(other: dict[str, np.ndarray]) -> None:
    assert digest({"w": np.zeros(2, np.float32)}) != digest(other)
    assert digest(other) == digest(jax.tree.map(jnp.asarray, other))


# Which checkpoint


def test_nothing_to_load(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "absent", LIKE) is None
    (tmp_path / "step-junk").mkdir()
    (tmp_path / "tmp-step-00000009").mkdir()
    assert load_newest(tmp_path, LIKE) is None


def test_the_newest_are_kept_in_numeric_order(tmp_path: Path) -> None:
    for step in (5, 99_999_999, 100_000_000, 7):
        save(tmp_path, state(step % 1000), step=step, facts={})
    assert names(tmp_path) == ["step-100000000", "step-99999999"]
    loaded = load_newest(tmp_path, LIKE)
    assert loaded is not None
    assert loaded.step == 100_000_000


def test_damaged_checkpoints_neither_count_as_kept_nor_are_removed(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    (newest / "manifest.json").write_bytes(b"")
    for step in (3, 4):
        save(tmp_path, state(step), step=step, facts={})
    assert names(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"]
    save(tmp_path, state(5), step=5, facts={}, keep=1)
    assert names(tmp_path) == ["step-00000002", "step-00000005"]


def test_saving_a_step_again_replaces_it_and_sets_a_damaged_one_aside(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    save(tmp_path, state(20), step=2, facts={})
    loaded = load_newest(tmp_path, LIKE)
    assert loaded is not None
    assert (loaded.step, int(loaded.tree["n"])) == (2, 20)
    (newest / "arrays.safetensors").write_bytes(b"damaged")
    save(tmp_path, state(21), step=2, facts={})
    loaded = load_newest(tmp_path, LIKE)
    assert loaded is not None
    assert (loaded.step, int(loaded.tree["n"]), loaded.skipped) == (2, 21, [])
    assert names(tmp_path) == ["damaged-step-00000002", "step-00000001", "step-00000002"]
    assert (tmp_path / "damaged-step-00000002" / "arrays.safetensors").read_bytes() == b"damaged"


def test_saving_the_same_state_again_leaves_the_files_alone(tmp_path: Path) -> None:
    newest = two_checkpoints(tmp_path)
    before = (newest / "manifest.json").stat().st_ino
    assert save(tmp_path, state(2), step=2, facts={}) == newest
    assert (newest / "manifest.json").stat().st_ino == before


@pytest.mark.parametrize(
    ("like", "reason"),
    [
        ({"w": LIKE["w"]}, "unexpected array ['n']"),
        (LIKE | {"extra": LIKE["n"]}, "array ['extra'] is missing"),
        (LIKE | {"w": np.zeros((8, 9), np.float32)}, "['w'] is float32[8, 8], expected float32[8, 9]"),
        (LIKE | {"w": np.zeros((8, 8), np.int32)}, "['w'] is float32[8, 8], expected int32[8, 8]"),
        ({str(number): LIKE["n"] for number in range(9)}, "; and 8 more"),
    ],
)
def test_a_tree_of_another_shape_is_refused_by_name(tmp_path: Path, like: dict, reason: str) -> None:
    save(tmp_path, state(1), step=1, facts={})
    with pytest.raises(RunDirectoryError, match="no checkpoint can be loaded") as caught:
        load_newest(tmp_path, like)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (1, 0)])
def test_wrong_arguments_are_refused(tmp_path: Path, step: int, keep: int) -> None:
    with pytest.raises(ValueError, match="step must be at least 0 and keep at least 1"):
        save(tmp_path, state(1), step=step, facts={}, keep=keep)


def test_checkpoints_of_earlier_formats_still_load() -> None:
    """Fixtures are never removed: one directory per format version."""
    key = jax.random.key(0)
    like = {"bits": np.zeros(3, ml_dtypes.bfloat16), "key": key, "w": np.zeros((2, 3), np.float32)}
    loaded = load_newest(FIXTURES / "checkpoint-format-1", like)
    assert loaded is not None
    assert (loaded.step, loaded.facts) == (12, {"updates": 3, "note": "größer als 0"})
    np.testing.assert_array_equal(loaded.tree["w"], np.arange(6, dtype=np.float32).reshape(2, 3) / 3)
    np.testing.assert_array_equal(loaded.tree["bits"].view(np.uint16), [0x7FC1, 0x8000, 0x3F80])
    assert (jax.random.key_data(loaded.tree["key"]) == jax.random.key_data(jax.random.key(5))).all()


# Damage (F4)


@pytest.mark.parametrize("name", ["arrays.safetensors", "manifest.json"])
def test_every_truncation_is_found(tmp_path: Path, name: str) -> None:
    file = two_checkpoints(tmp_path) / name
    content = file.read_bytes()
    for part in range(64):
        file.write_bytes(content[: len(content) * part // 64])
        assert_falls_back(tmp_path, name)
    file.write_bytes(content + b"\0")
    assert_falls_back(tmp_path, name)


@pytest.mark.parametrize("name", ["arrays.safetensors", "manifest.json"])
def test_every_bit_flip_is_found(tmp_path: Path, name: str) -> None:
    file = two_checkpoints(tmp_path) / name
    content = file.read_bytes()
    chance = random.Random(0)
    for _ in range(150):
        damaged = bytearray(content)
        for position in chance.sample(range(8 * len(content)), chance.randint(1, 4)):
            damaged[position // 8] ^= 1 << position % 8
        file.write_bytes(damaged)
        assert_falls_back(tmp_path, "")


@pytest.mark.parametrize("name", ["arrays.safetensors", "manifest.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (two_checkpoints(tmp_path) / name).unlink()
    assert_falls_back(tmp_path, f"{name} cannot be read: No such file")


def test_a_renamed_directory_is_not_taken_for_another_step(tmp_path: Path) -> None:
    save(tmp_path, state(1), step=1, facts={})
    shutil.copytree(tmp_path / "step-00000001", tmp_path / "step-00000002")
    assert_falls_back(tmp_path, "belongs to step 1")


# Disks that refuse (F5) and leftovers (F6)

CALLS = ["mkdir", "open", "write", "fsync", "rename"]


def save_reporting(directory: Path, step: int) -> CheckpointError | None:
    try:
        save(directory, state(step), step=step, facts={})
    except CheckpointError as error:
        return error
    return None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("call", CALLS)
def test_a_refused_system_call_costs_only_the_new_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    two_checkpoints(tmp_path)
    original = getattr(os, call)
    for failing in range(20):
        calls = iter(range(1000))

        def refuse(*args, calls=calls, failing=failing, **options):
            if next(calls) == failing:
                raise OSError(number, "refused")
            return original(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            reported = save_reporting(tmp_path, 3 + failing)
        if reported is not None:
            assert reported.errno == number
            assert errno.errorcode[number] in str(reported)
            assert f"step-{3 + failing:08d}" in str(reported)
        refused = next(calls) > failing
        assert not list(tmp_path.glob("tmp-step-*"))
        loaded = load_newest(tmp_path, LIKE)
        assert loaded is not None
        assert loaded.skipped == []
        assert digest(loaded.tree) == digest(state(loaded.step))
        if not refused:
            break
    assert failing > 0
    assert loaded.step == 3 + failing
    assert not list(tmp_path.glob("tmp-*"))


def test_a_file_size_limit_of_the_kernel_is_reported(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(CheckpointError, match=r"step-00000003: File too large \(EFBIG\)"):
            save(tmp_path, state(3), step=3, facts={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["step-00000001", "step-00000002"]
    save(tmp_path, state(3), step=3, facts={})
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("may not mount a small file system here")
    try:
        two_checkpoints(disk)
        ballast = disk / "ballast"
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(bytes(2**20))
        with pytest.raises(CheckpointError, match=r"No space left on device \(ENOSPC\)"):
            save(disk, state(3), step=3, facts={})
        loaded = load_newest(disk, LIKE)
        assert loaded is not None
        assert (loaded.step, loaded.skipped) == (2, [])
        ballast.unlink()
        save(disk, state(3), step=3, facts={})
        assert names(disk) == ["step-00000002", "step-00000003"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"Not a directory \(ENOTDIR\)"):
        save(tmp_path / "file" / "checkpoints", state(1), step=1, facts={})


def test_leftovers_of_killed_writers_are_swept(tmp_path: Path) -> None:
    for number in range(100):
        leftover = tmp_path / f"tmp-step-{number:08d}"
        leftover.mkdir()
        (leftover / "arrays.safetensors").write_bytes(b"half")
    assert load_newest(tmp_path, LIKE) is None
    save(tmp_path, state(1), step=1, facts={})
    assert names(tmp_path) == ["step-00000001"]
    assert sweep(tmp_path) == 0


KILLED_WRITERS = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from cenie.rundir.checkpoint import load_newest, save

directory, like = Path(sys.argv[1]), {"w": np.zeros(300_000, np.int32)}
chance, finished = random.Random(1), -1
for kill in range(15):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for step in range(finished + 1, finished + 10_000):
            save(directory, {"w": np.full(300_000, step, np.int32)}, step=step, facts={})
            os.write(writer, step.to_bytes(8, "little"))
    os.close(writer)
    finished = int.from_bytes(os.read(reader, 8), "little")
    time.sleep(chance.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while steps := os.read(reader, 8):
        finished = int.from_bytes(steps, "little")
    loaded = load_newest(directory, like)
    assert loaded is not None and loaded.skipped == [], loaded
    assert loaded.step in (finished, finished + 1), (loaded.step, finished)
    assert (loaded.tree["w"] == loaded.step).all()
    finished = loaded.step
print("survived", finished)
"""


def test_killed_writers_lose_no_finished_checkpoint(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", KILLED_WRITERS, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout.split()[1]) >= 15


# Hostile files (B4)


def forge(directory: Path, content: bytes, leaves: dict | None = None, **changes: object) -> Path:
    """A checkpoint 2 that is consistent by its hashes but holds what we please."""
    path = directory / "step-00000002"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    described = {
        f"['{name}']": {"shape": list(array.shape), "dtype": array.dtype.name} for name, array in LIKE.items()
    }
    body = {
        "format": 1,
        "step": 2,
        "facts": {},
        "arrays": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()},
        "leaves": described if leaves is None else leaves,
    } | changes
    text = json.dumps(body, indent=1) + "\n"
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(body, indent=1) + "\n")
    (path / "arrays.safetensors").write_bytes(content)
    return path


def good_arrays() -> dict[str, np.ndarray]:
    return {f"['{name}']": array for name, array in state(2).items()}


def test_the_forger_of_these_tests_can_write_a_valid_checkpoint(tmp_path: Path) -> None:
    forge(tmp_path, to_safetensors(good_arrays()))
    loaded = load_newest(tmp_path, LIKE)
    assert loaded is not None
    assert digest(loaded.tree) == digest(state(2))


PICKLE = b"cos\nsystem\n(S'touch %s'\ntR."


def hostile_contents(canary: Path) -> dict[str, bytes]:
    wrong_offsets = b'{"[\'w\']":{"dtype":"F32","shape":[8,8],"data_offsets":[0,99999999]}}'
    return {
        "pickle": PICKLE % bytes(canary),
        "empty": b"",
        "huge header length": struct.pack("<Q", 2**63 - 1) + b"{}",
        "large header length": struct.pack("<Q", 90_000_000) + b"{}",
        "offsets outside": struct.pack("<Q", len(wrong_offsets)) + wrong_offsets,
        "other arrays": to_safetensors({"../../../canary": np.zeros(3)}),
        "other shapes": to_safetensors(good_arrays() | {"['w']": np.zeros((4, 16), np.float32)}),
        "other dtypes": to_safetensors(good_arrays() | {"['w']": np.zeros((8, 8), np.int32)}),
        "zip": b"PK\x03\x04" + bytes(100),
    }


@pytest.mark.parametrize("kind", sorted(hostile_contents(Path("canary"))))
def test_hostile_arrays_are_refused_even_with_right_hashes(tmp_path: Path, kind: str) -> None:
    save(tmp_path, state(1), step=1, facts={})
    forge(tmp_path, hostile_contents(tmp_path / "canary")[kind])
    assert_falls_back(tmp_path, "arrays.safetensors")
    assert names(tmp_path) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 2}, "has format 2, and this version of cenie reads format 1"),
        ({"format": "x" * 1000}, "has format xxxxxxxxxxxxxxxxxxxx,"),
        ({"step": "2"}, "wrong entry"),
        ({"step": 3}, "belongs to step 3"),
        ({"facts": [1]}, "lacks a needed entry"),
        ({"arrays": {"bytes": 10**18, "sha256": ""}}, "said to have 1000000000000000000 bytes; at most"),
        ({"arrays": {"bytes": -1}}, "said to have -1 bytes"),
        ({"arrays": {"bytes": True}}, "wrong entry"),
        ({"leaves": {"../../etc/passwd": {"shape": [1], "dtype": "uint8"}}}, "unexpected array ../../etc"),
        ({"leaves": {"['w']": 3, "['n']": None}}, "array ['w'] is missing"),
        ({"leaves": {}}, "array ['n'] is missing"),
    ],
)
def test_hostile_manifests_are_refused_even_with_right_hashes(
    tmp_path: Path, changes: dict, reason: str
) -> None:
    save(tmp_path, state(1), step=1, facts={})
    forge(tmp_path, to_safetensors(good_arrays()), **changes)
    assert_falls_back(tmp_path, reason)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"[1]",
        b'{"format": NaN}',
        b'{"format": 1, "step": 1e999}',
        b'{"format": 1, "step": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b'{"format": 1, "step": "\\ud800"}',
        PICKLE,
    ],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    (two_checkpoints(tmp_path) / "manifest.json").write_bytes(content)
    assert_falls_back(tmp_path, "")


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (two_checkpoints(tmp_path) / "manifest.json").open("ab") as file:
        file.truncate(2**40)
    assert_falls_back(tmp_path, "manifest.json cannot be read: File too large")


def test_a_terabyte_of_arrays_is_refused_by_its_size(tmp_path: Path) -> None:
    """A sparse file costs its sender nothing, and the manifest agreed with it: it was read to the end."""
    save(tmp_path, state(1), step=1, facts={})
    forged = forge(tmp_path, b"", arrays={"bytes": 2**40, "sha256": ""})
    with (forged / "arrays.safetensors").open("ab") as file:
        file.truncate(2**40)
    assert_falls_back(tmp_path, "said to have 1099511627776 bytes; at most")
    save(tmp_path, state(3), step=3, facts={}, keep=1)
    assert names(tmp_path) == ["step-00000002", "step-00000003"]


@given(
    st.dictionaries(st.text(max_size=20), hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=3)),
    dtypes,
)
@settings(max_examples=30, deadline=None)
def test_the_bound_on_the_size_admits_every_real_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, tuple[int, ...]], dtype: str
) -> None:
    directory = tmp_path_factory.mktemp("sizes")
    tree = {name: np.zeros(shape, np.dtype(dtype)) for name, shape in shapes.items()}
    save(directory, tree, step=1, facts={})
    loaded = load_newest(directory, tree)
    assert loaded is not None
    assert digest(loaded.tree) == digest(tree)


@pytest.mark.parametrize("error", [Unusable("lacks facts"), RunDirectoryError("not of this run")])
def test_facts_are_checked_before_the_arrays(tmp_path: Path, error: Exception) -> None:
    """What is unusable is passed over with its reason; what is foreign ends the search."""
    two_checkpoints(tmp_path)

    def check(path: Path, facts: object) -> None:
        if path.name == "step-00000002":
            raise error

    if isinstance(error, Unusable):
        loaded = load_newest(tmp_path, LIKE, check)
        assert loaded is not None
        assert (loaded.step, len(loaded.skipped)) == (1, 1)
    else:
        with pytest.raises(RunDirectoryError, match="not of this run"):
            load_newest(tmp_path, LIKE, check)


def test_a_place_of_checkpoints_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(RunDirectoryError, match=r"cannot read .*checkpoints: Not a directory"):
        load_newest(tmp_path / "checkpoints", LIKE)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "checkpoints"
    save(elsewhere, state(2), step=2, facts={})
    save(directory, state(1), step=1, facts={})
    (directory / "step-00000002").symlink_to(elsewhere / "step-00000002")
    assert_falls_back(directory, "symbolic link")
    (directory / "step-00000002").unlink()
    (directory / "step-00000002").mkdir()
    for name in ("arrays.safetensors", "manifest.json"):
        (directory / "step-00000002" / name).symlink_to(elsewhere / "step-00000002" / name)
    assert_falls_back(directory, "symbolic links")
    (directory / "tmp-link").symlink_to(elsewhere)
    save(directory, state(3), step=3, facts={})
    assert names(elsewhere) == ["step-00000002"]


def test_bug_checkpoints_behind_a_link_were_swept_and_pruned(tmp_path: Path) -> None:
    """Unfinished work of somebody else, and all but the newest of their checkpoints, were removed."""
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "checkpoints"
    for step in (1, 2, 3):
        save(elsewhere, state(step), step=step, facts={}, keep=3)
    (elsewhere / "tmp-step-00000004").mkdir()
    before = names(elsewhere)
    directory.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="it is a link, which leads out of the run directory"):
        save(directory, state(4), step=4, facts={}, keep=1)
    with pytest.raises(RunDirectoryError, match="it is a link, which leads out of the run directory"):
        load_newest(directory, LIKE)
    assert names(elsewhere) == before


def test_a_link_among_unfinished_work_goes_and_its_target_stays(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "checkpoints"
    save(elsewhere, state(2), step=2, facts={})
    directory.mkdir()
    (directory / "tmp-step-00000001").symlink_to(elsewhere)  # in the way of the next checkpoint
    (directory / "tmp-mine").mkdir()
    save(directory, state(1), step=1, facts={})
    assert names(directory) == ["step-00000001", "tmp-mine"]
    assert names(elsewhere) == ["step-00000002"]


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    file = two_checkpoints(tmp_path) / "manifest.json"
    file.unlink()
    os.mkfifo(file)
    assert_falls_back(tmp_path, "manifest.json cannot be read")


def test_all_checkpoints_newest_first_and_the_damaged_ones_named(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, state(step), step=step, facts={}, keep=4)
    (tmp_path / "step-00000003" / "arrays.safetensors").write_bytes(b"damaged")
    found = list(newest_first(tmp_path, LIKE))
    assert [(loaded.step, int(loaded.tree["n"])) for loaded in found] == [(4, 4), (2, 2), (1, 1)]
    assert [len(loaded.skipped) for loaded in found] == [0, 1, 0]
    assert "step-00000003" in found[1].skipped[0]

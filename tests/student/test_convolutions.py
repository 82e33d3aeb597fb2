"""The forms for a CPU against plain convolutions differentiated by JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from cenie.student.convolutions import Convolution, _loop_safe, in_blocks, plain

CASES = {
    "first, in blocks": ((3, 24, 24, 12), 4, 8, 2),
    "second, odd": ((3, 15, 15, 8), 3, 16, 2),
    "second, a line left over": ((3, 16, 18, 5), 3, 4, 2),
    "not square": ((2, 12, 20, 3), 4, 4, 2),
    "stride 1": ((2, 12, 12, 3), 3, 4, 1),
    "stride 3, in blocks": ((2, 24, 24, 2), 3, 3, 3),
    "stride larger than the kernel": ((2, 24, 26, 2), 2, 3, 3),
    "few places": ((3, 5, 5, 8), 3, 16, 1),
    "one place": ((3, 3, 3, 8), 3, 16, 1),
}
"""Shape of the images, size of the kernel, channels made, stride."""


def arrays(case: str) -> tuple[Array, Array, Array, int]:
    shape, size, outputs, stride = CASES[case]
    keys = jax.random.split(jax.random.key(0), 3)
    images, kernel = (
        jax.random.normal(keys[0], shape),
        jax.random.normal(keys[1], (size, size, shape[-1], outputs)),
    )
    made = jax.eval_shape(lambda i, k: plain(i, k, stride), images, kernel)
    return images, kernel, jax.random.normal(keys[2], made.shape), stride


def assert_close(mine: Array, theirs: Array) -> None:
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-4 * float(jnp.abs(theirs).max()))


@pytest.mark.parametrize("in_loop", [False, True], ids=["outside", "in a loop"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_a_plain_convolution(case: str, in_loop: bool) -> None:
    images, kernel, pull, stride = arrays(case)

    def results(convolve, images: Array, kernel: Array):
        def value(images: Array, kernel: Array) -> tuple[Array, Array]:
            made = convolve(images, kernel, stride)
            return jnp.sum(made * pull), made

        return jax.grad(value, argnums=(0, 1), has_aux=True)(images, kernel)

    expected = results(plain, images, kernel)
    if in_loop:
        step = lambda carry, images: (carry, results(_loop_safe, images, kernel))  # noqa: E731
        mine = jax.jit(lambda images: jax.lax.scan(step, None, images)[1])(jnp.stack([images, images]))
        mine = jax.tree.map(lambda leaf: leaf[1], mine)
    else:
        mine = jax.jit(lambda *arguments: results(_loop_safe, *arguments))(images, kernel)
    jax.tree.map(assert_close, mine, expected)


def test_the_backend_decides_on_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Convolution(jax.random.key(0), inputs=3, outputs=4, size=3, stride=2)
    images = jnp.ones((1, 15, 15, 3))

    def has_own_gradient() -> bool:
        # A new function, so that nothing traced before is used again.
        return "custom_vjp" in str(jax.make_jaxpr(lambda images: layer(images))(images))

    assert has_own_gradient()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not has_own_gradient()


@pytest.mark.parametrize("shape", [(3, 12, 20, 4), (2, 14, 13, 4)], ids=["whole", "pixels left over"])
def test_images_in_blocks_make_what_they_make_side_by_side(shape: tuple[int, ...]) -> None:
    layer = Convolution(jax.random.key(0), inputs=4, outputs=5, size=4, stride=4)
    images = jax.random.normal(jax.random.key(1), shape)
    parts = [in_blocks(part, 4) for part in jnp.split(images, 2, axis=3)]
    expected, by_images = jax.value_and_grad(lambda layer: jnp.sum(layer(images) ** 2))(layer)
    found, by_blocks = jax.value_and_grad(lambda layer: jnp.sum(layer.of_blocks(parts) ** 2))(layer)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    jax.tree.map(assert_close, by_blocks, by_images)
    by_parts = jax.grad(lambda parts: jnp.sum(layer.of_blocks(parts) ** 2))(parts)
    image_gradient = jax.grad(lambda images: jnp.sum(layer(images) ** 2))(images)
    for part, whole in zip(by_parts, jnp.split(image_gradient, 2, axis=3)):
        assert_close(part, in_blocks(whole, 4))

"""Settings of the student. The defaults are the student of the paper's mazes.

Where a default comes from is said by the `source` of each setting: `paper` is the CENIE paper, and `original
code` the code base it ran on, with which PLR-perp and ACCEL were published.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cenie.settings import LARGEST_INT, Problem, setting
from cenie.spaces import Box, Discrete, Space, is_image, numbers_in

KERNEL = 3
"""Rows and columns that a convolution looks at together."""

Parts = Sequence[Space]
"""The parts of an observation: the leaves of the tree of its spaces."""


@dataclass(frozen=True)
class Conv:
    """A 3x3 convolution with ReLU over an image, beside a linear map of the rest of the observation.

    The entries of the image are divided by the largest number of their space.
    """

    kind: Literal["conv"] = "conv"
    channels: int = setting(
        16, minimum=1, maximum=65_536, help="Channels of the convolution.", source="original code, mazes"
    )
    rest_size: int = setting(
        5,
        minimum=1,
        maximum=65_536,
        help="Numbers to which the rest of the observation is mapped.",
        source="original code, mazes",
    )
    mapped: Literal["rest", "discrete"] = setting(
        "rest",
        help="The input of the linear map: all of the rest, or its discrete parts only; the others stay as "
        "they are.",
        source="original code, mazes",
    )

    def mapped_and_not(self, rest: Parts) -> tuple[tuple[Space, ...], tuple[Space, ...]]:
        """The parts of the rest that the linear map reads, and the others."""
        mapped = tuple(part for part in rest if self.maps(part))
        return mapped, tuple(part for part in rest if not self.maps(part))

    def maps(self, part: Space) -> bool:
        return self.mapped == "rest" or isinstance(part, Discrete)

    def width(self, parts: Parts) -> int:
        """The number of outputs of the encoder for an observation."""
        image, rest = image_and_rest(parts)
        rows, columns = (length - KERNEL + 1 for length in image.shape[:2])
        mapped, unmapped = self.mapped_and_not(rest)
        return rows * columns * self.channels + bool(mapped) * self.rest_size + _total(unmapped)

    def misfits(self, parts: Parts) -> Iterator[Problem]:
        """Why observations of these parts cannot be read."""
        yield from _image_misfits("conv", parts, KERNEL)


@dataclass(frozen=True)
class Bits:
    """A linear layer with ReLU on bits, much cheaper than a convolution.

    The bits say where in the first channel of an image each of the `codes` stands; the rest of the
    observation lies beside them.
    """

    kind: Literal["bits"] = "bits"
    size: int = setting(64, minimum=1, maximum=65_536, help="Units of the layer.", source="ours")
    codes: tuple[int, ...] = setting(
        (),
        help="The codes that are told apart; all whole numbers of the image's space if none is named.",
        source="ours",
    )

    def codes_of(self, image: Box) -> tuple[int, ...]:
        return self.codes or tuple(range(int(image.low), int(image.high) + 1))

    def inputs(self, parts: Parts) -> int:
        """The number of bits and other numbers the layer reads."""
        image, rest = image_and_rest(parts)
        return len(self.codes_of(image)) * math.prod(image.shape[:2]) + _total(rest)

    def width(self, parts: Parts) -> int:
        return self.size

    def misfits(self, parts: Parts) -> Iterator[Problem]:
        yield from _image_misfits("bits", parts, 1)
        for image in filter(is_image, parts):
            if not self.codes and not _are_codes(image):
                yield Problem("codes", "must be named for an image of other than 1 to 256 whole numbers")


@dataclass(frozen=True)
class Flat:
    """A linear layer with ReLU on all numbers of any observation; discrete parts are bits, one per value."""

    kind: Literal["flat"] = "flat"
    size: int = setting(64, minimum=1, maximum=65_536, help="Units of the layer.", source="ours")

    def width(self, parts: Parts) -> int:
        return self.size

    def misfits(self, parts: Parts) -> Iterator[Problem]:
        yield from ()


Encoder = Conv | Bits | Flat
"""The encoder of an observation, before it is remembered."""

Continuous = Literal["gaussian", "beta"]
"""Distributions of continuous actions: `gaussian` for the walker, `beta` on [0, 1] for the car."""

_ENCODER = "The first layer for observations."
_ENCODER_SOURCE = "ours; a student begins with conv, as in the original code for mazes"
_MEMORY_SIZE = "Units of the memory."
_HEAD_SIZE = "Units of the one hidden layer of the actor, and of the critic's."
_CONTINUOUS = "The distribution of continuous actions: gaussian, or beta on the range from 0 to 1."


def _encoder_misfits(network: "Lstm | Gru | Memoryless", parts: Parts, action: Space) -> Iterator[Problem]:
    """Why observations of these parts cannot be read."""
    for problem in network.encoder.misfits(parts):
        yield Problem(f"encoder.{problem.path}", problem.message)


@dataclass(frozen=True)
class Lstm:
    """Encoder, long short-term memory, and an actor and a critic with one hidden layer each."""

    kind: Literal["lstm"] = "lstm"
    encoder: Encoder = setting(factory=Flat, help=_ENCODER, source=_ENCODER_SOURCE)
    memory_size: int = setting(
        256, minimum=1, maximum=65_536, help=_MEMORY_SIZE, source="original code, mazes"
    )
    # The original code names (32, 32), but its builder makes one hidden layer.
    head_size: int = setting(32, minimum=1, maximum=65_536, help=_HEAD_SIZE, source="original code, mazes")
    forget_bias: float = setting(
        0.0,
        help="The initial biases of the forget gates: 1 remembers for longer at first.",
        source="original code, mazes",
    )
    continuous: Continuous = setting("gaussian", help=_CONTINUOUS, source="ours")

    recurrent: ClassVar[bool] = True
    misfits = _encoder_misfits


@dataclass(frozen=True)
class Gru:
    """Encoder, gated recurrent unit, and an actor and a critic with one hidden layer each."""

    kind: Literal["gru"] = "gru"
    encoder: Encoder = setting(factory=Flat, help=_ENCODER, source=_ENCODER_SOURCE)
    memory_size: int = setting(256, minimum=1, maximum=65_536, help=_MEMORY_SIZE, source="ours")
    head_size: int = setting(32, minimum=1, maximum=65_536, help=_HEAD_SIZE, source="ours")
    continuous: Continuous = setting("gaussian", help=_CONTINUOUS, source="ours")

    recurrent: ClassVar[bool] = True
    misfits = _encoder_misfits


@dataclass(frozen=True)
class Mlp:
    """Separate actor and critic without memory, which read all numbers of any observation."""

    kind: Literal["mlp"] = "mlp"
    hidden_sizes: tuple[int, ...] = setting(
        (64, 64),
        minimum=1,
        maximum=65_536,
        help="Units of each hidden layer of the actor, and of the critic.",
        source="original code, walker",
    )
    activation: Literal["tanh", "relu"] = setting(
        "tanh", help="The activation after each hidden layer.", source="original code, walker"
    )
    continuous: Continuous = setting("gaussian", help=_CONTINUOUS, source="original code, walker")

    recurrent: ClassVar[bool] = False

    def check(self) -> Iterator[Problem]:
        if not self.hidden_sizes:
            yield Problem("hidden_sizes", "must name at least one layer")

    def misfits(self, parts: Parts, action: Space) -> Iterator[Problem]:
        yield from ()


@dataclass(frozen=True)
class Memoryless:
    """Encoder, and an actor and a critic with one hidden layer each, without memory."""

    kind: Literal["memoryless"] = "memoryless"
    encoder: Encoder = setting(factory=Flat, help=_ENCODER, source=_ENCODER_SOURCE)
    head_size: int = setting(
        32,
        minimum=1,
        maximum=65_536,
        help=_HEAD_SIZE,
        source="original code, mazes: the designers of Minimax and REPAIRED",
    )
    continuous: Continuous = setting("gaussian", help=_CONTINUOUS, source="ours")

    recurrent: ClassVar[bool] = False
    misfits = _encoder_misfits


@dataclass(frozen=True)
class Pixels:
    """Convolutions over the last few images, and an actor and a critic with one hidden layer each.

    The defaults are the student of DCD's car, for images of 96 x 96; smaller ones need fewer layers, or
    smaller strides. The images of a step, oldest first, lie side by side as channels.
    """

    kind: Literal["pixels"] = "pixels"
    frames: int = setting(
        4,
        minimum=1,
        maximum=64,
        help="Images that a decision looks at; the first of an episode stands for those before it.",
        source="original code, racing",
    )
    channels: tuple[int, ...] = setting(
        (8, 16, 32, 64, 128, 256),
        minimum=1,
        maximum=65_536,
        help="Channels of each convolution.",
        source="original code, racing",
    )
    kernels: tuple[int, ...] = setting(
        (4, 3, 3, 3, 3, 3),
        minimum=1,
        maximum=64,
        help="Rows, and columns, that each convolution looks at together: one number for each layer.",
        source="original code, racing",
    )
    strides: tuple[int, ...] = setting(
        (2, 2, 2, 2, 1, 1),
        minimum=1,
        maximum=64,
        help="The stride of each convolution: one number for each layer.",
        source="original code, racing",
    )
    head_size: int = setting(100, minimum=1, maximum=65_536, help=_HEAD_SIZE, source="original code, racing")
    continuous: Continuous = setting("beta", help=_CONTINUOUS, source="original code, racing")

    recurrent: ClassVar[bool] = False

    def check(self) -> Iterator[Problem]:
        if not self.channels:
            yield Problem("channels", "must name at least one layer")
        for name in ("kernels", "strides"):
            if len(getattr(self, name)) != len(self.channels):
                number = f"{len(self.channels)} as channels, got {len(getattr(self, name))}"
                yield Problem(name, f"must have one number for each layer, {number}")

    def shapes(self, image: Space) -> Iterator[tuple[int, int, int]]:
        """Rows, columns and channels of what goes into the first layer and comes out of each."""
        rows, columns, depth = image.shape
        yield rows, columns, depth * self.frames
        for channels, kernel, stride in zip(self.channels, self.kernels, self.strides):
            rows, columns = ((length - kernel) // stride + 1 for length in (rows, columns))
            yield rows, columns, channels

    def misfits(self, parts: Parts, action: Space) -> Iterator[Problem]:
        if len(parts) != 1 or not is_image(parts[0]):
            what = "observations of one image, a part with three axes, and nothing else"
            yield Problem("kind", f"pixels reads {what}; flat reads any observation")
            return
        before = list(self.shapes(parts[0]))[:-1]
        for number, ((rows, columns, _), kernel) in enumerate(zip(before, self.kernels)):
            if kernel > min(rows, columns):
                size = " x ".join(map(str, parts[0].shape[:2]))
                left = f"{max(rows, 0)} x {max(columns, 0)} that the layers before leave of {size} pixels"
                yield Problem(
                    "kernels", f"layer {number + 1} looks at {kernel} x {kernel}, more than the {left}"
                )
                return


@dataclass(frozen=True)
class Board:
    """For actions that choose a tile of an image, such as a designer's: smooth over the board, no memory.

    The things on the board are read as cosine waves along both axes, and as many waves give the preferences.
    A rule such as "far from the goal" is then a few weights, which noisy rewards can teach, where other
    networks learn every pair of tiles for itself. Tiles are numbered along the first axis first; a border of
    the image that cannot be chosen is not read. Beside the image only discrete parts are read: noise has
    nothing to say to a designer whose choices are drawn at random anyway.
    """

    kind: Literal["board"] = "board"
    waves: int = setting(
        4,
        minimum=1,
        maximum=128,
        help="Waves along each axis: the first is flat, the second has its crest and its trough at the ends.",
        source="ours",
    )
    codes: tuple[int, ...] = setting(
        (),
        help="Codes in the first channel of the image that are told apart; all of its space if none "
        "is named.",
        source="ours",
    )
    head_size: int = setting(32, minimum=1, maximum=65_536, help=_HEAD_SIZE, source="ours")

    recurrent: ClassVar[bool] = False

    def codes_of(self, image: Box) -> tuple[int, ...]:
        return Bits(codes=self.codes).codes_of(image)

    def inputs(self, parts: Parts) -> int:
        """The number of inputs: waves of the things on the board, and bits of discrete parts."""
        image, rest = image_and_rest(parts)
        discrete = [part for part in rest if isinstance(part, Discrete)]
        return len(self.codes_of(image)) * self.waves**2 + _total(discrete)

    def misfits(self, parts: Parts, action: Space) -> Iterator[Problem]:
        problems = list(Bits(codes=self.codes).misfits(parts))
        yield from (Problem(problem.path, problem.message.replace("bits", "board")) for problem in problems)
        if problems:
            return
        image, _ = image_and_rest(parts)
        if not isinstance(action, Discrete) or border_of(image, action.n) is None:
            size = " x ".join(map(str, image.shape[:2]))
            yield Problem(
                "kind", f"board needs one action for each tile of its image ({size}, or less a border)"
            )


NetworkConfig = Lstm | Gru | Mlp | Memoryless | Pixels | Board
"""The network of a student."""


def image_and_rest(parts: Parts) -> tuple[Box, tuple[Space, ...]]:
    """The image of an observation that has just one, and its other parts."""
    (image,) = (part for part in parts if is_image(part))
    assert isinstance(image, Box)
    return image, tuple(part for part in parts if not is_image(part))


def border_of(image: Box, tiles: int) -> int | None:
    """The width of the border that leaves `choices` tiles of the image; None if no border does."""
    rows, columns = image.shape[:2]
    wide = range((min(rows, columns) + 1) // 2)
    return next((b for b in wide if (rows - 2 * b) * (columns - 2 * b) == tiles), None)


def _image_misfits(kind: str, parts: Parts, smallest: int) -> Iterator[Problem]:
    images = [part for part in parts if is_image(part)]
    if len(images) != 1:
        what = "one part of an observation with three axes, an image"
        yield Problem("kind", f"{kind} needs {what}, got {len(images)}; flat reads any observation")
    elif min(images[0].shape[:2]) < smallest:
        size = " x ".join(map(str, images[0].shape[:2]))
        yield Problem("kind", f"{kind} needs an image of at least {smallest} x {smallest}, got {size}")


def _are_codes(image: Space) -> bool:
    """Whether the entries are so few whole numbers that each can have its bit."""
    return isinstance(image, Box) and "int" in image.dtype and image.high - image.low < 256


def _total(parts: Parts) -> int:
    return sum(map(numbers_in, parts))


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation. One update is one rollout: `epochs` passes over `minibatches` parts."""

    learning_rate: float = setting(
        1e-4, above=0.0, help="The size of Adam's steps, before it falls.", source="paper, mazes"
    )
    final_learning_rate_fraction: float = setting(
        1.0,
        minimum=0.0,
        maximum=1.0,
        help="The learning rate falls linearly to this fraction over decay_updates updates and stays there.",
        source="original code: the rate stays the same",
    )
    decay_updates: int | None = setting(
        None,
        minimum=1,
        help="Updates over which the learning rate falls; null stands for the length of the run, which is "
        "filled in for the student when the run begins.",
        source="ours",
    )
    decay_from: int = setting(
        0,
        minimum=0,
        help="Until this update the learning rate is the full one. A run made longer may let it fall "
        "once more.",
        source="ours",
    )
    gamma: float = setting(
        0.995, minimum=0.0, maximum=1.0, help="The discount of later rewards.", source="paper, mazes"
    )
    gae_lambda: float = setting(
        0.95,
        minimum=0.0,
        maximum=1.0,
        help="The lambda of generalised advantage estimation.",
        source="paper, mazes",
    )
    clip: float = setting(
        0.2,
        above=0.0,
        help="The range in which the ratio of probabilities may differ from 1, and clipped values from the "
        "old ones.",
        source="paper",
    )
    value_clip: bool = setting(
        True,
        help="Whether the loss of values is the squared error with clipped values; else it is a Huber loss.",
        source="paper, mazes",
    )
    value_coef: float = setting(0.5, minimum=0.0, help="The weight of the loss of values.", source="paper")
    entropy_coef: float = setting(
        0.0,
        minimum=0.0,
        help="The weight of the entropy of actions, which keeps the policy random.",
        source="paper, mazes and racing: its students",
    )
    max_grad_norm: float = setting(
        0.5, above=0.0, help="Longer gradients are cut to this norm.", source="paper"
    )
    adam_eps: float = setting(1e-5, above=0.0, help="The epsilon of Adam.", source="paper")
    epochs: int = setting(
        5,
        minimum=1,
        maximum=10_000,
        help="Passes over each rollout in an update.",
        source="paper, mazes and walker",
    )
    minibatches: int = setting(
        1,
        minimum=1,
        help="Parts of a rollout, with a gradient step for each: whole columns for a network with memory, "
        "equal parts of all steps otherwise.",
        source="paper, mazes",
    )
    normalise_returns: bool = setting(
        False,
        help="Whether rewards are divided by the running deviation of discounted returns (a designer's: its "
        "utilities by theirs).",
        source="paper, mazes",
    )
    bootstrap_at_rollout_end: bool = setting(
        True,
        help="Whether the end of a rollout counts as a cut, with the value of what follows, and not as the "
        "end of the episode.",
        source="ours; the original code takes it for the end of the episode",
    )
    bootstrap_at_timeout: bool = setting(
        False,
        help="Whether a time limit counts as a cut, and not as the end of the episode.",
        source="original code",
    )
    max_bad_updates: int = setting(
        10,
        minimum=1,
        help="The run stops after this many updates in a row with a loss or a gradient that is not finite.",
        source="ours",
    )


@dataclass(frozen=True)
class StudentConfig:
    """A student, and the size of its rollouts: `num_levels` columns of `num_steps` steps."""

    network: NetworkConfig = setting(
        factory=lambda: Lstm(encoder=Conv()),
        help="The network that decides and judges: lstm and gru remember, mlp and memoryless do not, and "
        "pixels looks at the last few images.",
        source="paper, mazes",
    )
    ppo: PPOConfig = setting(factory=PPOConfig, help="The student's learning from a rollout.")
    num_levels: int = setting(
        32,
        minimum=1,
        maximum=1_000_000,
        help="Levels that are played side by side: the columns of a rollout.",
        source="paper, mazes",
    )
    num_steps: int = setting(
        256, minimum=2, maximum=1_000_000, help="Steps of a rollout in each column.", source="paper, mazes"
    )

    @property
    def levels_per_minibatch(self) -> int:
        """The largest number of devices that can share both the levels and every minibatch evenly."""
        if self.network.recurrent:
            return self.num_levels // self.ppo.minibatches
        return math.gcd(self.num_levels, self.num_levels * self.num_steps // self.ppo.minibatches)

    def check(self) -> Iterator[Problem]:
        """Minibatches are whole columns for a student with memory, and equal parts of all steps otherwise."""
        if self.network.recurrent and self.num_levels % self.ppo.minibatches:
            yield Problem(
                "ppo.minibatches",
                f"must divide num_levels ({self.num_levels}) for a student with memory, "
                f"got {self.ppo.minibatches}",
            )
        if not self.network.recurrent and self.num_levels * self.num_steps % self.ppo.minibatches:
            yield Problem(
                "ppo.minibatches",
                f"must divide num_levels * num_steps ({self.num_levels * self.num_steps}), "
                f"got {self.ppo.minibatches}",
            )
        if self.num_levels * self.num_steps > LARGEST_INT:
            yield Problem("num_steps", f"times num_levels ({self.num_levels}) must be at most {LARGEST_INT}")

"""What a compiled program exchanges between devices, read from its text."""

import re
from typing import Literal

EXCHANGE = re.compile(
    r"= .*\b(all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(-start)?\("
)
CALLED = re.compile(
    r"(?:calls|to_apply|condition|body|branch_computations|true_computation|false_computation)="
    r"(\{[^}]*\}|%?[\w.-]+)"
)
NAME = re.compile(r"%?([\w.-]+)")


def exchanges(text: str) -> list[str]:
    """All exchanges of a program."""
    return [line.strip() for line in text.splitlines() if EXCHANGE.search(line)]


def exchanges_in_loops(text: str, part: Literal["condition", "body"]) -> list[str]:
    """Those in the condition of a loop, or in its body, or in what these call.

    XLA on CPU does not order them against the other exchanges of the program. Two devices may then wait for
    each other, each in another exchange and each on a thread that the other one needs.
    """
    blocks = re.split(r"\n(?=[%\w])", text)
    bodies = {NAME.match(block.removeprefix("ENTRY "))[1]: block for block in blocks}  # pyright: ignore[reportOptionalSubscript]

    def reached(name: str, seen: set[str]) -> set[str]:
        if name in bodies and name not in seen:
            seen.add(name)
            for group in CALLED.findall(bodies[name]):
                for inner in NAME.findall(group):
                    reached(inner, seen)
        return seen

    parts = re.findall(rf"{part}=%?([\w.-]+)", text)
    assert parts
    assert all(name in bodies for name in parts)
    names = set().union(*(reached(name, set()) for name in parts))
    return [line for name in sorted(names) for line in exchanges(bodies[name])]

"""The names and weights of the scores by which stored levels are ranked, as text. Imports no JAX."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

REGRET, NOVELTY = "regret", "novelty"
"""The column of the score that a method's settings name, whichever that is; and the column of novelty."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TAKEN = frozenset((
    "cycle", "student", "index", "kind", "id", "parent", "generation", "return", "solved",
    "episodes", "length", "probability", "staleness", "last_played", "clock", "levels", "alpha",
    "inserted", "stayed", "duplicates", "unscored", "equal_scores", "buffer_size",
    "buffer_fill", "largest_probability", "score_age", "levels_until_replay",
    "transition_error", "colearnability", "age", "outdated", "fitted", "failed_fits",
    "mean_distance", "admitted", "newest_return",
))  # fmt: skip
"""Other columns of a level's records, or logs of the level buffer."""
_TAKEN_ENDS = ("_weighted", "_total", "_correlation")
"""Ends of names in the log that are made from the name of a score."""


def score_columns(names: Iterable[str]) -> list[str]:
    """Which columns of a table of levels, or arrays of a snapshot's level buffer, are scores."""
    return [name for name in names if _NAME.fullmatch(name) and name not in _TAKEN]


def name_problem(name: Any) -> str | None:
    """Why this cannot be the name of a score in logs and tables; None if it can be."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "must begin with a letter and consist of at most 64 letters, digits, dots, - and _"
    if name == NOVELTY or name in _TAKEN or name.endswith(_TAKEN_ENDS):
        return "is the name of something else in logs and tables; choose another one"
    return None


def weight_problem(weight: Any) -> str | None:
    """Why this cannot be the weight of a score; None if it can be."""
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    return None if is_number and 0.0 <= weight < math.inf else "must be a number of at least 0"


def parse_weighted(text: str) -> tuple[str, float]:
    """A name and its weight, as in `maxmc:0.5`; without a weight it is 1.

    Raises:
        ValueError: The weight is no number of at least 0.

    >>> parse_weighted("maxmc:0.5"), parse_weighted("td")
    (('maxmc', 0.5), ('td', 1.0))
    """
    name, colon, number = text.partition(":")
    if not colon:
        return name, 1.0
    try:
        weight = float(number)
    except ValueError:
        weight = math.nan
    if (problem := weight_problem(weight)) is not None:
        raise ValueError(f"the weight {problem}")
    return name, weight


def problems_of_weighted(texts: Iterable[str], known: tuple[str, ...]) -> Iterator[str]:
    """Yield the problems of a list of names and weights; each name must be `known`."""
    names, total = [], 0.0
    for text in texts:
        try:
            name, weight = parse_weighted(text)
        except ValueError as error:
            yield f"{text!r} must be NAME or NAME:WEIGHT: {error}"
            return
        if name not in known:
            yield f"must be of {', '.join(known)}, got {text!r}"
            return
        names.append(name)
        total += weight
    if len(set(names)) < len(names):
        yield "names a score twice"
    elif names and not total > 0:
        yield "needs a weight above 0"

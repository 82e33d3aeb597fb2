"""The arguments of `Teacher`: all that is wrong with them is said at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from cenie.methods.plr import named_columns
from cenie.settings import Problem, SettingsError, show
from cenie.teach.curriculum import Column


class Arguments:
    """Reads arguments one by one, and collects what is wrong with them for `finish`."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []

    def finish(self) -> None:
        """Raise `SettingsError` with everything that was wrong."""
        if self._problems:
            raise SettingsError(self._problems)

    def choice(self, name: str, value: Any, choices: tuple[str, ...]) -> None:
        if not isinstance(value, str) or value not in choices:
            self._wrong(name, f"must be one of {', '.join(choices)}", value)

    def function(self, name: str, value: Any) -> None:
        if not callable(value):
            self._wrong(name, "must be a function", value)

    def whole(self, name: str, value: Any, smallest: int, largest: int | None = None) -> int:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if is_whole and smallest <= value and (largest is None or value <= largest):
            return int(value)
        limit = "" if largest is None else f" and at most {largest}"
        self._wrong(name, f"must be a whole number of at least {smallest}{limit}", value)
        return smallest

    def share(self, name: str, value: Any) -> float:
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if is_number and 0.0 <= value <= 1.0:
            return float(value)
        self._wrong(name, "must be between 0 and 1", value)
        return 0.0

    def changes(self, name: str, value: Any) -> dict[str, Any]:
        """Settings by their paths."""
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(path, str) for path in value):
            self._wrong(name, "must be a dict of settings by their paths", value)
            return {}
        return {path: new.item() if isinstance(new, np.generic) else new for path, new in value.items()}

    def columns(self, scores: Any, weights: Any) -> tuple[Column, ...] | None:
        """The scores as columns of the level buffer; None if none were passed."""
        if scores is None:
            if weights is not None:
                self._wrong("weights", "need scores", weights)
            return None
        for name, value in (("scores", scores), ("weights", weights)):
            if value is not None and not isinstance(value, Mapping):
                self._wrong(name, "must be a dict by the names of scores", value)
                return None
        try:
            return named_columns(scores, weights)
        except SettingsError as error:
            self._problems += error.problems
            return None

    def _wrong(self, name: str, rule: str, value: Any) -> None:
        self._problems.append(Problem(name, f"{rule}, got {show(value)}"))

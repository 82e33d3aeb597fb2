"""The card of an exported student, and its scores with intervals (docs/guides/export.md). Loads no JAX."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cenie import __version__
from cenie.experiment.config import Config
from cenie.methods.table import OWN, ROWS
from cenie.rundir.evaluations import Episodes
from cenie.rundir.run import Run

_Z = 1.959964
"""Standard deviations on either side of the middle of a 95 % interval."""


@dataclass(frozen=True)
class StudentFacts:
    """The facts of `config.json` about a student, besides the settings of its run.

    `cycle`, `updates` and `env_steps` say how far the run was, `command` how to train it again (None if no
    command can), `params` and `leaves` what `params.safetensors` holds.
    """

    format: int
    version: str
    cycle: int
    updates: int
    env_steps: int
    command: str | None
    licence: str | None
    scores: list[dict[str, Any]]
    params: dict[str, Any]
    leaves: dict[str, Any]


@dataclass(frozen=True)
class Score:
    """The mean score of a student on a suite, with a 95 % interval for it."""

    suite: str
    measure: str
    mean: float
    low: float
    high: float
    levels: int
    episodes: int


def scores_of(run: Run, cycle: int) -> list[Score]:
    """The scores of the student after a cycle on every suite that it has played."""
    found = {suite: run.evaluations.of(suite).after(cycle) for suite in run.evaluations.suites()}
    for suite, episodes in run.later_evaluations.items():
        later = episodes.after(cycle)
        if len(later) >= len(found.get(suite, ())):
            found[suite] = later
    scores = [score_with_interval(suite, episodes) for suite, episodes in found.items() if len(episodes)]
    return [score for score in scores if math.isfinite(score.mean)]


def score_with_interval(suite: str, episodes: Episodes) -> Score:
    """The mean over the levels of a suite, and a 95 % interval for it over other episodes on these levels.

    For solved rates it is Wilson's interval, which has a width even where every episode was solved. For other
    scores it is the normal one, from the variance of the episodes on each level.

    Args:
        suite: its name.
        episodes: of one student on the suite.

    Returns:
        The score. It is not about other students: seeds of training differ by more than episodes do.
    """
    names, level, counts = np.unique(episodes.level.astype(str), return_inverse=True, return_counts=True)
    means = np.bincount(level, episodes.score) / counts
    mean = float(means.mean())
    if np.array_equal(episodes.score, episodes.solved):
        measure = "solved"
        # As many episodes as would count alike, if levels were played unequally often.
        size = len(names) ** 2 / np.sum(1.0 / counts)
        middle = (mean + _Z**2 / (2 * size)) / (1 + _Z**2 / size)
        half = _Z * math.sqrt(mean * (1 - mean) / size + _Z**2 / (4 * size**2)) / (1 + _Z**2 / size)
    else:
        measure, middle = "score", mean
        spread = np.bincount(level, (episodes.score - means[level]) ** 2) / np.maximum(counts - 1, 1)
        half = _Z * math.sqrt(float(np.sum(spread / counts))) / len(names)
    low, high = float(middle - half), float(middle + half)
    return Score(suite, measure, mean, low, high, len(names), len(episodes))


def model_card(config: Config, facts: StudentFacts) -> str:
    """The text of `README.md`: what the student is, how it was made, and how well it plays."""
    numbers = sum(math.prod(leaf["shape"]) for leaf in facts.leaves.values())
    method = "a curriculum of its author's own" if config.method == OWN else ROWS[config.method].summary
    rows = [
        ("domain", f"`{config.domain}`: {config.entry.summary}"),
        ("method", f"`{config.method}`: {method}"),
        ("preset", f"`{config.preset}`"),
        ("seed", str(config.seed)),
        ("trained for", f"{facts.updates:,} updates, {facts.env_steps:,} environment steps"),
        ("budget of the run", f"{config.updates:,} updates"),
        ("network", f"`{config.students[0].network.kind}`, {numbers:,} parameters"),
        ("version of cenie", facts.version),
        ("licence", facts.licence or "not stated; cenie, which made it, is under Apache-2.0"),
    ]
    scores = "".join(
        f"| `{score['suite']}` | {score['measure']} | {score['mean']:.3f} | {score['low']:.3f} to "
        f"{score['high']:.3f} | {score['levels']} | {score['episodes']} |\n"
        for score in facts.scores
    )
    return _CARD.format(
        title=f"A student of {config.method} on {config.domain}",
        rows="".join(f"| {name} | {text} |\n" for name, text in rows),
        scores=_SCORES.format(rows=scores) if scores else "This student has not been evaluated.\n",
        command=facts.command or "# none: parts of the run were passed from Python",
        version=__version__,
    )


_SCORES = """\
| suite | measure | mean | 95 % interval | levels | episodes |
|---|---|---|---|---|---|
{rows}
The interval is about other episodes of this student on these levels. Students of other seeds differ by more.
"""

_CARD = """\
# {title}

| | |
|---|---|
{rows}
## Scores on held-out levels

{scores}
## Use

```bash
cenie evaluate DIR                  # DIR is this directory
cenie play DIR
```

```python
import cenie

student = cenie.load_student("DIR")
suite = student.domain.suites[student.config.run.suite]()
rows = cenie.evaluate(student.domain, student.network, suite, episodes=10, seed=0)
```

## Training it again

```bash
{command}
```

Written by cenie {version}. `params.safetensors` holds the network, `config.json` the settings of the run.
"""

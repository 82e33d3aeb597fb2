"""A student by itself: `params.safetensors`, `config.json` and a card (docs/guides/export.md).

`export_student` writes such a directory, `load_student` and `open_student` read it. As with a run directory,
nothing in it is ever executed, and nothing is read through links.
"""

import functools
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cenie import settings
from cenie.envs.domains import find_domain
from cenie.experiment.config import MAX_FILE_BYTES, Config, EvaluationRequest, read_config
from cenie.rundir import manifest as manifests
from cenie.rundir.again import train_command
from cenie.rundir.card import StudentFacts, model_card, scores_of
from cenie.rundir.documents import check_domain
from cenie.rundir.evaluations import Episodes
from cenie.rundir.files import RunDirectoryError, read_json
from cenie.rundir.manifest import Unusable
from cenie.rundir.run import Run
from cenie.system.durable import TEMPORARY, WriteError, explain, strict_json, sync_directory, write_new

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from cenie.envs.base import Domain
    from cenie.student.networks.base import Network

FORMAT = 1
PARAMS, CONFIG, CARD = "params.safetensors", "config.json", "README.md"


@dataclass(frozen=True, eq=False)
class Student:
    """An exported student: all that playing takes, and nothing that training takes. `network` and `domain`
    are what `cenie.evaluate` needs.

    Attributes:
        path: The directory.
        config: The settings of the run.
        facts: How far the run was, the scores, and what the parameters are.
    """

    path: Path
    config: Config
    facts: StudentFacts
    devices: int | None = None
    """On how many devices to play; None for as many as the config says."""

    @functools.cached_property
    def domain(self) -> "Domain":
        """The domain that the student was trained on, with the settings of its run."""
        return self.config.built_domain

    @functools.cached_property
    def network(self) -> "Network":
        """The network. Raises `RunDirectoryError` if the directory does not hold it."""
        import jax

        from cenie.rundir import checkpoint
        from cenie.student.networks.table import make_network
        from cenie.xla import devices

        environment, chosen = self.domain.environment, self.config.students[0].network
        make = functools.partial(
            make_network, chosen, environment.observation_space, environment.action_space
        )
        like = jax.eval_shape(make, jax.eval_shape(lambda: jax.random.key(0)))
        try:
            checkpoint.check_fits(self.facts.leaves, like)
            content = manifests.read_arrays(
                self.path / PARAMS, self.facts.params, checkpoint.largest_file(like)
            )
            return devices.place(self.mesh, checkpoint.unpack(content, self.facts.leaves, like, PARAMS))
        except Unusable as error:
            raise RunDirectoryError(f"{self.path} holds no student that can be used: {error}") from error

    @functools.cached_property
    def mesh(self) -> "Mesh | None":
        """The devices that share the levels of an evaluation."""
        import jax

        from cenie.xla.devices import level_mesh

        run = self.config.run if self.devices is None else replace(self.config.run, devices=self.devices)
        return level_mesh(replace(self.config, run=run).device_count(jax.device_count()))

    @property
    def passed_over(self) -> list[str]:
        """Newer checkpoints that could not be used, as a run has them: none."""
        return []

    def evaluate(self, request: EvaluationRequest, *, quiet: bool = False) -> Episodes:
        """Play a suite as `cenie evaluate` does, and write the table into the directory of the student.

        Args:
            request: Suite, episodes and seed.
            quiet: Print nothing.

        Returns:
            Every episode.

        Raises:
            RunDirectoryError: The directory does not hold the network.
            WriteError: The disk refuses the table.
        """
        from cenie.rundir.evaluate import Player, evaluate_players

        facts = self.facts
        return evaluate_players(
            [Player(facts.cycle, facts.updates, facts.env_steps, self.network)],
            self.config,
            request,
            directory=self.path,
            domain=self.domain,
            mesh=self.mesh,
            quiet=quiet,
        )


def is_student(path: Path) -> bool:
    """Whether a directory is an exported student rather than a run; whether it can be read is another
    question."""
    return os.path.lexists(path / PARAMS)


def load_student(path: str | Path, *, domain: "str | Domain | None" = None) -> Student:
    """Open a student that `cenie export` has written.

    Args:
        path: the directory.
        domain: the domain, if it is one of your own. One that the directory names as `module:attribute` must
            be named here too, since no code is run because a file says so.

    Returns:
        The student, with its `domain` and its `network`.

    Raises:
        SettingsError: the settings cannot be read, or are of another domain.
        RunDirectoryError: the directory is not an exported student, or is damaged; the message says how.
    """
    entry = None
    if domain is not None:
        from cenie.envs.loading import checked

        entry = find_domain(domain) if isinstance(domain, str) else checked(domain)
    student = open_student(Path(path), entry, named=domain)
    student.network  # noqa: B018
    return student


def open_student(
    path: Path,
    entry: "Domain | None" = None,
    *,
    named: "str | Domain | None" = None,
    devices: int | None = None,
) -> Student:
    """The same without the network, which is read when it is asked for. Starts no backend.

    The domain is `entry` if it is one of the user's own, and `named` is what they called it.
    """
    if path.is_dir() and not is_student(path):
        raise RunDirectoryError(f"{path} is no exported student: it has no {PARAMS}")
    data = read_json(path / CONFIG, MAX_FILE_BYTES)
    if not isinstance(data, dict) or "settings" not in data:
        raise RunDirectoryError(f"{path / CONFIG} does not describe an exported student")
    if data.get("format") != FORMAT:
        found = settings.show(data.get("format"))
        raise RunDirectoryError(f"{path} has format {found}, and this version of cenie reads format {FORMAT}")
    wrong = [name for name, kinds in _KINDS.items() if not isinstance(data.get(name), kinds)]
    if wrong:
        raise RunDirectoryError(f"{path / CONFIG} lacks {', '.join(wrong)}, or they are of another kind")
    facts = StudentFacts(**{name: data[name] for name in _KINDS})
    check_domain(data["settings"], named)
    return Student(path, read_config(data["settings"], entry), facts, devices)


_KINDS: dict[str, Any] = {
    "format": int,
    "version": str,
    "cycle": int,
    "updates": int,
    "env_steps": int,
    "command": str | None,
    "licence": str | None,
    "scores": list,
    "params": dict,
    "leaves": dict,
}


def export_student(
    run: Run, out: str | Path | None = None, *, cycle: int | None = None, licence: str | None = None
) -> Path:
    """Write the student of a run by itself, so that others can play it without the run.

    The run may go on meanwhile. The directory is there in full or not at all.

    Args:
        run: the run, as from `cenie.load_run`.
        out: the directory, which must not exist or be empty; by default the run's with `-student` behind it.
        cycle: of the checkpoint; by default the newest.
        licence: under which the student is given away, for its card.

    Returns:
        The directory.

    Raises:
        RunDirectoryError: there is no such checkpoint, the network is one of your own, or the directory is
            used for something else.
        WriteError: the disk refuses.
    """
    from cenie.rundir import checkpoint

    own = [part for part in run.config.from_python if part.startswith("network ")]
    if own:
        raise RunDirectoryError(
            f"{run.path} has a network of your own ({own[0].removeprefix('network ')}), and no file says how "
            "to build it: only networks of cenie are exported; open the run itself with cenie.load_run"
        )
    path = default_directory(run.path) if out is None else Path(out)
    check_free(path)
    loaded = run.load(cycle)
    student = loaded.tree.students[0].network
    content, leaves = checkpoint.pack(student)
    facts = StudentFacts(
        format=FORMAT,
        version=str(loaded.facts["version"]),
        cycle=loaded.step,
        updates=loaded.facts["updates"],
        env_steps=loaded.facts["env_steps"],
        command=train_command(settings.to_data(run.config)),
        licence=licence,
        scores=[vars(score) for score in scores_of(run, loaded.step)],
        params=manifests.describe(content),
        leaves=leaves,
    )
    described = strict_json({**vars(facts), "settings": settings.to_data(run.config)})
    card = model_card(run.config, facts)
    _write(path, {PARAMS: content, CONFIG: described.encode(), CARD: card.encode()})
    return path


def default_directory(run: Path) -> Path:
    """Where the student of a run goes unless another directory is named."""
    resolved = run.resolve()
    return resolved.with_name(f"{resolved.name}-student")


def check_free(path: Path) -> None:
    """Raise `RunDirectoryError` if anything is in the place of a directory to be written. Touches nothing."""
    try:
        if path.is_symlink() or os.listdir(path):
            raise RunDirectoryError(
                f"{path} is there already, and stays as it is; --out DIR names another, which is not there "
                "is empty"
            )
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = explain(error) if isinstance(error, OSError) else error
        raise RunDirectoryError(f"cannot write {path}: {reason}") from error


def _write(path: Path, files: dict[str, bytes]) -> None:
    """Write a directory that is there in full or not at all."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, content in files.items():
            write_new(temporary / name, content)
        sync_directory(temporary)
        os.rename(temporary, path)  # takes the place of an empty directory, and of nothing else
        sync_directory(path.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise WriteError(f"cannot write {path}: {explain(error)}", error.errno) from error

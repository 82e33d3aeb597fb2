"""`cenie evaluate`: play held-out levels with the last students of a run."""

from pathlib import Path

from cenie.command.configs import open_player
from cenie.command.exit_codes import OK
from cenie.command.options import plain
from cenie.experiment.config import evaluation_request
from cenie.experiment.devices import prepare_devices
from cenie.rundir.export import Student
from cenie.rundir.resume import check_evaluation, check_writable
from cenie.settings import Problem, SettingsError

USAGE = """\
cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]

plays held-out levels with the last student of a run, or with an exported one, and writes one row per episode
to DIR; with --checkpoints N: with the last N students of a run, and prints the mean of their scores
"""


def evaluate_command(words: list[str], options: dict[str, str]) -> int:
    if len(words) != 1:
        expected = USAGE.splitlines()[0].removeprefix("cenie evaluate ")
        raise SettingsError([Problem("evaluate", f"expected {expected}")])
    player = open_player(Path(words[0]), options.pop("domain", None))
    config = player.config
    request = evaluation_request(config, {key: plain(value) for key, value in options.items()})
    if isinstance(player, Student):
        check_writable(player.path)
        prepare_devices(config)
        player.evaluate(request)
        return OK
    prepare_devices(config)
    check_evaluation(config, player.files, request)
    from cenie.rundir.evaluate import evaluate_run

    evaluate_run(config, player.files, request)
    return OK

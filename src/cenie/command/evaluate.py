"""`cenie evaluate`: play held-out levels with the last students of a run."""

from pathlib import Path

from cenie.command.exit_codes import OK
from cenie.command.options import load_run_config, plain
from cenie.experiment.config import evaluation_request
from cenie.experiment.devices import prepare_devices
from cenie.rundir.files import RunDirectory
from cenie.rundir.resume import check_evaluation
from cenie.settings import Problem, SettingsError

USAGE = """\
cenie evaluate DIR [--suite NAME] [--episodes N] [--seed S] [--checkpoints N]

plays held-out levels with the last student of a run and writes one row per episode to DIR;
with --checkpoints N: with the last N students, and prints the mean of their scores
"""


def evaluate_command(words: list[str], options: dict[str, str]) -> int:
    if len(words) != 1:
        expected = USAGE.splitlines()[0].removeprefix("cenie evaluate ")
        raise SettingsError([Problem("evaluate", f"expected {expected}")])
    directory = RunDirectory(Path(words[0]))
    config = load_run_config(directory.path, options.pop("domain", None))
    request = evaluation_request(config, {key: plain(value) for key, value in options.items()})
    prepare_devices(config)
    check_evaluation(config, directory, request)
    from cenie.rundir.evaluate import evaluate_run

    evaluate_run(config, directory, request)
    return OK

"""`cenie evaluate`: play a suite with the newest student of a run directory."""

from rich.console import Console
from rich.table import Table

from cenie.run import checkpoint
from cenie.run.build import build, place
from cenie.run.config import Config, EvaluationRequest
from cenie.run.directory import RunDirectory, RunDirectoryError
from cenie.run.evaluate import evaluate, solved_rates, suite_mean
from cenie.run.metrics import EvaluationTable
from cenie.teach.cycle import init


def examine(config: Config, directory: RunDirectory, request: EvaluationRequest) -> None:
    """Evaluate, print the solved rates, and write one row per episode beside the run's own table."""
    console = Console()
    domain, setup = build(config)
    loaded = checkpoint.load_newest(directory.checkpoints, init(setup, config.seed))
    if loaded is None:
        raise RunDirectoryError(f"{directory.path} has no checkpoint to evaluate")
    for message in loaded.skipped:
        console.print(message, style="yellow", markup=False)
    state = place(setup, loaded.tree)
    updates = int(state.counters.updates)
    with console.status(f"playing {request.suite} after {updates} updates") as status:
        rows = evaluate(
            domain,
            state.student.network,
            domain.suites[request.suite](),
            episodes=request.episodes,
            seed=request.seed,
            mesh=setup.mesh,
            progress=lambda done, total: status.update(f"{request.suite}: {done} of {total} episodes"),
        )
    path = directory.path / f"evaluation-{request.suite}-seed{request.seed}-cycle{loaded.step}.csv"
    path.unlink(missing_ok=True)
    EvaluationTable(path).write(loaded.step, updates, int(loaded.facts["env_steps"]), rows)
    rates = solved_rates(rows)
    table = Table("held-out level", "solved", title=f"{request.suite} after {updates} updates")
    for level, rate in rates.items():
        table.add_row(level, f"{rate:.2f}")
    table.add_section()
    table.add_row("mean", f"{suite_mean(rates):.3f}")
    console.print(table)
    console.print(f"rows: {path}", markup=False, highlight=False, soft_wrap=True)

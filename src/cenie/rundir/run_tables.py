"""All that a run adds to while it goes on: its tables and snapshots, opened and counted. Loads no JAX."""

from collections.abc import Mapping
from dataclasses import dataclass

from cenie.rundir.evaluations import EvaluationTable
from cenie.rundir.files import RunDirectory
from cenie.rundir.levels import LevelTable
from cenie.rundir.metrics import JsonLines
from cenie.rundir.snapshots import Snapshots, cut_snapshots
from cenie.rundir.tables import cut_after


@dataclass(frozen=True)
class RunTables:
    """The open tables of a run."""

    metrics: JsonLines
    timing: JsonLines
    evaluations: EvaluationTable
    levels: LevelTable
    snapshots: Snapshots

    def rows(self) -> dict[str, int]:
        """The number of rows each table should have, and of snapshots there should be; not the times."""
        return {name: table.rows for name, table in self._counted().items()}

    def found(self) -> dict[str, int]:
        """The number of rows and snapshots that are there in fact."""
        return {name: table.found() for name, table in self._counted().items()}

    def sync(self) -> None:
        """Wait until all rows are on the disk. Call it before writing the checkpoint that counts on them."""
        for table in (self.metrics, self.timing, self.evaluations, self.levels):
            table.sync()

    def _counted(self) -> dict[str, JsonLines | EvaluationTable | LevelTable | Snapshots]:
        """The parts that must be complete at the end of a run."""
        tables = (self.metrics, self.evaluations, self.levels)
        return {table.path.name: table for table in tables} | {self.snapshots.path.name: self.snapshots}


def open_tables(directory: RunDirectory, cycle: int) -> RunTables:
    """Open the tables of a run that goes on after a cycle: what is later is cut off. After cycle 0 they begin
    anew."""
    last = cycle if cycle else -1
    for path in (directory.metrics, directory.timing, directory.evaluations, directory.levels):
        cut_after(path, last)
    cut_snapshots(directory.snapshots, last)
    return RunTables(
        metrics=JsonLines(directory.metrics),
        timing=JsonLines(directory.timing),
        evaluations=EvaluationTable(directory.evaluations),
        levels=LevelTable(directory.levels),
        snapshots=Snapshots(directory.snapshots),
    )


def changed_tables(expected: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """A sentence for each table that was changed: rows can be lost, and nothing brings them back; but it must
    be known."""
    return [
        f"{name} was changed or deleted: {found[name]} {'rows' if '.' in name else 'files'} instead of {rows}"
        for name, rows in expected.items()
        if name in found and found[name] != rows
    ]

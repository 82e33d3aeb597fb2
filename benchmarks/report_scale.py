"""How long a report on many long runs takes, and how large its page is.

    python -m benchmarks.report_scale [--runs 165] [--rows 30000] [--out DIR]

165 runs are 5 seeds of 11 variants in 3 domains; here of 17 methods in two domains. The runs are synthetic,
and as long as the paper's: 30,000 rows of metrics, 120 evaluations and snapshots, 480,000 played levels. One
run of each domain is written for methods with novelty and one for `dr`; all others share its large files
(hard links), so that the disk need not hold 20 GB and what is measured is the work, not the disk. The marks
are 60 s (wall-clock time of two idle cores; CPU time is printed too) and 15 MB.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.report.synthetic import evaluate_later, write_run

from cenie.methods.table import METHODS
from cenie.report.build import PAGE, write_report
from cenie.report.writer import Options
from cenie.xla.flags import show_devices

SECONDS, MEGABYTES = 60.0, 15.0
SHARED = ("metrics.jsonl", "evaluations.csv", "levels.csv", "snapshots")


def make_runs(out: Path, runs: int, rows: int) -> None:
    """Five seeds of each variant; the first runs are written in full."""
    full: dict[tuple[str, bool], Path] = {}
    for number in range(runs):
        domain = ("maze", "walker")[number % 2]
        variant, seed = divmod(number // 2, 5)
        method = list(METHODS)[variant % len(METHODS)]
        path = out / f"{domain}-{method}-{seed}"
        skill = 0.3 + 0.04 * (variant % 11) + 0.01 * seed
        kind = domain, method == "dr"
        if kind not in full:
            like = "dr" if method == "dr" else "plr-cenie"
            full[kind] = write_run(
                out.parent / f"full-{domain}-{like}",
                like,
                domain,
                updates=rows,
                cycles=rows,
                evaluations=120,
                levels=16,
                points=512,
            )
        write_run(
            path, method, domain, seed=seed, skill=skill, updates=rows, cycles=120, evaluations=1, points=0
        )
        for name in SHARED:
            share(full[kind] / name, path / name)
        evaluate_later(path, "cenie8" if domain == "maze" else "walker6", skill, cycle=rows)


def share(source: Path, target: Path) -> None:
    """The same file, or directory of files, under another name."""
    if source.is_file():
        target.unlink()
        os.link(source, target)
    else:
        target.mkdir(exist_ok=True)
        for file in source.iterdir():
            os.link(file, target / file.name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=165)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--out", type=Path, help="where to keep the runs and the report")
    parser.add_argument("--no-coverage", action="store_true")
    arguments = parser.parse_args()
    show_devices(1)
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary)
        if not (out / "runs").exists():
            (out / "runs").mkdir(parents=True)
            make_runs(out / "runs", arguments.runs, arguments.rows)
        begun = last = time.perf_counter(), time.process_time()
        spent: dict[str, float] = {}
        doing = "reading"

        def progress(line: str) -> None:
            nonlocal last, doing
            now = time.perf_counter(), time.process_time()
            spent[doing] = spent.get(doing, 0.0) + now[1] - last[1]
            last, doing = now, line.split(" (")[0].split("/")[0]

        options = Options(coverage=not arguments.no_coverage)
        report = write_report([out / "runs"], out / "report", options, progress=progress)
        progress("end")
        for name, seconds in spent.items():
            print(f"  {seconds:6.1f} s CPU  {name}")
        wall, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
        size = (report.out / PAGE).stat().st_size / 1e6
        runs = sum(len(group.runs) for domain in report.domains for group in domain.groups)
        print(f"{runs} runs x {arguments.rows} rows: {wall:.1f} s, {cpu:.1f} s of CPU (mark {SECONDS:.0f} s)")
        print(f"page: {size:.1f} MB (mark {MEGABYTES:.0f} MB); {len(report.files)} files")


if __name__ == "__main__":
    main()

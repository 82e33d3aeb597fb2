"""Train and export a small student of each domain, for people to download: `make students`.

Each is trained by its `quick` preset, evaluated with more episodes than in training, exported with its card,
and packed. A stopped call goes on where it was. The table of scores is in STUDENTS.md beside the archives.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import cenie

STUDENTS = {
    "maze": ("plr-cenie", "cenie8-sym"),
    "walker": ("accel-cenie", "walker6"),
    "racing": ("plr-cenie", "f1"),
}
"""The method of each domain, and the suite of its scores."""


def command(*words: str) -> None:
    """A command of `cenie`, which prints what it does."""
    subprocess.run([sys.executable, "-m", "cenie.command.cli", *words], check=True)


def make_student(domain: str, runs: Path, out: Path, options: list[str], episodes: int) -> cenie.Student:
    """Train, evaluate and export one student; what is there already is not made again."""
    method, suite = STUDENTS[domain]
    run, student = runs / f"{domain}-{method}", out / f"{domain}-{method}"
    if not student.exists():
        begin = ["train", domain, method, "--preset", "quick", "--seed", "0", "--out", str(run), *options]
        command(*(["train", "--resume", str(run)] if (run / "config.json").exists() else begin))
        command("evaluate", str(run), "--suite", suite, "--episodes", str(episodes), "--checkpoints", "1")
        command("export", str(run), "--out", str(student), "--licence", "Apache-2.0")
        shutil.make_archive(str(student), "zip", out, student.name)
    return cenie.load_student(student)


def table_of(students: dict[str, cenie.Student]) -> str:
    """The scores of all students, from their cards."""
    rows = [
        "| student | million steps | suite | score (95 % interval over episodes) | episodes |",
        "|---|---|---|---|---|",
    ]
    for name, student in students.items():
        steps = student.facts.env_steps / 1e6
        for score in student.facts.scores:
            interval = f"{score['mean']:.3f} ({score['low']:.3f} to {score['high']:.3f})"
            rows.append(f"| `{name}` | {steps:.2f} | `{score['suite']}` | {interval} | {score['episodes']} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/students"))
    parser.add_argument("--runs", type=Path, default=Path("runs/students"))
    parser.add_argument("--domains", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--episodes", type=int, default=20)
    arguments, options = parser.parse_known_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    students = {
        f"{domain}-{STUDENTS[domain][0]}": make_student(
            domain, arguments.runs, arguments.out, options, arguments.episodes
        )
        for domain in arguments.domains
    }
    table = table_of(students)
    (arguments.out / "STUDENTS.md").write_text(f"# Students of cenie {cenie.__version__}\n\n{table}")
    print(table)


if __name__ == "__main__":
    main()

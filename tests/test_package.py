"""The wheel as users get it: built, installed outside of the checkout, and tried out from there."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from cenie.methods.table import METHODS

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE = ("--quiet", "--no-deps", "--no-index")


class Installed(NamedTuple):
    """A fresh environment with the wheel in it."""

    wheel: Path
    home: Path

    def run(self, *command: str) -> str:
        """The output of a command of the environment, called from outside of the checkout."""
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = self.home / "bin" / command[0]
        return call(str(path), *command[1:], cwd=self.home, environment=outside)


def call(*command: str, cwd: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The dependencies are those of the environment of the tests: nothing is downloaded or copied."""
    home, wheels = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("wheels")
    call(*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", str(wheels), str(ROOT), cwd=home)
    (wheel,) = wheels.iterdir()
    call(sys.executable, "-m", "venv", "--without-pip", str(home), cwd=home)
    call(*PIP, "--python", str(home / "bin/python"), "install", *OFFLINE, str(wheel), cwd=home)
    # Behind the environment's own packages, and without the link to the checkout that is among them: Python
    # reads the path files of the first directory only.
    packages = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(sorted(packages)) + "\n")
    return Installed(wheel, home)


def test_the_wheel_holds_all_of_the_package_and_nothing_else(installed: Installed) -> None:
    package = ROOT / "src" / "cenie"
    ours = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert "cenie/py.typed" in ours
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_installed_command_answers(installed: Installed) -> None:
    assert "cenie train" in installed.run("cenie", "--help")
    assert [line.split()[0] for line in installed.run("cenie", "methods").splitlines()] == list(METHODS)


def test_the_installed_library_loads_from_where_it_was_installed(installed: Installed) -> None:
    code = (
        "import cenie, importlib.metadata, importlib.resources\n"
        "assert importlib.metadata.version('cenie') == cenie.__version__\n"
        "assert (importlib.resources.files('cenie') / 'py.typed').is_file()\n"
        "print(*(getattr(cenie, name).__name__ for name in ('Teacher', 'build')), cenie.__file__)"
    )
    teacher, build, file = installed.run("python", "-c", code).split()
    assert (teacher, build) == ("Teacher", "build")
    assert Path(file).is_relative_to(installed.home)

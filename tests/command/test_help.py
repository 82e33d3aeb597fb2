"""What `--help` says of settings: all of them, each in its own words, and no number as somebody's who never
gave it."""

import dataclasses
import re
from collections import defaultdict
from typing import Any, NamedTuple

import pytest

from cenie import settings
from cenie.command.cli import run
from cenie.command.exit_codes import BAD_INPUT, OK
from cenie.command.settings_text import settings_text, value_text, values_text
from cenie.envs.domains import DOMAINS, find_domain
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.settings import Description, describe, setting

EACH = [(domain, method) for domain in DOMAINS for method in METHODS]
FAMILIES = {type(method.settings): name for name, method in reversed(list(METHODS.items()))}
"""A method of each family: the families differ in their settings, and the methods in the values."""


def help_of(capsys, *arguments: str) -> str:
    assert run(["train", *arguments, "--help"]) == OK
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


# What is listed


@pytest.mark.parametrize(("domain", "method"), EACH)
def test_every_setting_has_a_help_text_of_its_own_and_a_source(domain: str, method: str) -> None:
    """Settings of one name in related groups may share a text; different ones may not."""
    names = defaultdict(set)
    for item in describe(preset(domain, method)):
        assert len(item.help.split()) >= 2, item.path
        if item.is_group or item.default is dataclasses.MISSING:
            continue
        assert item.source, item.path
        names[item.help].add(item.path.removesuffix(".kind").rpartition(".")[2])
    assert {text: sorted(found) for text, found in names.items() if len(found) > 1} == {}


@pytest.mark.parametrize(("domain", "method"), EACH)
def test_help_lists_every_setting_of_every_kind(domain: str, method: str) -> None:
    described = [item for item in describe(preset(domain, method)) if not item.is_group]
    options = re.findall(r"^  --(\S+)", settings_text(described, 80), re.MULTILINE)
    assert {name.replace("[no-]", "").replace("-", "_") for name in options} == {
        item.path for item in described
    }


@pytest.mark.parametrize("method", FAMILIES.values())
def test_every_setting_that_help_lists_can_be_set_once_its_kind_is_chosen(method: str) -> None:
    config = preset("maze", method)
    for item in describe(config):
        if item.is_group or item.path in ("domain", "method", "preset"):
            continue
        kinds = {path: kinds[0] for path, kinds in item.when}
        value = item.kinds[-1][0] if item.kinds else settings.to_data(item.default)
        problems = []
        try:
            settings.replace(config, {**kinds, item.path: value})
        except settings.SettingsError as error:  # a rule between settings; but there is such a setting
            problems = [problem.message for problem in error.problems]
        assert [message for message in problems if "unknown setting" in message or "group" in message] == []


def test_help_names_all_kinds_and_choices(capsys) -> None:
    text = help_of(capsys, "maze", "plr-cenie")
    assert "--student.network.kind {lstm,gru,mlp,memoryless,pixels,board}" in text
    assert "--student.network.encoder.kind {conv,bits,flat}" in text
    assert "--teacher.novelty.kind {cenie,diplr,poet,epoet}" in text
    assert "--student.network.waves INT (1 to 128)" in text  # of a kind that is not chosen
    assert "--env.num-actions {3,7}" in text
    assert "--env.[no-]replacement" in text
    assert "--student.network.channels INT,INT,... (1 to 65536)" in text
    assert "--teacher.novelty.coverage.components INT,INT (1 to 1000)" in text
    assert "--run.env-steps INT|null (at least 1)" in text
    assert "student.network of kind pixels (not in use)" in text
    assert "student.network of kind lstm\n" in text
    assert "teacher.edit (not in use)" in text
    assert "One of these settings on the command line puts it in use." in " ".join(text.split())
    assert "its suites" not in text
    assert "suites: cenie8, accel12" in text
    for hidden in ("--domain MODULE", "--from-python", "--method"):
        assert f"\n  {hidden}" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize(
    ("domain", "method"), [("maze", "plr-cenie"), ("walker", "poet"), ("racing", "paired")]
)
def test_help_has_the_width_of_the_terminal(
    domain: str, method: str, width: int, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = help_of(capsys, domain, method, "student", "teacher", "env", "run").splitlines()
    # A path is one word, which cannot be broken.
    assert [line for line in lines if len(line) > min(width, 110) and len(line.split()) > 2] == []
    assert max(map(len, lines)) > min(width, 110) - 10
    assert all(line == line.rstrip() for line in lines)


def test_help_of_a_group_is_that_group_alone(capsys) -> None:
    text = help_of(capsys, "maze", "accel", "teacher.edit", "student.ppo.adam-eps")
    listed = re.findall(r"^  --(\S+)", text, re.MULTILINE)
    assert listed == [
        "student.ppo.adam-eps",
        "teacher.edit.probability",
        "teacher.edit.parents",
        "teacher.edit.children",
    ]
    assert run(["train", "maze", "accel", "teacher.edits", "--help"]) == BAD_INPUT
    assert "teacher.edits: no setting" in capsys.readouterr().err


def test_help_of_settings_from_elsewhere_needs_no_texts() -> None:
    @dataclasses.dataclass(frozen=True)
    class Wind:
        strength: float = 1.5
        names: tuple[str, ...] = ()
        gusts: bool = setting(True, help="Whether it \x1b[31mblows\n in gusts.")

    text = settings_text(describe(Wind()), 80)
    assert "--strength FLOAT\n      [default: 1.5]" in text
    assert "--names TEXT,TEXT,...\n      [default: []]" in text
    assert "\x1b" not in text


# Values and sources


def test_the_value_of_the_preset_stands_beside_the_default_and_its_source(capsys) -> None:
    text = help_of(capsys, "maze", "plr-cenie", "student.ppo")
    assert "[preset quick: 0.001; default: 0.0001 (paper, mazes)]" in text
    text = help_of(capsys, "maze", "plr-cenie", "student.ppo", "--preset", "paper")
    assert "[default: 0.0001 (paper, mazes)]" in text
    text = help_of(capsys, "walker", "accel", "teacher", "--preset", "paper")
    assert "[preset paper: 0.9; default: 0.5 (paper, for PLR-perp)]" in text
    text = help_of(capsys, "maze", "accel", "teacher", "--preset", "paper")
    assert "[accel: 0.8; default: 0.5 (paper, for PLR-perp)]" in text


@pytest.mark.parametrize(("domain", "method"), EACH)
def test_a_source_stands_beside_the_default_that_it_gave_and_beside_no_other_number(
    domain: str, method: str
) -> None:
    for name in find_domain(domain).presets:
        for item in describe(preset(domain, method, name)):
            if item.is_group or item.default is dataclasses.MISSING:
                continue
            text = values_text(item, "preset")
            default = f"default: {value_text(item.default)} ({item.source})"
            given = "" if item.value == item.default else f"preset: {value_text(item.value)}; "
            assert text == given + default


class Row(NamedTuple):
    """A parameter as the paper has it, for mazes, walkers and cars; None where it says nothing."""

    maze: Any
    walker: Any
    racing: Any


def same(value: Any) -> Row:
    return Row(value, value, value)


PAPER = {
    # The table of hyperparameters in the appendix.
    "ppo.gamma": Row(0.995, 0.99, 0.99),
    "ppo.gae_lambda": Row(0.95, 0.9, 0.9),
    "num_steps": Row(256, 2048, 125),
    "ppo.epochs": Row(5, 5, 8),
    "ppo.minibatches": Row(1, 32, 4),
    "ppo.clip": same(0.2),
    "num_levels": Row(32, 16, 16),
    "ppo.learning_rate": Row(1e-4, 3e-4, 3e-4),
    "ppo.adam_eps": same(1e-5),
    "ppo.max_grad_norm": same(0.5),
    "ppo.value_clip": Row(True, False, False),
    "ppo.normalise_returns": Row(False, True, True),
    "ppo.value_coef": same(0.5),
    "ppo.entropy_coef": Row(0.0, 1e-3, 0.0),
    "score": same("pvl"),
    "replay.replay_prob": same(0.5),
    "replay.capacity": Row(4000, 1000, 8000),
    "edit.probability": Row(1.0, 1.0, None),
    "edit.parents": Row("batch", "batch", None),
    "env.num_edits": Row(5, 3, None),
    "priority.temperature": Row(0.3, 0.1, None),
    "priority.staleness_coef": Row(0.5, 0.5, None),
    "coverage.tolerance": same(0.001),
    "coverage.components": same((6, 15)),
    "coverage.reg": Row(1e-2, 1e-6, 1e-1),
    "coverage.window": same(32),
    "alpha.value": same(0.5),
    # The text.
    "updates": Row(30_000, 30_000, 2750),
    "run.evaluate_every": Row(None, 100, 100),
    "env.size": Row(13, None, None),  # 15 x 15 with the border
    "env.max_steps": Row(250, None, None),
    "env.num_actions": Row(3, None, None),
    "env.reward_decay": Row(1.0, None, None),
    "env.frame_size": Row(None, None, 96),
    "env.limits": Row(None, None, "paper"),  # the name of the paper's own table
    "env.stairs": Row(None, True, None),  # eight parameters
    "env.redraw_direction": same(None),
    "network.kind": Row("lstm", None, None),
    "generator": same("random"),  # domain randomisation
    "learn_on_new": same(False),  # the listing of PLR-CENIE: students learn from replayed levels
    "replay.schedule": same("fixed"),  # listings
    "replay.min_fill": same(1.0),  # listings: N levels first
    "replay.victim": same("lowest-priority"),  # listings: P_replay, Eq. 5
    "replay.insertion": same("mixture"),  # listings
    "priority.transform": same("rank"),  # "we employ rank prioritization"
    "edit.children": same(1),  # listing of ACCEL-CENIE
    "coverage.kind": same("mixture"),
    "coverage.selection": same("silhouette"),
    "coverage.pca_dimensions": same(None),
    "novelty.refit_every": same(1),
    "novelty.measure": same("mean"),  # Eq. 3
    "novelty.window_takes": same("replayed"),
    "novelty.features": same("memory"),  # states of recurrent students; of others what they observe
    "stored.kind": same("as-played"),
    "alpha.kind": same("constant"),
    "utility": same("regret"),
    "designer.paid": same("utility"),
    "antagonist": same(None),
}
"""What the CENIE paper says, by the end of a setting's path: the table in its appendix, and its text."""

NOT_OF_THE_TABLE = {
    "teacher.designer.network.kind": "the table has no network of a teacher",
    "student.network.encoder.kind": "the paper names none",
    "teacher.novelty.neighbours": "DIPLR's definition: the nearest level",
}


def in_paper(path: str) -> Row | None:
    """The row of a setting; the antagonist learns as in the rows of PPO."""
    path = path.replace("antagonist.", "antagonist.ppo.")
    ends = [end for end in PAPER if f".{path}".endswith(f".{end}")]
    return PAPER[max(ends, key=len)] if ends else None


def claims(item: Description) -> bool:
    """Whether the default is called the paper's."""
    return re.match(r"paper\b", item.source) is not None


@pytest.mark.parametrize(("domain", "method"), EACH)
def test_no_default_is_called_the_papers_that_the_paper_does_not_have(domain: str, method: str) -> None:
    for item in describe(preset(domain, method)):
        if item.is_group or not claims(item) or item.path in NOT_OF_THE_TABLE:
            continue
        row = in_paper(item.path)
        assert row is not None, f"{item.path} has the source {item.source!r}, and no row in the table"
        if row == same(None):
            assert item.default is None, item.path
            continue
        named = [name for name in DOMAINS if name in item.source]
        everywhere = [name for name in DOMAINS if getattr(row, name) is not None]
        columns = [domain] if item.path.startswith("env.") else named or everywhere
        for column in columns:
            assert item.default == getattr(row, column), (item.path, item.source, column)


@pytest.mark.parametrize(("domain", "method"), EACH)
def test_what_a_source_says_the_paper_has_instead_is_what_it_has(domain: str, method: str) -> None:
    said = {}
    for item in describe(preset(domain, method)):
        found = re.search(r"([\w.-]+) in the paper\b(?! all)|the paper has ([\d.]+)", item.source)
        if found and re.fullmatch(r"[\d.]+|fixed|lowest-priority", found[1] or found[2]):
            said[item.path] = found[1] or found[2]
            row = in_paper(item.path)
            assert row is not None, item.path
            number = value_text(row.maze)
            assert said[item.path] == number, item.path
    if domain == "maze":
        assert said["env.num_actions"] == "3"
    if method == "plr-robust":
        assert said["teacher.replay.priority.staleness_coef"] == "0.5"
        assert said["teacher.replay.victim"] == "lowest-priority"


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("method", ["plr-robust", "plr-cenie", "accel-cenie"])
def test_the_preset_paper_has_the_numbers_of_the_paper(domain: str, method: str) -> None:
    """Where another number is taken on purpose, it is named here with its reason."""
    otherwise = {
        "replay.replay_prob": {"maze": 0.8, "walker": 0.9}.get(domain) if method == "accel-cenie" else None,
        "generator": "simple" if method == "accel-cenie" else None,  # its text: starting from simple levels
        "env.num_actions": 7 if domain == "maze" else None,  # four that do nothing: original code
    }
    for item in describe(preset(domain, method, "paper")):
        row = None if item.is_group else in_paper(item.path)
        if row is None or not item.path.startswith(("student", "teacher", "env", "updates")):
            continue
        if (
            any(path in item.path for path in ("designer", "antagonist"))
            or item.when[1:2]
            or not in_use(item)
        ):
            continue
        expected = getattr(row, domain)
        end = next(end for end in PAPER if f".{item.path}".endswith(f".{end}"))
        if otherwise.get(end) is not None:
            expected = otherwise[end]
        if expected is not None:
            assert item.value == expected, item.path


def in_use(item: Description) -> bool:
    """Whether the setting is one of a kind that these methods have."""
    kinds = dict(item.when)
    return "cenie" in kinds.get("teacher.novelty.kind", ("cenie",)) and "constant" in kinds.get(
        "teacher.alpha.kind", ("constant",)
    )

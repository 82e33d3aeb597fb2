"""A method looks the same in every figure, whatever else is in it."""

from cenie.methods.table import METHODS
from cenie.report.appearance import colours, group_title, method_title
from cenie.report.runs import group_runs, open_runs
from tests.report.synthetic import write_run


def test_colours_do_not_depend_on_what_else_is_shown(tmp_path):
    write_run(tmp_path / "dr", "dr", points=0)
    for number, alpha in enumerate((0.25, 0.5, 0.75)):
        write_run(tmp_path / str(number), points=0, overrides={"teacher.alpha.value": alpha})
    groups = group_runs(open_runs([tmp_path]).runs)
    every = colours(groups)
    assert len(set(every.values())) == 4
    assert every["plr-cenie"] == "#d55e00"
    for group in groups:
        assert colours([group]) == {group.label: every[group.label]}
    assert [group_title(group) for group in groups] == [
        "DR",
        "PLR-CENIE",
        "PLR-CENIE, alpha.value=0.5",
        "PLR-CENIE, alpha.value=0.75",
    ]


def test_every_method_has_a_name_and_a_colour_of_its_own():
    titles = [method_title(method) for method in METHODS]
    assert len(set(titles)) == len(METHODS)
    assert not set(titles) & set(METHODS)
    assert method_title("something else") == "something else"

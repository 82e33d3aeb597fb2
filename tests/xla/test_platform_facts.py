"""The facts that exact bits depend on are recorded, and a difference is said in words."""

import json
import os

import jax

from cenie.xla.platform_facts import differing_facts, environment_facts


def test_facts_are_plain_data_and_agree_with_themselves() -> None:
    facts = environment_facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["jax"] == jax.__version__
    assert facts["device_count"] == jax.device_count()
    assert facts["core_count"] == len(os.sched_getaffinity(0))
    assert differing_facts(facts, environment_facts()) == []


def test_other_entries_do_not_count() -> None:
    facts = environment_facts()
    assert differing_facts(facts | {"updates": 3}, facts | {"updates": 4}) == []


def test_each_difference_is_named(monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--b=2 --a=1")
    now = environment_facts()
    saved = now | {"device_count": 4, "core_count": 64, "jax": "0.9.0", "xla_flags": ""}
    assert differing_facts(saved, now) == [
        f"JAX version: 0.9.0 when saved, {jax.__version__} now",
        f"number of devices: 4 when saved, {now['device_count']} now",
        f"number of CPU cores: 64 when saved, {now['core_count']} now",
        "XLA_FLAGS: none when saved, --a=1 --b=2 now",
    ]


def test_a_changed_option_of_jax_is_a_difference() -> None:
    before = environment_facts()
    with jax.enable_x64(True):
        (line,) = differing_facts(before, environment_facts())
    assert line.startswith("JAX options: jax_enable_x64=False")


def test_facts_that_were_not_saved_count_as_different() -> None:
    assert "number of CPU cores: none when saved" in "\n".join(differing_facts({}, environment_facts()))

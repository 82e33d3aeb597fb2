"""Programs as users have them. With the flags of the tests, a last bit depends on the rest of the program."""

from typing import Any


def as_users_compile_it(program: Any, *arguments: Any, **named: Any) -> Any:
    """A jitted function, compiled with optimisation for these arguments."""
    return program.lower(*arguments, **named).compile({"xla_backend_optimization_level": 3})

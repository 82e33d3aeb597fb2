"""Type checks around every function of the library, at a price that a whole suite can pay.

jaxtyping compares the shapes of all arguments of a call with each other. For that it binds the arguments and
keeps a record of each call. Functions that name no array are checked by the type checker alone: the same
types of the same arguments and results. Reading settings takes a fourth of the time then.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ForwardRef, Literal, get_args, get_origin

import jaxtyping

_with_shapes = jaxtyping.jaxtyped


def install() -> None:
    """Before the library is imported: jaxtyping's import hook looks the decorator up by its name."""
    jaxtyping.jaxtyped = checked  # pyright: ignore[reportAttributeAccessIssue, reportPrivateImportUsage]


def checked(function: Any = None, *, typechecker: Callable[[Any], Any]) -> Any:
    """A decorator in the place of `jaxtyping.jaxtyped`, for functions, dataclasses and descriptors."""
    if function is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isfunction(function) and names_no_array(function):
        return typechecker(function)
    if inspect.isclass(function) and dataclasses.is_dataclass(function):
        made = function.__dict__.get("__init__")
        if inspect.isfunction(made) and names_no_array(made):
            function.__init__ = typechecker(made)
            return function
    return _with_shapes(function, typechecker=typechecker)


def names_no_array(function: Any) -> bool:
    """Whether no type of an argument or of the result has a shape. What is not known yet may have one."""
    return all(map(_has_no_shape, function.__annotations__.values()))


def _has_no_shape(hint: Any) -> bool:
    if isinstance(hint, str | ForwardRef) or "jaxtyping" in getattr(type(hint), "__module__", ""):
        return False
    if inspect.isclass(hint) and "jaxtyping" in hint.__module__:
        return False
    if get_origin(hint) is Literal:
        return True
    inner = hint if isinstance(hint, list | tuple) else get_args(hint)
    return all(map(_has_no_shape, inner))

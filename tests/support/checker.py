"""The shape checker of the test run, at a fraction of its price.

jaxtyping checks the parameters of every call twice, and binds them to names first, which only
sizes written as `{name}` need; this package has none. Here a call is checked once, by beartype,
and the sizes of one call are kept together as jaxtyping does. Most functions have no sizes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Annotated, Any, ForwardRef, Literal, get_args, get_origin, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError

Function = Callable[..., Any]
ORIGINAL: Function = jaxtyping.jaxtyped
CHECK: Function = beartype(conf=BeartypeConf(violation_type=TypeCheckError))
SPECIAL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def jaxtyped(fn: Any = None, *, typechecker: Function | None = None) -> Any:
    """Stands in for `jaxtyping.jaxtyped`, which the import hook puts on everything."""
    if fn is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(fn):
        made = vars(fn).get("__init__")
        if dataclasses.is_dataclass(fn) and made and not hasattr(made, "__wrapped__"):
            setattr(fn, "__init__", jaxtyped(made, typechecker=typechecker))  # noqa: B010
        return fn
    # Generators: jaxtyping knows what to do with what they yield.
    if typechecker is None or not isinstance(fn, FunctionType) or fn.__code__.co_flags & SPECIAL:
        return ORIGINAL(fn, typechecker=typechecker)
    written = fn.__annotations__
    fn.__annotations__ = {name: resolved(hint, fn) for name, hint in written.items()}
    checked = CHECK(fn)
    hints = [part for hint in fn.__annotations__.values() for part in parts(hint)]
    fn.__annotations__ = written
    sizes = any(inspect.isclass(hint) and issubclass(hint, AbstractArray) for hint in hints)
    return (with_sizes if sizes else without_sizes)(fn, checked)


def resolved(hint: Any, fn: FunctionType) -> Any:
    """A type whose parts are there; what is not, or not yet, may be anything, as in jaxtyping."""
    if not any(isinstance(part, (str, ForwardRef)) for part in parts(hint)):
        return hint
    holder = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(holder, fn.__globals__, include_extras=True)["hint"]
    except Exception:
        return Any


def parts(hint: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield hint
    if get_origin(hint) is not Literal:
        inner = get_args(hint)
        for part in inner[:1] if get_origin(hint) is Annotated else inner:
            yield from parts(part)


def with_sizes(fn: Function, checked: Function) -> Function:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return fn(*args, **kwargs)
        with ORIGINAL("context"):
            return checked(*args, **kwargs)

    return call


def without_sizes(fn: Function, checked: Function) -> Function:
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (fn if jaxtyping.config.jaxtyping_disable else checked)(*args, **kwargs)

    return call

"""Frozen configs as plain data: to and from JSON, changed by dotted keys, compared field by field.

This room imports no torch, so that listing and checking conditions takes milliseconds.
"""

import dataclasses
import functools
import json
import math
import reprlib
import types
import typing
from dataclasses import fields
from typing import Any, TypeVar

from graph_machine.errors import ConfigError, did_you_mean

# Not typing.Self: the shape checker of the tests wraps methods one by one and cannot resolve it.
C = TypeVar("C", bound="Config")


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a number.

    >>> Bounds(0, 1, below=True).check("share", 1)
    Traceback (most recent call last):
    graph_machine.errors.ConfigError: share should be below 1, got 1.
    """

    low: int | float | None = None
    high: int | float | None = None
    above: bool = False  # the number has to be larger than `low`
    below: bool = False  # and this one smaller than `high`

    def check(self, name: str, value: int | float) -> None:
        """Raise ConfigError for a number outside of the bounds."""
        low, high, words = self.low, self.high, ""
        if not math.isfinite(value):
            words = "a number"
        elif low is not None and (value <= low if self.above else value < low):
            words = f"{'above' if self.above else 'at least'} {low:,}"
        elif high is not None and (value >= high if self.below else value > high):
            words = f"{'below' if self.below else 'at most'} {high:,}"
        if words:
            raise ConfigError(f"{name} should be {words}, got {value}.")


def field(default: Any, doc: str, bounds: Bounds | None = None) -> Any:
    """A config field with a one-line description (and the paper's symbol) and a range of values.

    The range does not apply to None and to words.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "bounds": bounds})


def required(doc: str) -> Any:
    """A config field without a default."""
    return dataclasses.field(metadata={"doc": doc})


@dataclasses.dataclass(frozen=True)
class Config:
    """Base of all configs. Subclasses check themselves in `validate`.

    >>> from graph_machine.config import ModelConfig
    >>> small = ModelConfig().replace(num_layers=6)
    >>> small.differences(ModelConfig())
    {'num_layers': 6}
    >>> ModelConfig.from_json(small.to_json()) == small
    True
    """

    OLD_NAMES: typing.ClassVar[dict[str, str]] = {}  # former name -> name of a setting

    def __post_init__(self) -> None:
        for item in fields(self):
            value, bounds = getattr(self, item.name), item.metadata.get("bounds")
            check_type(type(self).__name__, item.name, self.hint(item.name), value)
            if bounds is not None and value is not None:
                bounds.check(item.name, value)
        self.validate()

    def validate(self) -> None:
        """Raise ConfigError for values that are out of range or contradict each other."""

    @classmethod
    def hint(cls, name: str) -> Any:
        """The type of a field."""
        return _hints(cls)[name]

    @classmethod
    def names(cls) -> list[str]:
        """The names of all fields."""
        return [item.name for item in fields(cls)]

    def replace(self: C, **changes: Any) -> C:
        """A changed copy; an unknown field raises an error that suggests the nearest match."""
        for name in changes:
            if name not in self.names():
                raise ConfigError(
                    f"{type(self).__name__} has no setting '{name}'."
                    f"{did_you_mean(name, self.names())} Known: {', '.join(self.names())}."
                )
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            item.name: value.to_dict() if isinstance(value, Config) else value
            for item in fields(self)
            for value in [getattr(self, item.name)]
        }

    @classmethod
    def from_dict(cls: type[C], data: Any) -> C:
        """The config of a dict from `to_dict`; unknown and missing settings are errors."""
        if not isinstance(data, dict):
            raise ConfigError(f"{cls.__name__} should be an object, got {type(data).__name__}.")
        values = {}
        for given, value in data.items():
            name = cls.OLD_NAMES.get(given, given)
            if name not in cls.names():
                raise ConfigError(
                    f"{cls.__name__} has no setting '{name}'.{did_you_mean(name, cls.names())}"
                )
            hint = cls.hint(name)
            if isinstance(hint, type) and issubclass(hint, Config):
                value = hint.from_dict(value)
            elif isinstance(value, list):
                value = tuple(value)
            values[name] = value
        for item in fields(cls):
            if item.name not in values and item.default is dataclasses.MISSING:
                raise ConfigError(f"{cls.__name__} lacks the setting '{item.name}'.")
        return cls(**values)

    def to_json(self) -> str:
        """As JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls: type[C], text: str) -> C:
        """The config of a text from `to_json`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{cls.__name__}: not valid JSON ({error}).") from None
        return cls.from_dict(data)

    def flat(self, prefix: str = "") -> dict[str, Any]:
        """Dotted key -> value."""
        result: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Config):
                result |= value.flat(f"{prefix}{item.name}.")
            else:
                result[f"{prefix}{item.name}"] = value
        return result

    def doc(self, key: str) -> str:
        """The one-line description of a field, by its dotted key."""
        head, _, rest = key.partition(".")
        if rest:
            return getattr(self, head).doc(rest)
        return next(item.metadata.get("doc", "") for item in fields(self) if item.name == head)

    def differences(self, base: "Config") -> dict[str, Any]:
        """The settings that differ from `base`, by dotted key."""
        theirs = base.flat()
        return {k: v for k, v in self.flat().items() if k not in theirs or theirs[k] != v}

    def set(self: C, key: str, text: str) -> C:
        """Change one field, given its dotted key and the text that a user typed."""
        return self.set_all({key: text})

    def set_all(self: C, texts: dict[str, str], prefix: str = "") -> C:
        """Change fields, given dotted keys and typed texts; the result is checked once."""
        changes: dict[str, Any] = {}
        groups: dict[str, dict[str, str]] = {}
        for key, text in texts.items():
            head, _, rest = key.partition(".")
            head = self.OLD_NAMES.get(head, head)
            if head not in self.names():
                near = did_you_mean(prefix + key, self.flat(prefix))
                raise ConfigError(f"Unknown setting '{prefix}{key}'.{near}")
            value = getattr(self, head)
            if isinstance(value, Config):
                if not rest:
                    inside = ", ".join(value.flat(f"{prefix}{head}."))
                    raise ConfigError(f"'{prefix}{key}' is a group: set one of {inside}.")
                groups.setdefault(head, {})[rest] = text
            elif rest:
                raise ConfigError(f"Unknown setting '{prefix}{key}': '{head}' is a single value.")
            else:
                changes[head] = parse_value(prefix + key, self.hint(head), text)
        for head, inside in groups.items():
            changes[head] = getattr(self, head).set_all(inside, f"{prefix}{head}.")
        return self.replace(**changes)


@functools.cache  # resolving annotations is slow, and every config checks every field
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _options(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def parse_value(key: str, hint: Any, text: str) -> Any:
    """The value of a text that a user typed, parsed according to the field's type."""
    for option in _options(hint):
        if option is type(None) and text.lower() in ("none", "null"):
            return None
        if typing.get_origin(option) is typing.Literal:
            return text
        if option is bool and text.lower() in ("true", "false", "on", "off"):
            return text.lower() in ("true", "on")
        if option in (int, float):
            try:
                number = float(text)
            except ValueError:
                continue
            if option is float:
                return number
            if number.is_integer():  # 1e5 is a whole number too; 1.5 is not
                return int(number) if set(text) & set("eE.") else int(text)
        if option is str:
            return text
    raise ConfigError(f"{key}: '{text}' is not {describe(hint)}.")


def describe(hint: Any) -> str:
    """A type in words."""
    words = []
    for option in _options(hint):
        if typing.get_origin(option) is typing.Literal:
            words.append("one of " + ", ".join(str(a) for a in typing.get_args(option)))
        elif option is type(None):
            words.append("none")
        else:
            words.append(
                {int: "a whole number", float: "a number", bool: "true or false"}.get(
                    option, getattr(option, "__name__", str(option))
                )
            )
    return " or ".join(words)


def check_type(owner: str, name: str, hint: Any, value: Any) -> None:
    """Raise ConfigError if a value does not fit its field."""
    for option in _options(hint):
        origin = typing.get_origin(option)
        if origin is typing.Literal:
            if value in typing.get_args(option):
                return
        elif origin is tuple:
            each = typing.get_args(option)[0]
            if isinstance(value, tuple) and all(type(part) is each for part in value):
                return
        elif option is float:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return
        elif option is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return
        elif isinstance(value, option):
            return
    near = ""
    for option in _options(hint):
        if typing.get_origin(option) is typing.Literal and isinstance(value, str):
            near = did_you_mean(value, [str(a) for a in typing.get_args(option)])
    # A shortened form: the value may come from a file, and be of any size and depth.
    raise ConfigError(
        f"{owner}.{name} should be {describe(hint)}, got {reprlib.repr(value)}.{near}"
    )


def is_whole(text: str) -> bool:
    """Whether a text is a plain whole number: ASCII digits (not `²`), and at most nine.

    >>> is_whole("12"), is_whole("²"), is_whole("9" * 5000)
    (True, False, False)
    """
    return text.isascii() and text.isdigit() and len(text) <= 9


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)

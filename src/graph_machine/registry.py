"""A registry of named things: clashes are errors, and an unknown name suggests the nearest."""

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from graph_machine.errors import ConfigError, NameTakenError, did_you_mean

T = TypeVar("T")


# Set by `graph_machine.lab.plugins`, which this module does not know.
_hooks: tuple[Callable[[], None], Callable[[], str | None]] | None = None


def connect(load_installed: Callable[[], None], importing: Callable[[], str | None]) -> None:
    """Let registries import plug-ins on demand, and find out which one is being imported."""
    global _hooks
    _hooks = load_installed, importing


def _defined_again(old: object, new: object) -> bool:
    """A class that replaces itself: a notebook cell run again, or a dataclass with slots."""
    if not isinstance(old, type) or not isinstance(new, type):
        return False
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)


class Registry(Mapping[str, T], Generic[T]):
    """Name -> thing, in order of registration."""

    def __init__(self, what: str, how_to_list: str = "", *, from_users: bool = False) -> None:
        self.what = what
        self.how_to_list = how_to_list
        self.from_users = from_users  # users add their own with --import
        self._items: dict[str, T] = {}
        self._owners: dict[str, str] = {}

    def add(self, name: str, item: T) -> T:
        if name in self._items and not _defined_again(self._items[name], item):
            message = f"The {self.what} '{name}' is already registered."
            raise NameTakenError(message, self._owners.get(name))
        self._items[name] = item
        owner = None if _hooks is None else _hooks[1]()
        if owner is not None:
            self._owners[name] = owner
        return item

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator form of `add`."""
        return lambda item: self.add(name, item)

    def __getitem__(self, name: str) -> T:
        if name not in self._items and _hooks is not None:
            # Installed packages may have it; they are imported on demand.
            _hooks[0]()
        if name not in self._items:
            listing = f" List all with '{self.how_to_list}'." if self.how_to_list else ""
            hint = did_you_mean(name, self._items)
            known = "" if listing or hint else f" Known: {', '.join(self._items) or 'none'}."
            if self.from_users and not hint:
                known += f" If it is your own {self.what}, pass its file with --import,"
                known += " or install its package."
            raise ConfigError(f"Unknown {self.what} '{name}'.{hint}{listing}{known}")
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

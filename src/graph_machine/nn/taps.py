"""Named taps: every quantity of SPEC section 6 passes one, and they cost nothing when unused."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from graph_machine.ops.numerics import Tap

# Sees `layers.3.edge.0.n2_weights` and the tensor; returns a replacement, or None to leave it.
Listener = Callable[[str, Tensor], Tensor | None]


class Tapped(nn.Module):
    """A sublayer that reports what it computes while somebody listens."""

    tap: Tap | None = None


def _make_tap(path: str, listener: Listener) -> Tap:
    def tap(name: str, tensor: Tensor) -> Tensor:
        changed = listener(f"{path}.{name}" if path else name, tensor)
        return tensor if changed is None else changed

    return tap


def tapped_paths(module: nn.Module) -> dict[str, Tapped]:
    """`layers.3.edge.0` -> sublayer.

    Names are relative to the stack; only a model with several stacks needs their prefixes.
    """
    found = {name: sub for name, sub in module.named_modules() if isinstance(sub, Tapped)}
    short = {name[max(name.find("layers."), 0) :]: sub for name, sub in found.items()}
    return short if len(short) == len(found) else found


@contextmanager
def listen(module: nn.Module, listener: Listener) -> Iterator[None]:
    """While the block runs, `listener` sees every tapped tensor of `module`.

    Layers then take the staged path, which makes the quantities one by one.
    """
    tapped = tapped_paths(module)
    before = {path: sub.tap for path, sub in tapped.items()}
    try:
        for path, sub in tapped.items():
            sub.tap = _make_tap(path, listener)
        yield
    finally:
        for path, sub in tapped.items():
            sub.tap = before[path]

"""Named taps: every quantity of the paper's analysis passes one; unused, they cost nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor, nn

from graph_machine.errors import ConfigError
from graph_machine.spaces import Context

# Sees `layers.3.edge.0.n2_weights` and the tensor; returns a replacement, or None to leave it.
Listener = Callable[[str, Tensor], Tensor | None]


# (name, tensor, round) -> tensor
RoundTap = Callable[[str, Tensor, int | None], Tensor]


class Tapped(nn.Module):
    """A sublayer (or a whole model) that reports what it computes while a listener is attached."""

    tap: RoundTap | None = None

    def report(self, name: str, tensor: Tensor) -> Tensor:
        """Outside of any call's context: what a whole model reports."""
        return tensor if self.tap is None else self.tap(name, tensor, None)

    def local(self, context: Context) -> Context:
        """The context of this sublayer: its own tap, and its mode where none is asked for."""
        tap, training = context.tap, context.training
        if self.tap is not None:
            heard, number = self.tap, context.round
            tap = lambda name, tensor: heard(name, tensor, number)  # noqa: E731
        if training is None:
            training = self.training
        return replace(context, tap=tap, training=training)


def _make_tap(path: str, listener: Listener) -> RoundTap:
    def tap(name: str, tensor: Tensor, number: int | None = None) -> Tensor:
        place = path if number is None else f"rounds.{number}.{path.removeprefix('core.')}"
        whole = f"{place}.{name}" if place else name
        changed = listener(whole, tensor)
        if changed is None:
            return tensor
        if not isinstance(changed, Tensor):
            raise ConfigError(
                f"listen: the callback should return None or a tensor for {whole}, got "
                f"{type(changed).__name__}."
            )
        return changed

    return tap


def tapped_paths(module: nn.Module) -> dict[str, Tapped]:
    """`layers.3.edge.0` -> sublayer; in a recurrent core `core.layers.0.node.0`.

    Names are relative to the stack; only a model with several stacks needs their prefixes. What a
    core reports in a round is named after it: `rounds.5.layers.0.node.0.n2_weights`.
    """
    found = {name: sub for name, sub in module.named_modules() if isinstance(sub, Tapped)}
    short = {_relative(name): sub for name, sub in found.items()}
    return short if len(short) == len(found) else found


def _relative(name: str) -> str:
    core, layers = name.find("core.layers."), name.find("layers.")
    return name[max(layers if core < 0 else core, 0) :]


@contextmanager
def listen(module: nn.Module, listener: Listener) -> Iterator[None]:
    """While the block runs, `listener` sees every tapped tensor of `module`.

    Layers then take the staged path, which makes the quantities one by one.

    >>> import torch
    >>> from graph_machine import GraphMachine
    >>> model, seen = GraphMachine.from_pretrained("gm-4x4"), []
    >>> with listen(model, lambda path, tensor: seen.append(path)):
    ...     answer = model.predict(["..3...4..4...2.."])
    >>> "layers.0.edge.0.address_outs" in seen
    True
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

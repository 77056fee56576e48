"""Models without memory: parameters that have a shape and no contents."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

# torch calls those of `init` with names of arguments, and those of tensors without.
FILLS = {init.normal_, init.uniform_, init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_}


class _NotFilled(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in FILLS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """What is built in here is on the meta device, where nothing is allocated.

    Random numbers are not drawn there: torch would import its compiler for them, which takes longer
    than to open a model.

    >>> with shapes_only():
    ...     torch.nn.Linear(3, 4).weight
    Parameter containing:
    tensor(..., device='meta', size=(4, 3), requires_grad=True)
    """
    with torch.device("meta"), _NotFilled():
        yield

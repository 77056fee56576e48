"""From tensors to kernel calls: sizes, blocks and buffers. A plan also serves to compile ahead.

Letters: b graph, n source, h head, k slot of e1, m target n2, l slot of e2, a address target; d, e,
v and c are widths of node keys, e2 keys, values and e2 values. All tensors are contiguous.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.core import STATS
from graph_machine.ops.triton.backward import addresses_kernel, sources_kernel, targets_kernel
from graph_machine.ops.triton.forward import attend_kernel, collect_addresses_kernel

# The least size of an axis of a matrix product in the Triton that CUDA builds of torch 2.13 bring.
LEAST = 16


@dataclass(frozen=True)
class Blocks:
    """Tiles: sources, targets, address columns of outputs and of sums; warps per program.

    These sizes need no more registers than there are (`benchmarks/ahead.py`); which are the fastest
    is not known yet.
    """

    n: int = 16
    m: int = 32
    a: int = 128
    a_inner: int = 32
    a_sources: int = 32  # the same in the kernel over sources
    warps: int = 4

    def fit(self, n: int, m: int, a: int, precision: str) -> "Blocks":
        """No larger than the problem asks for; exact products are not for tensor cores."""
        if precision == "ieee":
            self = replace(self, a=min(self.a, 64), a_sources=16)
        sizes = {"n": (self.n, n), "m": (self.m, m)}
        sizes |= {key: (getattr(self, key), a) for key in ("a", "a_inner", "a_sources")}
        found = {key: min(most, pad(size)) for key, (most, size) in sizes.items()}
        return replace(self, **found)


BLOCKS = Blocks()


def pad(size: int) -> int:
    """The next power of two that a matrix product takes."""
    return max(LEAST, 1 << (size - 1).bit_length())


@dataclass(frozen=True)
class Inputs:
    """What attention and referral have in common; an absent part is None."""

    e1_weights: Tensor | None  # b n h k
    addresses: Tensor | None  # b n k m
    edge_temps: Tensor | None  # b n h
    queries: Tensor | None  # b n h d; with temperature and 1/sqrt(d)
    keys: Tensor | None  # b m h d
    values: Tensor  # b m h v
    e2_queries: Tensor | None = None  # b n h e; with temperature and 1/sqrt(d)
    e2_keys: Tensor | None = None  # b u m l e; u = 1: the same for all heads
    e2_values: Tensor | None = None  # b u m l c
    e2_addresses: Tensor | None = None  # b m l a; with `own`, every head's own: b m h a
    mask: Tensor | None = None  # (b or 1) (n or 1) m, of bytes
    own: bool = False
    entropies: bool = False
    logit_space: bool = False
    eps: float = 1e-8

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(b, h, n, m)."""
        b, m, h, _ = self.values.shape
        first = self.e1_weights if self.queries is None else self.queries
        assert first is not None
        return b, h, first.shape[1], m

    @property
    def num_slots(self) -> int:
        return 1 if self.e2_keys is None else self.e2_keys.shape[3]

    @property
    def shared(self) -> bool:
        """One set of e2 keys and values for all heads."""
        return self.e2_keys is not None and self.e2_keys.shape[1] == 1 != self.values.shape[2]


@dataclass(frozen=True)
class Call:
    """One kernel with its grid and every argument by name."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    warps: int

    @property
    def options(self) -> dict[str, Any]:
        """Loops are not pipelined: buffers in flight would take the registers that sums need.

        Without a bound of its own, the assembler would rather spill than use all registers.
        """
        return {"num_warps": self.warps, "num_stages": 1, "enable_fp_fusion": True, "maxnreg": 255}

    def run(self) -> None:
        self.kernel[self.grid](**self.arguments, **self.options)


def _width(tensor: Tensor | None) -> int:
    return 1 if tensor is None else tensor.shape[-1]


def _settings(x: Inputs, blocks: Blocks, precision: str) -> dict[str, Any]:
    """Arguments that several kernels share; `_call` picks the ones that a kernel has."""
    b, h, n, m = x.sizes
    widths = {"D": x.keys, "E": x.e2_keys, "V": x.values, "C": x.e2_values}
    sizes = {name: _width(tensor) for name, tensor in widths.items()}
    mask_b = mask_n = 0
    if x.mask is not None:
        mask_n = 0 if x.mask.shape[1] == 1 else m
        mask_b = 0 if x.mask.shape[0] == 1 else x.mask.shape[1] * m
    return {
        "eps": x.eps,
        "B": b,
        "H": h,
        "N": n,
        "M": m,
        "A": _width(x.e2_addresses),
        "mask_b": mask_b,
        "mask_n": mask_n,
        "EDGE": x.e1_weights is not None,
        "NODE": x.keys is not None,
        "E2": x.e2_keys is not None,
        "E2_VALUES": x.e2_values is not None,
        "ADDRESSES": x.e2_addresses is not None,
        "KEEP": x.e2_addresses is not None,
        "TEMPS": x.edge_temps is not None,
        "MASK": x.mask is not None,
        "LOGIT_SPACE": x.logit_space,
        "ENTROPIES": x.entropies,
        "SHARED": x.shared,
        "OWN": x.own,
        "HEADS": 1 if x.own else h,
        "K": _width(x.e1_weights),
        "L": x.num_slots,
        **sizes,
        **{f"{name}_PAD": pad(size) for name, size in sizes.items()},
        "BLOCK_N": blocks.n,
        "BLOCK_M": blocks.m,
        "PRECISION": precision,
        "STATS": STATS,
    }


def _call(kernel: Any, grid: tuple[int, ...], warps: int, *sources: dict[str, Any]) -> Call:
    known = {name: value for source in sources for name, value in source.items()}
    return Call(kernel, grid, {name: known[name] for name in kernel.arg_names}, warps)


def _tensors(x: Inputs) -> dict[str, Any]:
    return {name: value for name, value in vars(x).items() if isinstance(value, Tensor | None)}


@dataclass(frozen=True)
class Plan:
    """Calls in their order; buffers of the subclasses are filled once they have run."""

    calls: tuple[Call, ...]

    def run(self) -> None:
        for call in self.calls:
            call.run()


@dataclass(frozen=True)
class Forward(Plan):
    """Outputs."""

    outs: Tensor  # b n h v
    e2_outs: Tensor | None  # b n h c
    address_outs: Tensor | None  # b n h a
    stats: Tensor  # b h n STATS: log-sum-exps and entropies, in the order of the kernels


def plan_forward(x: Inputs, precision: str) -> Forward:
    b, h, n, m = x.sizes
    a = _width(x.e2_addresses)
    blocks = BLOCKS.fit(n, m, a, precision)
    settings = _settings(x, blocks, precision)

    def make(*shape: int) -> Tensor:
        return x.values.new_empty(shape, dtype=torch.float32)

    has_addresses = x.e2_addresses is not None
    found: dict[str, Any] = {
        "outs": make(b, n, h, _width(x.values)),
        "e2_outs": None if x.e2_values is None else make(b, n, h, _width(x.e2_values)),
        "address_outs": make(b, n, h, a) if has_addresses else None,
        "stats": make(b, h, n, STATS),
    }
    scratch = {"n2_factors": make(b, h, n, m) if has_addresses else None}
    rows = -(-n // blocks.n)
    given = (_tensors(x), found, scratch, settings)
    calls = [_call(attend_kernel, (rows, b * h), blocks.warps, *given)]
    if has_addresses:
        grid = (rows, -(-a // blocks.a), b * h)
        wide = {"BLOCK_A": blocks.a}
        calls.append(_call(collect_addresses_kernel, grid, blocks.warps, *given, wide))
    return Forward(tuple(calls), **found)


@dataclass(frozen=True)
class Above:
    """What backward gets: gradients of the outputs, and of every row's entropies."""

    out_grads: Tensor  # b n h v
    e2_grads: Tensor | None  # b n h c
    address_grads: Tensor | None  # b n h a
    deltas: Tensor  # b h n: sum of outputs times their gradients
    entropy_rows: Tensor | None  # 2 b n


@dataclass(frozen=True)
class Backward(Plan):
    """Gradients by the name of their input.

    `mixed` (b n h m) is the gradient of the mixed addresses: it makes those of e1_weights and of
    addresses by one matrix product each. Those of e2 keys and values are per head, b h m l e.
    """

    grads: dict[str, Tensor]
    mixed: Tensor | None


def plan_backward(x: Inputs, stats: Tensor, above: Above, precision: str) -> Backward:
    b, h, n, m = x.sizes
    a = _width(x.e2_addresses)
    blocks = BLOCKS.fit(n, m, a, precision)
    settings = _settings(x, blocks, precision) | {"BLOCK_A": blocks.a_inner}
    make: Callable[..., Tensor] = x.values.new_empty

    def like(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else make(tensor.shape, dtype=torch.float32)

    def per_head(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else make(b, h, *tensor.shape[2:], dtype=torch.float32)

    mixed = None
    if x.e1_weights is not None:
        mixed = make(b, n, h, m, dtype=torch.float32)
    found = {
        "temp_grads": like(x.edge_temps),
        "query_grads": like(x.queries),
        "key_grads": like(x.keys),
        "value_grads": like(x.values),
        "e2_query_grads": like(x.e2_queries),
        "e2_key_grads": per_head(x.e2_keys),
        "e2_value_grads": per_head(x.e2_values),
        "e2_address_grads": like(x.e2_addresses),
    }
    scratch = {"n2_factors": make(b, h, n, m, dtype=torch.float32), "mixed_grads": mixed}
    given = (_tensors(x), vars(above), {"stats": stats}, found, scratch, settings)
    rows, columns = -(-n // blocks.n), -(-m // blocks.m)
    calls = [
        _call(
            sources_kernel,
            (rows, b * h),
            blocks.warps,
            *given,
            {"BLOCK_A": blocks.a_sources},
        ),
        _call(targets_kernel, (columns, b * h), blocks.warps, *given),
    ]
    if x.e2_addresses is not None:
        groups = b * (h if x.own else 1) * x.num_slots
        grid = (columns, -(-a // blocks.a), groups)
        wide = {"BLOCK_A": blocks.a}
        calls.append(_call(addresses_kernel, grid, blocks.warps, *given, wide))
    names = {
        "temp_grads": "edge_temps",
        **{f"{name}_grads": f"{name}s" for name in ("e2_value", "value", "e2_key", "key")},
        "query_grads": "queries",
        "e2_query_grads": "e2_queries",
        "e2_address_grads": "e2_addresses",
    }
    grads = {names[name]: grad for name, grad in found.items() if grad is not None}
    return Backward(tuple(calls), grads, mixed)

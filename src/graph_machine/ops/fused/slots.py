"""Every source's weights over its own k edges, per head, and what they mix of the edges' values."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.fused.native import Pointer, kernels, pointer

# In the order of kernels.c; MOST is a limit there.
MOST = 64
_FIELDS: list[tuple[str, Any]] = [(name, ctypes.c_long) for name in ("b", "n", "h", "k", "d", "v")]
_FIELDS += [(name, Pointer) for name in ("queries", "keys", "values")]
_FIELDS += [(name, ctypes.c_long * 3) for name in ("query", "key", "value")]
_FIELDS += [("scale", ctypes.c_float), ("shared", ctypes.c_int)]


class _Slots(ctypes.Structure):
    _fields_ = _FIELDS


def slot_weights(
    queries: Tensor, keys: Tensor, values: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor | None]:
    """Weights (b, n, h, k) and, with values, what they mix (b, n, h, v).

    Queries are (b, n, h, d). Keys and values are (b, n, k, .) for all heads, or (b, h, n, k, .).
    """
    wide = queries.dtype == keys.dtype and keys.shape[-2] <= MOST
    if torch.compiler.is_compiling() or not wide or kernels(queries) is None:
        return _composed(queries, keys, values, scale)
    weights, mixed = _Fused.apply(queries, keys, values, scale)
    return weights, None if values is None else mixed


def _composed(
    queries: Tensor, keys: Tensor, values: Tensor | None, scale: float
) -> tuple[Tensor, Tensor | None]:
    if keys.ndim == 4:
        weights = (torch.matmul(queries, keys.mT) * scale).softmax(dim=-1)
        return weights, None if values is None else torch.matmul(weights, values)
    # A product and a sum: half the time of b h n matrix products of one row each.
    heads = queries.transpose(1, 2)  # b h n d
    weights = ((heads.unsqueeze(-2) * keys).sum(dim=-1) * scale).softmax(dim=-1)  # b h n k
    mixed = None
    if values is not None:
        mixed = (weights.unsqueeze(-1) * values).sum(dim=-2).transpose(1, 2)
    return weights.transpose(1, 2).contiguous(), mixed


def _strides(tensor: Tensor | None) -> Any:
    """Of graph, source and head."""
    if tensor is None:
        return (ctypes.c_long * 3)(0, 0, 0)
    if tensor.ndim == 4:
        return (ctypes.c_long * 3)(tensor.stride(0), tensor.stride(1), 0)
    return (ctypes.c_long * 3)(tensor.stride(0), tensor.stride(2), tensor.stride(1))


def _arguments(queries: Tensor, keys: Tensor, values: Tensor | None, scale: float) -> Any:
    b, n, h, d = queries.shape
    v = 0 if values is None else values.shape[-1]
    return _Slots(
        *(b, n, h, keys.shape[-2], d, v),
        *(pointer(queries), pointer(keys), pointer(values)),
        (ctypes.c_long * 3)(*queries.stride()[:3]),
        *(_strides(keys), _strides(values)),
        scale,
        keys.ndim == 4,
    )


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        queries: Tensor, keys: Tensor, values: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        lib = kernels(queries)
        assert lib is not None
        queries, keys = queries.contiguous(), keys.contiguous()
        values = None if values is None else values.contiguous()
        given = _arguments(queries, keys, values, scale)
        weights = queries.new_empty(*queries.shape[:3], keys.shape[-2])
        mixed = queries.new_empty(*queries.shape[:3], given.v)
        lib.gm_slots(ctypes.byref(given), pointer(weights), pointer(mixed), torch.get_num_threads())
        return weights, mixed

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        queries, keys, values, ctx.scale = inputs
        ctx.save_for_backward(queries, keys, values, output[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, weights = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: a second derivative may be asked for
            return *_composed_backward(queries, keys, values, ctx.scale, grads), None
        lib = kernels(queries)
        assert lib is not None
        queries, keys = queries.contiguous(), keys.contiguous()
        values = None if values is None else values.contiguous()
        given = _arguments(queries, keys, values, ctx.scale)
        make = torch.zeros_like if keys.ndim == 4 else torch.empty_like
        found = (torch.empty_like(queries), make(keys), None if values is None else make(values))
        above = [grad.contiguous() for grad in grads]
        lib.gm_slots_backward(
            ctypes.byref(given),
            *(pointer(weights), pointer(above[0]), pointer(above[1])),
            *(pointer(grad) for grad in found),
            torch.get_num_threads(),
        )
        return *found, None


def _composed_backward(
    queries: Tensor, keys: Tensor, values: Tensor | None, scale: float, grads: tuple[Tensor, ...]
) -> list[Tensor | None]:
    """The same gradients, themselves differentiable."""
    weights, mixed = _composed(queries, keys, values, scale)
    outs = [weights] if mixed is None else [weights, mixed]
    inputs = [x for x in (queries, keys, values) if x is not None and x.requires_grad]
    found = torch.autograd.grad(outs, inputs, list(grads[: len(outs)]), create_graph=True)
    by_id = {id(x): grad for x, grad in zip(inputs, found)}
    return [None if x is None else by_id.get(id(x)) for x in (queries, keys, values)]

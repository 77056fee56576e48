"""The C kernels on chunks: shapes, pointers and strides."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.fused.inputs import FactorGrads, FactorInputs
from graph_machine.ops.fused.native import Pointer, kernels, pointer, work
from graph_machine.ops.fused.plan import Chunk, Scratch


def _struct(name: str, longs: str, pointers: str, more: str = "", tail: Any = ()) -> Any:
    fields: list[tuple[str, Any]] = [(field, ctypes.c_long) for field in longs.split()]
    fields += [(field, Pointer) for field in pointers.split()]
    fields += [(field, ctypes.c_long) for field in more.split()]
    return type(name, (ctypes.Structure,), {"_fields_": [*fields, *tail]})


# In the order of kernels.c.
_Factors = _struct(
    "Factors",
    "g h n k m d",
    "e1_weights addresses edge_temps queries keys mask entropy_weights",
    "mask_graph mask_source weight_graph weight_source",
    (("eps", ctypes.c_float), ("logit_space", ctypes.c_int)),
)
_Referral = _struct("Referral", "g u r l m d w v depth", "bias queries keys values more")
_ReferralGrads = _struct(
    "ReferralGrads", "", "outs more_outs n2 bias queries keys values more weights"
)


def _threads() -> int:
    return torch.get_num_threads()


def _strides(tensor: Tensor | None) -> tuple[int, int]:
    """Of the graph and source axes; an axis of size 1 broadcasts."""
    if tensor is None:
        return 0, 0
    graph, source = tensor.stride()[:2]
    return (graph if tensor.shape[0] > 1 else 0), (source if tensor.shape[1] > 1 else 0)


def serves_factors(inputs: FactorInputs, chunk: Chunk) -> bool:
    """Float32 on a CPU, with all sources of its graphs in the chunk."""
    _, _, n, m = inputs.sizes
    example = inputs.queries if inputs.queries is not None else inputs.e1_weights
    assert example is not None
    return chunk.num_sources == n and kernels(example, m * n) is not None


def _factors(inputs: FactorInputs, chunk: Chunk, scratch: Scratch, entropies: bool) -> Any:
    _, h, n, m = inputs.sizes
    keys, d, k = None, 0, 0
    if inputs.keys is not None:
        d = inputs.keys.shape[-1]
        keys = scratch("target_keys", chunk.num_graphs, h, d, m)
        keys.copy_(chunk.take(inputs.keys, None).transpose(2, 3))
    if inputs.e1_weights is not None:
        k = inputs.e1_weights.shape[-1]
    weights = inputs.entropy_weights if entropies else None

    def at(tensor: Tensor | None) -> int | None:
        return None if tensor is None else pointer(chunk.take(tensor, None))

    return _Factors(
        *(chunk.num_graphs, h, n, k, m, d),
        *(at(inputs.e1_weights), at(inputs.addresses), at(inputs.edge_temps)),
        *(at(inputs.queries), pointer(keys), at(inputs.mask), at(weights)),
        *_strides(inputs.mask),
        *_strides(weights),
        inputs.eps,
        inputs.logit_space,
    )


def factors(
    inputs: FactorInputs, chunk: Chunk, scratch: Scratch, entropies: Tensor | None
) -> Tensor:
    """n2 factors (g, h, s, m); adds the entropies of the chunk, if there is where to."""
    lib = kernels(scratch.like)
    assert lib is not None
    _, h, n, m = inputs.sizes
    ask = entropies is not None and inputs.entropy_weights is not None
    given = _factors(inputs, chunk, scratch, ask)
    out = scratch("n2_factors", chunk.num_graphs, h, n, m)
    sums = torch.zeros(chunk.num_graphs, 2, dtype=torch.float64) if ask else None
    room = work(lib.gm_factor_work(m), out)
    lib.gm_factors(ctypes.byref(given), pointer(out), pointer(sums), pointer(room), _threads())
    if entropies is not None and sums is not None:
        entropies += sums.sum(dim=0).to(entropies.dtype)
    return out


def factors_backward(
    inputs: FactorInputs,
    grads: FactorGrads,
    n2_grads: Tensor,
    entropy_grads: Tensor | None,
    chunk: Chunk,
    scratch: Scratch,
) -> None:
    lib = kernels(scratch.like)
    assert lib is not None
    given = _factors(inputs, chunk, scratch, entropy_grads is not None)
    slopes = (0.0, 0.0) if entropy_grads is None else entropy_grads.tolist()
    key_grads = None
    if inputs.keys is not None:
        _, h, m, d = inputs.keys.shape
        key_grads = scratch("target_key_grads", chunk.num_graphs, h, d, m)

    def at(tensor: Tensor | None) -> int | None:
        return None if tensor is None else pointer(chunk.take(tensor, None))

    room = work(lib.gm_factor_work(n2_grads.shape[-1]), n2_grads)
    lib.gm_factors_backward(
        ctypes.byref(given),
        pointer(n2_grads),
        *slopes,
        *(at(grads.e1_weights), at(grads.addresses), at(grads.edge_temps), at(grads.queries)),
        pointer(key_grads),
        pointer(room),
        _threads(),
    )
    if grads.keys is not None and key_grads is not None:
        chunk.take(grads.keys, None).copy_(key_grads.transpose(2, 3))


def attend(logits: Tensor, values: Tensor, out: Tensor) -> Tensor | None:
    """softmax(logits) values for (x, n, m) and (x, m, w); None where the kernels do not serve."""
    (x, n, m), w = logits.shape, values.shape[-1]
    lib = kernels(logits, m * max(w, n))
    if lib is None:
        return None
    room = work(lib.gm_attend_work(n, m, w), logits)
    lib.gm_attend(
        *(x, n, m, w),
        *(pointer(logits), pointer(values), pointer(out), pointer(room)),
        _threads(),
    )
    return out


def attend_backward(
    logits: Tensor, values: Tensor, out_grads: Tensor, logit_grads: Tensor, value_grads: Tensor
) -> bool:
    """Fill the gradients of logits and values; False where the kernels do not serve."""
    (x, n, m), w = logits.shape, values.shape[-1]
    lib = kernels(logits, m * max(w, n))
    if lib is None:
        return False
    room = work(lib.gm_attend_work(n, m, w), logits)
    lib.gm_attend_backward(
        *(x, n, m, w),
        *(pointer(logits), pointer(values), pointer(out_grads)),
        *(pointer(logit_grads), pointer(value_grads), pointer(room)),
        _threads(),
    )
    return True


def referral(
    n2_factors: Tensor,
    queries: Tensor,
    keys: Tensor,
    wide: Tensor,
    values: Tensor | None,
    slots: int,
    depth: int,
) -> Any:
    """The arguments of joint referral: g h s m, g h s d, gu c d, g c w, gu c v.

    `depth` is the width of queries and keys without padding.
    """
    g, h, s, m = n2_factors.shape
    v = 0 if values is None else values.shape[-1]
    u = keys.shape[0] // g
    return _Referral(
        *(g, u, h * s, slots, m, queries.shape[-1], wide.shape[-1], v, depth),
        *(pointer(n2_factors), pointer(queries), pointer(keys), pointer(wide), pointer(values)),
    )


def refer(given: Any, outs: Tensor, more_outs: Tensor | None, n2_weights: Tensor) -> None:
    lib = kernels(outs)
    assert lib is not None
    room = work(lib.gm_refer_work(given.l * given.m, given.d, given.w, given.v), outs)
    lib.gm_refer(
        ctypes.byref(given),
        *(pointer(outs), pointer(more_outs), pointer(n2_weights), pointer(room)),
        _threads(),
    )


def refer_backward(given: Any, **tensors: Tensor | None) -> None:
    """`tensors` are the fields of ReferralGrads in kernels.c."""
    lib = kernels(torch.empty(0))
    assert lib is not None
    grads = _ReferralGrads(**{name: pointer(tensor) for name, tensor in tensors.items()})
    room = work(lib.gm_refer_work(given.l * given.m, given.d, given.w, given.v), torch.empty(0))
    lib.gm_refer_backward(ctypes.byref(given), ctypes.byref(grads), pointer(room), _threads())


def sharpen(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float, out: Tensor) -> bool:
    """Fill `out`; False where the kernels do not serve."""
    lib = kernels(addresses)
    if lib is None:
        return False
    b, n, k, m = addresses.shape
    room = work(lib.gm_factor_work(m), addresses)
    lib.gm_sharpen(
        *(b, n, k, m, pointer(addresses), pointer(temps), pointer(mask)),
        *(*_strides(mask), eps, pointer(out), pointer(room)),
        _threads(),
    )
    return True


def sharpen_backward(
    grads: Tensor,
    addresses: Tensor,
    temps: Tensor,
    outs: Tensor,
    eps: float,
    address_grads: Tensor,
    temp_grads: Tensor,
) -> bool:
    lib = kernels(addresses)
    if lib is None:
        return False
    m = addresses.shape[-1]
    room = work(lib.gm_factor_work(m), addresses)
    lib.gm_sharpen_backward(
        *(addresses.numel() // m, m, pointer(grads), pointer(addresses), pointer(temps)),
        *(pointer(outs), eps, pointer(address_grads), pointer(temp_grads), pointer(room)),
        _threads(),
    )
    return True

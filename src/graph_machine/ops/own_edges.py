"""What every source computes with its own k edges, before and after it looks at other nodes.

Keys and values of edges are linear in edge features, so queries are projected down to these, and
what weights mix of them is projected afterwards.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.native import eager_function, gradient_sets, kernels, pointer, served
from graph_machine.ops.native.calls import NONE, head_major, rows
from graph_machine.ops.native.structs import Collect, SlotGrads, SlotOuts, Slots
from graph_machine.ops.numerics import in_float32, masked_softmax

# The kernel has the edges of LANES nodes on its stack.
MOST = 64


def block_diagonal(weights: Float[Tensor, "h d e"]) -> Float[Tensor, "hd he"]:
    """One matrix that applies every head's own projection: a single product instead of h."""
    h, d, e = weights.shape
    eye = torch.eye(h, dtype=weights.dtype, device=weights.device)
    return (weights.unsqueeze(2) * eye[:, None, :, None]).reshape(h * d, h * e)


def node_major(heads: Float[Tensor, "b h n d"]) -> Float[Tensor, "b n hd"]:
    """Heads side by side, as projections produce them."""
    return in_float32(heads).transpose(1, 2).flatten(-2)


def scaled(
    queries: Float[Tensor, "b h n d"], temps: Float[Tensor, "b h n"] | None, scale: float
) -> Float[Tensor, "b h n d"]:
    """Queries that hold a factor's temperature and 1/sqrt(d)."""
    queries = in_float32(queries)
    factor = scale if temps is None else (in_float32(temps) * scale).unsqueeze(-1)
    return rows(queries * factor)


class OwnEdges(NamedTuple):
    """All with temperature and 1/sqrt(d) where they are queries; absent parts are None."""

    queries: Float[Tensor, "b h n d"] | None
    weights: Float[Tensor, "b n h k"]
    mixed: Float[Tensor, "b n h e"] | None
    e2_queries: Float[Tensor, "b n h e"] | None = None
    own_weights: Float[Tensor, "b n h k"] | None = None
    own_mixed: Float[Tensor, "b n h e"] | None = None


def own_edges(
    queries: Float[Tensor, "b h n d"],
    features: Float[Tensor, "b n k e"],
    e1_weights: Float[Tensor, "h d e"],
    *,
    node: bool,
    node_temps: Float[Tensor, "b h n"] | None = None,
    e2_weights: Float[Tensor, "h d e"] | None = None,
    e2_temps: Float[Tensor, "b h n"] | None = None,
    own: bool = False,
    mix: bool = True,
    given: Int[Tensor, "b n g"] | None = None,
    empty: bool = False,
) -> OwnEdges:
    """Queries of the node expert (if `node`), weights over own slots and (if `mix`) what they mix.

    With `e2_weights` also queries of e2; with `own` (pre-aggregated referral), weights over own
    slots by these, before temperatures. The last slots are those of `given` edges, of which a
    target of -1 is none, and of an empty edge, if `empty`.
    """
    queries, features = rows(in_float32(queries)), in_float32(features).contiguous()
    tensors = (
        queries,
        _in_float32(node_temps if node else None),
        _in_float32(e2_temps),
        features,
        in_float32(e1_weights),
        _in_float32(e2_weights),
    )
    widths = (queries.shape[-1], features.shape[-1])
    fits = all(w % 8 == 0 and w <= MOST for w in widths) and features.shape[2] <= MOST
    if not fits or not served(*tensors):
        return _composed(*tensors, node, own, mix, slots_there(given, features, empty))
    targets = None if given is None else given.to(torch.int32).contiguous()
    found = _kernel(tensors, node, own, mix, targets, empty)
    scaled_queries, weights, mixed, e2_queries, own_weights, own_mixed = found
    return OwnEdges(
        scaled_queries.transpose(1, 2) if node else None,
        *(weights, mixed if mix else None),
        e2_queries if e2_weights is not None else None,
        *((own_weights, own_mixed) if own else (None, None)),
    )


def _in_float32(x: Tensor | None) -> Tensor | None:
    return None if x is None else in_float32(x)


def slots_there(given: Tensor | None, features: Tensor, empty: bool) -> Tensor | None:
    """Which slots hold an edge, (b, n, 1, k); None: all of them."""
    if given is None:
        return None
    before = features.shape[2] - given.shape[2] - empty
    return functional.pad(
        functional.pad(given >= 0, (before, 0), value=True), (0, int(empty)), value=True
    ).unsqueeze(2)


def _composed(
    queries: Tensor,
    node_temps: Tensor | None,
    e2_temps: Tensor | None,
    features: Tensor,
    e1_weights: Tensor,
    e2_weights: Tensor | None,
    node: bool,
    own: bool,
    mix: bool,
    there: Tensor | None,
) -> OwnEdges:
    h, scale = queries.shape[1], queries.shape[-1] ** -0.5
    to_edges = block_diagonal(e1_weights * scale)
    if e2_weights is not None:
        to_edges = torch.cat([to_edges, block_diagonal(e2_weights * scale)], dim=-1)
    absorbed = torch.matmul(node_major(queries), to_edges).unflatten(
        -1, (-1, h, features.shape[-1])
    )
    parts = absorbed.unbind(dim=2)  # b n h e
    weights = masked_softmax(torch.matmul(parts[0], features.mT), there)
    scaled_queries = scaled(queries, node_temps, scale) if node else None
    found = OwnEdges(scaled_queries, weights, torch.matmul(weights, features) if mix else None)
    if e2_weights is None:
        return found
    e2_queries, own_weights, own_mixed = parts[1], None, None
    if own:
        own_weights = masked_softmax(torch.matmul(e2_queries, features.mT), there)
        own_mixed = torch.matmul(own_weights, features)
    if e2_temps is not None:
        e2_queries = e2_queries * e2_temps.transpose(1, 2).unsqueeze(-1)
    return found._replace(e2_queries=e2_queries, own_weights=own_weights, own_mixed=own_mixed)


def _arguments(tensors: Any, own: bool, given: Tensor | None, empty: bool) -> Any:
    queries, node_temps, e2_temps, features, e1_weights, e2_weights = tensors
    (b, h, n, d), (k, e) = queries.shape, features.shape[2:]
    weights = [None if w is None else w.contiguous() for w in (e1_weights, e2_weights)]
    count = 0 if given is None else given.shape[-1]
    made = Slots(
        *(b, n, h, k, d, e),
        *(head_major(queries), head_major(node_temps), head_major(e2_temps)),
        *(features.data_ptr(), *(pointer(w) for w in weights)),
        *(ctypes.addressof(NONE) if given is None else pointer(given), count),
        *(k - count - empty, d**-0.5, own),
    )
    return made, weights  # copies have to live as long as the call


def _forward(*given: Any) -> tuple[Tensor, ...]:
    *tensors, node, own, mix, targets, empty = given
    queries, features, e2_weights = tensors[0], tensors[3], tensors[5]
    lib: Any = kernels(queries)
    (b, h, n, d), (k, e) = queries.shape, features.shape[2:]
    x, _alive = _arguments(tensors, own, targets, empty)
    has_e2 = e2_weights is not None
    there = (node, True, mix, has_e2, own, own)
    widths = [width if use else 0 for width, use in zip((d, k, e, e, k, e), there)]
    outs = tuple(queries.new_empty(b, n, h, width) for width in widths)
    lib.gm_slots(ctypes.byref(x), ctypes.byref(_outs(outs)), torch.get_num_threads())
    return outs


def _outs(tensors: Any) -> Any:
    return SlotOuts(*(None if x is None or x.numel() == 0 else x.data_ptr() for x in tensors))


def _backward(outs: Any, grads: Any, *given: Any) -> tuple[Tensor | None, ...]:
    *tensors, node, own, mix, targets, empty = given
    queries, node_temps, e2_temps, features, e1_weights, e2_weights = tensors
    lib: Any = kernels(queries)
    x, _alive = _arguments(tensors, own, targets, empty)
    needed = (node, False, mix, e2_weights is not None, False, own)
    above = [
        (torch.zeros_like(out) if need else None) if grad is None else grad.contiguous()
        for out, grad, need in zip(outs, grads, needed)
    ]
    threads, weights = torch.get_num_threads(), e1_weights.shape
    made = [None if t is None else torch.empty_like(t) for t in (queries, node_temps, e2_temps)]
    if node_temps is not None and not node:
        made[1] = torch.zeros_like(node_temps)
    feature_grads = torch.empty_like(features)
    parameters = gradient_sets(2 * weights.numel(), queries)
    y = SlotGrads(*(head_major(t) for t in made), feature_grads.data_ptr(), parameters.data_ptr())
    outs_struct, above_struct = _outs(outs), _outs(above)
    arguments = (x, outs_struct, above_struct, y)
    lib.gm_slots_backward(*(ctypes.byref(argument) for argument in arguments), threads)
    e1_grads, e2_grads = parameters[: 2 * weights.numel()].view(2, *weights)
    return *made, feature_grads, e1_grads, None if e2_weights is None else e2_grads


_kernel = eager_function(_forward, _backward, kept=6)


def add_edge_values(
    base: Float[Tensor, "b n h v"],
    e1: Float[Tensor, "b n h e"],
    e1_weights: Float[Tensor, "h v e"],
    e2: Float[Tensor, "b n h e"] | None = None,
    e2_weights: Float[Tensor, "h v e"] | None = None,
) -> Float[Tensor, "b n h v"]:
    """base + values of e1 (+ values of e2), from what weights have mixed of edge features."""
    given = (base, e1, in_float32(e1_weights), e2, e2_weights)
    if e2_weights is not None:
        given = (*given[:4], in_float32(e2_weights))
    if all(w % 8 == 0 for w in e1_weights.shape[1:]) and served(*given):
        return _collect(given)[0]
    pairs = [(x, w) for x, w in (given[1:3], given[3:5]) if x is not None and w is not None]
    both = torch.cat([x.flatten(-2) for x, _ in pairs], dim=-1)  # b n 2he
    turned = torch.cat([block_diagonal(w.transpose(1, 2)) for _, w in pairs], dim=0)
    return base + torch.matmul(both, turned).unflatten(-1, (base.shape[2], -1))


def _collect_arguments(tensors: tuple[Tensor | None, ...]) -> Any:
    alive = [None if t is None else t.contiguous() for t in tensors]
    base, e1, e1_weights, e2, e2_weights = alive
    assert base is not None
    assert e1 is not None
    b, n, h, v = base.shape
    found = (pointer(t) for t in (base, e1, e2, e1_weights, e2_weights))
    return Collect(b * n, h, v, e1.shape[-1], *found), alive


def _collect_forward(*tensors: Tensor | None) -> tuple[Tensor, ...]:
    base, _, weights = tensors[:3]
    assert base is not None
    assert weights is not None
    lib: Any = kernels(base)
    x, _alive = _collect_arguments(tensors)
    outs = torch.empty_like(base, memory_format=torch.contiguous_format)
    room = outs.new_empty(2 * weights.numel())
    lib.gm_collect(ctypes.byref(x), outs.data_ptr(), room.data_ptr(), torch.get_num_threads())
    return (outs,)


def _collect_backward(outs: Any, grads: Any, *tensors: Any) -> tuple[Tensor | None, ...]:
    if grads[0] is None:
        return (None,) * 5
    lib: Any = kernels(tensors[0])
    x, alive = _collect_arguments(tensors)
    above, threads = grads[0].contiguous(), torch.get_num_threads()
    d_e1, d_e2 = (
        torch.empty_like(alive[1]),
        None if alive[3] is None else torch.empty_like(alive[3]),
    )
    weights = tensors[2].shape
    d_weights = gradient_sets(2 * weights.numel(), above)
    lib.gm_collect_backward(
        ctypes.byref(x),
        *(above.data_ptr(), d_e1.data_ptr(), pointer(d_e2), d_weights.data_ptr()),
        threads,
    )
    first, second = d_weights[: 2 * weights.numel()].view(2, *weights)
    return above, d_e1, first, d_e2, None if d_e2 is None else second


_collect = eager_function(_collect_forward, _collect_backward, kept=0)

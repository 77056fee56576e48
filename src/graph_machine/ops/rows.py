"""What is done to rows of nodes or edges: norms, projections, sharpening, feed-forward networks.

Each is one C kernel where one serves; elsewhere it is composed of torch's functions.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from graph_machine.ops.core import Packed
from graph_machine.ops.native import (
    eager_function,
    gradient_sets,
    kernels,
    loaded,
    pointer,
    served,
    work,
)
from graph_machine.ops.native.calls import strides
from graph_machine.ops.native.structs import (
    MOST_PARTS,
    Edges,
    Ffn,
    Longs,
    Messages,
    Parts,
    Project,
    Staying,
)
from graph_machine.ops.numerics import SOFTPLUS_SHIFT, TEMPERATURES, in_float32, temperature

NORMED = ("queries", "keys")
CONTIGUOUS = torch.contiguous_format
# Numbers of these in common.h.
KINDS = ("as it is", "unit rms", *TEMPERATURES)


def unit_rms(x: Float[Tensor, "*s d"], eps: float) -> Float[Tensor, "*s d"]:
    """QK-norm: RMS norm without a learned scale, so that it adds no parameters."""
    return functional.rms_norm(in_float32(x), x.shape[-1:], eps=eps)


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


# ---- projections into heads


def split_heads(
    projected: Float[Tensor, "b n w"],
    num_heads: int,
    widths: Mapping[str, int],
    *,
    temperature_kind: str,
    qk_norm: bool,
    eps: float,
) -> dict[str, Tensor]:
    """Name -> (b, h, n, width); temperatures (names ending in `_temps`, width 1) are (b, h, n).

    With `qk_norm`, queries and keys have unit RMS.
    """
    sizes = [num_heads * width for width in widths.values()]
    parts = {}
    for (name, width), part in zip(widths.items(), projected.split(sizes, dim=-1)):
        part = part.unflatten(-1, (num_heads, width))
        if name.endswith("_temps"):
            part = temperature(part, temperature_kind)
        parts[name] = unit_rms(part, eps) if qk_norm and name in NORMED else part
    return _head_major(parts)


def _head_major(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: (part.squeeze(-1) if name.endswith("_temps") else part).transpose(1, 2)
        for name, part in parts.items()
    }


def project_heads(
    x: Float[Tensor, "b n d"],
    norm: Float[Tensor, "d"] | None,
    weight: Float[Tensor, "w d"],
    num_heads: int,
    widths: Mapping[str, int],
    *,
    temperature_kind: str,
    qk_norm: bool,
    eps: float,
) -> dict[str, Tensor] | None:
    """`split_heads` of a linear map of the (normed) rows, by one kernel; None where none serves."""
    known = temperature_kind in TEMPERATURES and len(widths) <= MOST_PARTS
    if not known or not x.numel() or not served(x, norm, weight):
        return None
    kinds = [
        KINDS.index(temperature_kind)
        if name.endswith("_temps")
        else int(qk_norm and name in NORMED)
        for name in widths
    ]
    found = _project((x, norm, weight), num_heads, tuple(widths.values()), kinds, eps)
    return _head_major(dict(zip(widths, found)))


def _project_arguments(
    x: Tensor, norm: Tensor | None, weight: Tensor, h: int, widths: Sequence[int], *rest: Any
) -> Any:
    kinds, eps = rest
    alive = (x.contiguous(), norm, weight.contiguous())
    made = Project(
        *(_rows(x), x.shape[-1], h, len(weight), len(widths), Longs(*widths), Longs(*kinds)),
        *(*map(pointer, alive), eps, SOFTPLUS_SHIFT),
    )
    lib, given = loaded(), ctypes.byref(made)
    room = work(lib.gm_project_work(given), x)
    return lib, given, room, (made, alive)  # these have to live as long as the call


def _project_forward(x: Tensor, norm: Tensor | None, weight: Tensor, *settings: Any) -> Any:
    lib, given, room, _alive = _project_arguments(x, norm, weight, *settings)
    h, widths, *_ = settings
    outs = tuple(x.new_empty(*x.shape[:-1], h, width) for width in widths)
    made = Parts(*(out.data_ptr() for out in outs))
    lib.gm_project(given, ctypes.byref(made), room.data_ptr(), torch.get_num_threads())
    return outs


def _project_backward(
    outs: Any, grads: Any, x: Tensor, norm: Tensor | None, weight: Tensor, *settings: Any
) -> tuple[Tensor | None, ...]:
    lib, given, room, _alive = _project_arguments(x, norm, weight, *settings)
    above = [None if grad is None else grad.contiguous() for grad in grads]
    made = Parts(*map(pointer, above))
    (width, d), d_x = weight.shape, torch.empty_like(x, memory_format=CONTIGUOUS)
    wide = -(-d // 8) * 8
    found = gradient_sets((width + 1) * wide, x)
    lib.gm_project_backward(
        *(given, ctypes.byref(made), d_x.data_ptr(), found.data_ptr(), room.data_ptr()),
        torch.get_num_threads(),
    )
    learned = found[: (width + 1) * wide].view(width + 1, wide)[:, :d]
    return d_x, None if norm is None else learned[width], learned[:width]


_project = eager_function(_project_forward, _project_backward, kept=0)


# ---- temperatures and normed features of edges


def edge_temps(
    features: Float[Tensor, "b n k e"],
    norm: Float[Tensor, "e"],
    weight: Float[Tensor, "1 e"],
    edge_norm: Float[Tensor, "e"],
    kind: str,
    eps: float,
) -> tuple[Float[Tensor, "b n k"], Float[Tensor, "b n k e"]] | None:
    """temperature(weight . norm(x)) and edge_norm(x) by one kernel; None where none serves."""
    fits = kind in TEMPERATURES and features.shape[-1] % 8 == 0 and features.numel()
    if not fits or not served(features, norm, weight, edge_norm):
        return None
    temps, normed = _edges((features, norm, weight, edge_norm, None), None, kind, eps)
    return temps, normed


def edges_beside(
    features: Float[Tensor, "b n k e"],
    sharpener: tuple[Float[Tensor, "e"], Float[Tensor, "1 e"]] | None,
    edge_norm: Float[Tensor, "e"],
    stay: Float[Tensor, "b n s e"],
    targets: Int[Tensor, "b n g"],
    kind: str,
    eps: float,
) -> tuple[Float[Tensor, "b n k"] | None, Float[Tensor, "b n t e"]] | None:
    """The same for edges and, right behind them, edges that stay and have no temperatures.

    Of these, slots with a target below 0 hold no edge; they become 0. The `sharpener` is a norm and
    a weight; None: no temperatures.
    """
    norm, weight = (None, None) if sharpener is None else sharpener
    tensors = (features, norm, weight, edge_norm, stay)
    fits = kind in TEMPERATURES and stay.shape[-1] % 8 == 0 and stay.numel()
    if not fits or (features.numel() and sharpener is None) or not served(*tensors):
        return None
    temps, normed = _edges(tensors, targets.to(torch.int32).contiguous(), kind, eps)
    return temps if sharpener is not None else None, normed


def _edges_arguments(
    features: Tensor,
    norm: Tensor | None,
    weight: Tensor | None,
    edge_norm: Tensor,
    stay: Tensor | None,
    targets: Tensor | None,
    kind: str,
    eps: float,
) -> Any:
    """Of edges (None if there are none) and of those that stay."""
    tensors = (features, norm, weight, edge_norm, stay)
    alive: list[Any] = [None if t is None else t.contiguous() for t in tensors]
    b, n, k, e = features.shape
    count = k if stay is None else k + stay.shape[2]
    edges = staying = None
    if features.numel():
        sizes = (b * n * k, e, KINDS.index(kind), k, count * e)
        edges = Edges(*sizes, *map(pointer, alive[:4]), eps, SOFTPLUS_SHIFT)
    if stay is not None and targets is not None:
        sizes = (b * n, stay.shape[2], targets.shape[-1], e, count * e)
        staying = Staying(*sizes, *map(pointer, (alive[4], alive[3], targets)), eps)
    return edges, staying, alive, count


def _edges_forward(*given: Any) -> tuple[Tensor, ...]:
    edges, staying, alive, count = _edges_arguments(*given)
    x, threads = alive[0], torch.get_num_threads()
    b, n, k, e = x.shape
    temps, normed = x.new_empty(b, n, k), x.new_empty(b, n, count, e)
    if edges is not None:
        loaded().gm_edges(ctypes.byref(edges), pointer(temps), pointer(normed), threads)
    if staying is not None:
        loaded().gm_staying(ctypes.byref(staying), normed.data_ptr() + 4 * k * e, threads)
    return temps, normed


def _edges_backward(outs: Any, grads: Any, *given: Any) -> tuple[Tensor | None, ...]:
    edges, staying, alive, count = _edges_arguments(*given)
    x, norm, weight, _, stay = alive
    (b, n, k, e), threads = x.shape, torch.get_num_threads()
    shapes = ((b, n, k), (b, n, count, e))
    above = [x.new_zeros(s) if g is None else g.contiguous() for s, g in zip(shapes, grads)]
    d_x, d_norm, d_weight, d_edge_norm = torch.empty_like(x), None, None, None
    if edges is not None:
        found = gradient_sets(2 * e, x)
        arguments = (*map(pointer, above), d_x.data_ptr(), found.data_ptr(), threads)
        loaded().gm_edges_backward(ctypes.byref(edges), *arguments)
        shared, d_edge_norm = found[: 2 * e].view(2, e)
        d_norm, d_weight = shared * weight[0], (shared * norm).unsqueeze(0)
    if staying is None:
        return d_x, d_norm, d_weight, d_edge_norm, None
    d_stay, found = torch.empty_like(stay), gradient_sets(e, x)
    first = above[1].data_ptr() + 4 * k * e
    made = (d_stay.data_ptr(), found.data_ptr())
    loaded().gm_staying_backward(ctypes.byref(staying), first, *made, threads)
    both = found[:e]
    return d_x, d_norm, d_weight, both if d_edge_norm is None else d_edge_norm + both, d_stay


_edges = eager_function(_edges_forward, _edges_backward, kept=0)


# ---- messages along edges


def messages(
    seen: Float[Tensor, "r x"],
    edges: Float[Tensor, "r k e"],
    weight: Float[Tensor, "x e"],
    targets: Int[Tensor, "r k"],
) -> Float[Tensor, "r x"] | None:
    """Sums of silu(seen[target] + weight edge) over the slots of every row, by one kernel.

    A target below 0 marks an unused slot. None where no kernel serves.
    """
    fits = all(width % 8 == 0 for width in weight.shape) and targets.numel() > 0
    if not fits or not served(seen, edges, weight):
        return None
    return _messages((seen, edges, weight), targets.contiguous())[0]


def _messages_arguments(seen: Tensor, edges: Tensor, weight: Tensor, targets: Tensor) -> Any:
    alive = [t.contiguous() for t in (seen, edges, weight, targets)]
    made = Messages(*targets.shape, *weight.shape, *map(pointer, alive))
    room = work(loaded().gm_messages_work(ctypes.byref(made)), seen)
    return made, room, alive


def _messages_forward(*given: Any) -> tuple[Tensor, ...]:
    made, room, (seen, *_) = _messages_arguments(*given)
    outs = torch.empty_like(seen)
    arguments = (outs.data_ptr(), room.data_ptr(), torch.get_num_threads())
    loaded().gm_messages(ctypes.byref(made), *arguments)
    return (outs,)


def _messages_backward(outs: Any, grads: Any, *given: Any) -> tuple[Tensor, ...]:
    made, room, (seen, edges, weight, _) = _messages_arguments(*given)
    above, d_edges = grads[0].contiguous(), torch.zeros_like(edges)
    sets = [gradient_sets(each.numel(), seen) for each in (seen, weight)]
    found = (sets[0], d_edges, sets[1])
    loaded().gm_messages_backward(
        *(ctypes.byref(made), pointer(above), *map(pointer, found), room.data_ptr()),
        torch.get_num_threads(),
    )
    d_seen, d_weight = (
        own[: each.numel()].view(each.shape) for own, each in zip(sets, (seen, weight))
    )
    return d_seen, d_edges, d_weight


_messages = eager_function(_messages_forward, _messages_backward, kept=0)


# ---- sharpening


def sharpen_rows(
    addresses: Float[Tensor, "b n k m"],
    temps: Float[Tensor, "b n k"],
    mask: Bool[Tensor, "#b #n m"] | None,
    eps: float,
) -> Float[Tensor, "b n k m"] | None:
    """softmax(temp * log(max(address, eps))) by one kernel; None where none serves."""
    if torch.compiler.is_compiling() or temps.dtype != addresses.dtype or not addresses.numel():
        return None
    return None if kernels(addresses) is None else _sharpen((addresses, temps, mask), eps)[0]


def _graphs(addresses: Tensor) -> tuple[Tensor, int]:
    """With contiguous graphs, and how far these are apart: 0 where all share one input graph."""
    found = addresses if addresses[0].is_contiguous() else addresses.contiguous()
    return found, found.stride(0)


def _sharpen_forward(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float) -> Any:
    addresses, graph = _graphs(addresses)
    alive = [None if x is None else x.contiguous() for x in (temps, mask)]
    outs, sizes = torch.empty_like(addresses, memory_format=CONTIGUOUS), addresses.shape
    room = work(loaded().gm_sharpen_work(sizes[-1]), addresses)
    loaded().gm_sharpen(
        *(*sizes, graph, addresses.data_ptr(), *map(pointer, alive), *strides(alive[1]), eps),
        *(pointer(outs), pointer(room), torch.get_num_threads()),
    )
    return (outs,)


def _sharpen_backward(
    outs: Any, grads: Any, addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float
) -> tuple[Tensor | None, ...]:
    """Outputs are 0 at masked entries: so are all gradients. Input graphs need none."""
    above, given = grads[0].contiguous(), temps.contiguous()
    wanted = torch.empty_like(above) if addresses.requires_grad else None
    made = [wanted, torch.empty_like(given)]
    (b, n, k, m), (addresses, graph) = addresses.shape, _graphs(addresses)
    loaded().gm_sharpen_backward(
        *(b, n * k, m, graph, pointer(above), addresses.data_ptr(), pointer(given)),
        *(pointer(outs[0]), eps),
        *(*map(pointer, made), torch.get_num_threads()),
    )
    return *made, None


_sharpen = eager_function(_sharpen_forward, _sharpen_backward, kept=1)


def sharpen_packed(
    addresses: Float[Tensor, " s"], temps: Float[Tensor, "1 r k"], packed: Packed, eps: float
) -> Float[Tensor, " s"]:
    """The same for packed graphs, which only kernels serve."""
    return _sharpen_packed((addresses, temps), packed, eps)[0]


def _packed_forward(addresses: Tensor, temps: Tensor, packed: Packed, eps: float) -> Any:
    alive, outs = temps.contiguous(), torch.empty_like(addresses)
    room = work(loaded().gm_sharpen_work(packed.largest), addresses)
    loaded().gm_sharpen_packed(
        *(packed.graphs, temps.shape[-1], packed.largest, *packed.pointers, pointer(addresses)),
        *(pointer(alive), eps, pointer(outs), pointer(room), torch.get_num_threads()),
    )
    return (outs,)


def _packed_backward(
    outs: Any, grads: Any, addresses: Tensor, temps: Tensor, packed: Packed, eps: float
) -> tuple[Tensor | None, ...]:
    alive = [x.contiguous() for x in (grads[0], addresses, temps)]
    wanted = torch.empty_like(addresses) if addresses.requires_grad else None
    d_temps = torch.empty_like(alive[2])
    loaded().gm_sharpen_packed_backward(
        *(packed.graphs, temps.shape[-1], *packed.pointers, *map(pointer, alive)),
        *(pointer(outs[0]), eps, pointer(wanted), pointer(d_temps), torch.get_num_threads()),
    )
    return wanted, d_temps


_sharpen_packed = eager_function(_packed_forward, _packed_backward, kept=1)


# ---- RMS norm


def rms_norm(
    x: Float[Tensor, "*s d"], weight: Float[Tensor, "d"], eps: float
) -> Float[Tensor, "*s d"]:
    """As `torch.nn.functional.rms_norm` over the last axis."""
    if x.numel() and served(x, weight):
        return _norm((x, weight), eps)[0]
    return functional.rms_norm(x, x.shape[-1:], weight, eps)


def _norm_forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, ...]:
    x, d = x.contiguous(), x.shape[-1]
    outs = torch.empty_like(x)
    given = (_rows(x), d, x.data_ptr(), weight.data_ptr(), eps, outs.data_ptr())
    loaded().gm_norm(*given, torch.get_num_threads())
    return (outs,)


def _norm_backward(outs: Any, grads: Any, x: Tensor, weight: Tensor, eps: float) -> Any:
    x, d, above = x.contiguous(), x.shape[-1], grads[0].contiguous()
    d_x, found = torch.empty_like(x), gradient_sets(d, x)
    loaded().gm_norm_backward(
        *(_rows(x), d, x.data_ptr(), weight.data_ptr(), eps),
        *(above.data_ptr(), d_x.data_ptr(), found.data_ptr(), torch.get_num_threads()),
    )
    return d_x, found[:d]


_norm = eager_function(_norm_forward, _norm_backward, kept=0)


# ---- feed-forward networks


def feed_forward(
    x: Float[Tensor, "*s d"],
    norm: Float[Tensor, "d"],
    gate_up: Float[Tensor, "f2 d"],
    down: Float[Tensor, "d f"],
    added: Float[Tensor, "*s a"] | None,
    out: Float[Tensor, "d a"] | None,
    eps: float,
) -> Float[Tensor, "*s d"] | None:
    """y + down(silu(gate yn) * up yn) with yn = rms_norm(y) and y = x + out(added), or x.

    One kernel, which keeps nothing but its inputs; None where none serves.
    """
    tensors = (x, norm, gate_up, down, added, out)
    widths = (*down.shape, 0 if added is None else added.shape[-1])
    if any(w % 8 for w in widths) or not x.numel() or not served(*tensors):
        return None
    return _ffn(tensors, eps)[0]


def _ffn_arguments(*given: Any) -> Any:
    *tensors, eps = given
    alive: list[Any] = [None if t is None else t.contiguous() for t in tensors]
    x, (d, f), added = alive[0], alive[3].shape, alive[4]
    a = 0 if added is None else added.shape[-1]
    made = Ffn(_rows(x), d, f, a, *map(pointer, alive), eps)
    lib, reference = loaded(), ctypes.byref(made)
    return lib, reference, work(lib.gm_ffn_work(reference), x), alive, (d, f, a), made


def _ffn_forward(*given: Any) -> tuple[Tensor, ...]:
    lib, reference, room, alive, _, _made = _ffn_arguments(*given)
    outs = torch.empty_like(alive[0])
    lib.gm_ffn(reference, outs.data_ptr(), room.data_ptr(), torch.get_num_threads())
    return (outs,)


def _ffn_backward(outs: Any, grads: Any, *given: Any) -> tuple[Tensor | None, ...]:
    lib, reference, room, alive, (d, f, a), _made = _ffn_arguments(*given)
    x, added = alive[0], alive[4]
    above, d_x = grads[0].contiguous(), torch.empty_like(x)
    d_added = None if added is None else torch.empty_like(added)
    sizes = (2 * f * d, d * f, d, d * a)
    found = gradient_sets(sum(sizes), x)
    lib.gm_ffn_backward(
        *(reference, above.data_ptr(), d_x.data_ptr(), pointer(d_added), found.data_ptr()),
        *(room.data_ptr(), torch.get_num_threads()),
    )
    gate_up, down, norm, out = found[: sum(sizes)].split(sizes)
    learned = (norm, gate_up.view(2 * f, d), down.view(d, f))
    return d_x, *learned, d_added, None if added is None else out.view(d, a)


_ffn = eager_function(_ffn_forward, _ffn_backward, kept=0)

"""Shape checks at the boundary of public ops: the message names letters and numbers."""

from torch import Tensor

from graph_machine.errors import ShapeError


def check_shapes(op: str, **tensors: tuple[Tensor | None, str]) -> None:
    """Bind each tensor's axes to letters; the first tensor that disagrees is the error."""
    sizes: dict[str, int] = {}
    for name, (tensor, letters) in tensors.items():
        if tensor is None:
            continue
        axes = letters.split()
        shape = tuple(tensor.shape)
        fits = len(shape) == len(axes) and all(
            sizes.get(axis, size) == size for axis, size in zip(axes, shape)
        )
        if not fits:
            expected = ", ".join(str(sizes.get(axis, "any")) for axis in axes)
            raise ShapeError(
                f"{op}: {name} should be ({', '.join(axes)}) = ({expected}), got {shape}."
            )
        if 0 in shape:
            axis = axes[shape.index(0)]
            raise ShapeError(f"{op}: {name} has no entries along '{axis}': shape {shape}.")
        sizes.update(zip(axes, shape))

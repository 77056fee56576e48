"""The shape checker of the test run finds what it should find."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jaxtyping
import pytest
import torch
from beartype import beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from support.checker import jaxtyped

checked = jaxtyped(typechecker=beartype)


@checked
def mixed(x: Float[Tensor, "b n"], y: "Float[Tensor, 'n d'] | None" = None) -> Float[Tensor, "b"]:
    return x.sum(dim=1) if y is None else x


@checked
def plain(count: int, unknown: "NotThere" = None) -> str:  # type: ignore[name-defined]
    found: Any = "a" * count if count < 3 else count
    return found


@checked
@dataclass
class Pair:
    x: Float[Tensor, "b n"]
    y: Float[Tensor, "b"]


WRONG: dict[str, Callable[[], Any]] = {
    "axes": lambda: mixed(torch.ones(2)),
    "a number type": lambda: mixed(torch.ones(2, 3, dtype=torch.int64)),
    "sizes of two arguments": lambda: mixed(torch.ones(2, 3), torch.ones(4, 5)),
    "what is returned": lambda: mixed(torch.ones(2, 3), torch.ones(3, 5)),
    "a plain type": lambda: plain("2"),
    "a plain type that is returned": lambda: plain(3),
    "fields": lambda: Pair(torch.ones(2, 3), torch.ones(3)),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_wrong_types_and_sizes_are_found(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeCheckError):
        call()


def test_right_ones_pass_and_calls_do_not_share_sizes() -> None:
    for rows in (2, 3):
        assert mixed(torch.ones(rows, rows)).shape == (rows,)
        assert Pair(torch.ones(rows, 4), torch.ones(rows)).y.shape == (rows,)
    assert plain(2) == "aa"


@pytest.mark.usefixtures("unchecked")
def test_it_can_be_switched_off() -> None:
    assert plain(3) == 3
    assert mixed(torch.ones(2, 3), torch.ones(4, 5)).shape == (2, 3)


def test_the_package_is_checked_by_it() -> None:
    from graph_machine.state import GraphState

    assert jaxtyping.jaxtyped is jaxtyped
    with pytest.raises(TypeCheckError):
        GraphState(torch.ones(2, 3))

"""The kernels' first use on a GPU: they are compared before they are trusted.

Small odd-shaped inputs, outputs and every gradient, in exact float32 and in tf32, beside the torch
code in float64 on the CPU, which is tested to equal the reference there. The verdict is kept in the
cache folder, once per device, driver, versions and sources. If the kernels differ or raise, torch
code is used instead, with one warning.
"""

import functools
import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from graph_machine.files import cache_folder, write_json
from graph_machine.ops import torch_code
from graph_machine.ops.core import LEARNED, KernelInputs, KernelOuts

T = TypeVar("T")

# (graphs, heads, nodes, slots, width of keys, width of values): more than one tile, none full.
SIZES = (2, 3, 37, 5, 7, 6)
# Precision of products -> largest difference, as a share of the largest entry.
ALLOWED = {"highest": 1e-3, "high": 5e-2}
KINDS = ("attention", "joint", "conditional", "preaggregated")
GIVEN = ", given edges"  # and the empty edge
CASES = (*KINDS, *(kind + GIVEN for kind in KINDS))


@dataclass(frozen=True)
class Verdict:
    """`problem` is empty if the kernels equal the reference."""

    problem: str
    path: Path

    def __str__(self) -> str:
        return f"rejected: {self.problem}" if self.problem else "equal to the reference"


def needed(device: torch.device) -> bool:
    """Only on a GPU that is here; the interpreter is for tests, which compare for themselves."""
    return device.type == "cuda" and torch.cuda.is_available()


_failed: set[torch.device] = set()


def trusted(device: torch.device) -> bool:
    """Whether the kernels may be used on this device."""
    return not needed(device) or (device not in _failed and not verdict(device).problem)


def or_torch(device: torch.device, kernels: Callable[[], T], torch_code: Callable[[], T]) -> T:
    """What kernels compute. If they cannot be launched, which the check of one size does not
    foresee, torch code computes it, and everything after it in this process."""
    if not needed(device):
        return kernels()
    try:
        return kernels()
    except torch.OutOfMemoryError:
        raise  # torch code would need no less
    except Exception as error:  # whatever the compiler or the driver raises
        if device not in _failed:
            _failed.add(device)
            _warn(_facts(device), _line(error), "In the next process they are used again.")
        return torch_code()


@functools.cache
def verdict(device: torch.device) -> Verdict:
    """The kept verdict, or that of a new check; a rejection is a warning, once per process."""
    facts = _facts(device)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    path = cache_folder() / "triton" / f"{digest}.json"
    problem = _kept(path)
    if problem is None:
        problem = _check(device)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"problem": problem, **facts})
        except OSError:
            pass  # nowhere to keep it: the next process checks again
    found = Verdict(problem, path)
    if problem:
        _warn(facts, problem, f"To check again, delete {path}.")
    return found


def _warn(facts: dict[str, str], problem: str, after: str) -> None:
    warnings.warn(
        f"The Triton kernels are not used, torch code is: on {facts['device']} (driver "
        f"{facts['driver']}, torch {facts['torch']}, triton {facts['triton']}) {problem}. "
        f"Please send us this line and the output of 'graph-machine doctor --json'. {after}",
        stacklevel=3,
    )


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _facts(device: torch.device) -> dict[str, str]:
    """What a verdict depends on."""
    name, driver = "interpreter", "none"
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        name = f"{found.name} ({found.major}.{found.minor})"
        driver = str(getattr(torch._C, "_cuda_getDriverVersion", lambda: "unknown")())
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return {
        "device": name,
        "driver": driver,
        "torch": torch.__version__,
        "triton": metadata.version("triton"),
        "sources": hashlib.sha256(sources).hexdigest()[:16],
    }


def _kept(path: Path) -> str | None:
    """The problem of a kept verdict; None if there is none, or none that can be read."""
    try:
        found = json.loads(path.read_text())["problem"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _check(device: torch.device) -> str:
    """What is wrong with the kernels, in one line; empty if nothing is."""
    before = torch.get_float32_matmul_precision()
    try:
        for precision, allowed in ALLOWED.items():
            torch.set_float32_matmul_precision(precision)
            for case in CASES:
                problem = _compare(case, device, allowed)
                if problem:
                    return f"{case} ({precision} precision): {problem}"
    except Exception as error:  # whatever the compiler or the driver raises
        return _line(error)
    finally:
        torch.set_float32_matmul_precision(before)
    return ""


def _compare(case: str, device: torch.device, allowed: float) -> str:
    """The first difference that is too large, in words."""
    from graph_machine.ops.triton import launch  # Triton is an extra, and slow to import

    inputs = _inputs(case)
    exact = _mapped(inputs, Tensor.double)
    expected = torch_code.forward(exact)
    above = KernelOuts(*(torch.linspace(-1, 1, x.numel()).view(x.shape) for x in expected))
    here = _mapped(inputs, lambda x: x.to(device))
    outs = launch.forward(here)
    grads = launch.backward(here, outs, KernelOuts(*(x.to(device) for x in above)))
    exact_grads = torch_code.backward(exact, expected, KernelOuts(*(x.double() for x in above)))
    names = [*KernelOuts._fields[:4], *(f"gradient of {name}" for name in KernelInputs._fields)]
    pairs = zip([*outs[:4], *grads[:LEARNED]], [*expected[:4], *exact_grads[:LEARNED]])
    for name, (found, value) in zip(names, pairs):
        if found is None or value is None or not value.numel():
            continue
        gap = (found.double().cpu() - value).abs().max() / value.abs().max().clamp_min(1.0)
        if not gap <= allowed:  # NaN is not
            return f"{name} is off by {float(gap):.2g} (at most {allowed:g})"
    return ""


def _mapped(x: KernelInputs, function: Callable[[Tensor], Tensor]) -> KernelInputs:
    """With `function` of every tensor of numbers; mask and targets only change their device."""
    device = function(x.n2_values).device

    def mapped(y: Any) -> Any:
        if not isinstance(y, Tensor):
            return y
        return function(y) if y.is_floating_point() else y.to(device)

    return KernelInputs(*map(mapped, x))


def _inputs(case: str) -> KernelInputs:
    """The same in every process; the last two nodes are padding."""
    (b, h, n, k, d, e), generator = SIZES, torch.Generator().manual_seed(0)
    kind, beside = case.removesuffix(GIVEN), case.endswith(GIVEN)
    slots = k + 3 if beside else k

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def weights(*shape: int) -> Tensor:
        return normal(*shape).mul(2).softmax(dim=-1)

    given = KernelInputs(
        n2_values=normal(b, h, n, e),
        n1_queries=normal(b, h, n, d),
        n2_keys=normal(b, h, n, d),
        e1_weights=weights(b, n, h, slots),
        e1_addresses=weights(b, n, k, n),
        edge_temps=normal(b, n, h).exp(),
        mask=(torch.arange(n) < n - 2)[None, None],
        entropy_weights=torch.full((b, n), 0.1),
        eps=1e-8,
        conditional=kind == "conditional",
    )
    if beside:
        targets = torch.randint(-1, n, (b, n, 2), generator=generator, dtype=torch.int32)
        given = given._replace(given=targets, empty=True)
    if kind == "attention":
        return given
    given = given._replace(e2_queries=normal(b, n, h, e), e2_addresses=weights(b, n, k, n))
    if kind == "preaggregated":
        return given._replace(e2_keys=normal(b, h, n, 1, e), own_weights=weights(b, n, h, slots))
    edges = normal(b, 1, n, slots, e)
    return given._replace(e2_keys=edges, e2_values=edges.flip(1))

"""The C kernels: built once, optional everywhere, equal on any number of threads."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graph_machine.ops import edge_centric_referral, native
from graph_machine.ops.native import structs
from graph_machine.ops.native.builds import (
    FLAGS,
    HEADERS,
    HERE,
    SOURCES,
    kernels_folder,
    load,
    read_kept,
)
from graph_machine.ops.native.structs import FUNCTIONS, Heads
from support.cases import KINDS, Sizes, needs_kernels, referral_case
from support.shell import script, scripts
from tolerances import assert_close


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache folder, and a process that has not looked for the kernels yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GRAPH_MACHINE_CACHE", raising=False)
    monkeypatch.delenv("GRAPH_MACHINE_NATIVE", raising=False)
    native.library.cache_clear()
    yield tmp_path / "graph-machine" / "kernels"
    native.library.cache_clear()


@needs_kernels
def test_built_once(fresh: Path) -> None:
    assert native.library() is not None
    (built,) = fresh.iterdir()
    before = built.stat().st_mtime_ns
    assert native.build() == read_kept(built)
    assert built.stat().st_mtime_ns == before
    assert fresh.stat().st_mode & 0o777 == 0o700
    assert built.stat().st_mode & 0o777 == 0o600


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_CACHE", str(tmp_path / "own"))
    assert kernels_folder() == tmp_path / "own" / "kernels"


@needs_kernels
@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "planted", "linked"])
def test_a_damaged_or_planted_build_is_never_loaded(
    fresh: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is built again; loading a truncated library would kill the process."""
    monkeypatch.setattr("graph_machine.ops.native.builds.SOURCES", ("sharpen.c",))  # a quick build
    assert native.build() is not None
    (built,) = fresh.iterdir()
    whole = built.read_bytes()
    if damage == "linked":
        built.rename(fresh / "elsewhere.so")
        built.symlink_to(fresh / "elsewhere.so")
    elif damage == "planted":
        built.chmod(0o666)  # as whole as before, but anybody may have written it
    else:
        wrong = {"truncated": whole[:5000], "empty": b"", "flipped": b"x" + whole[1:]}
        built.write_bytes(wrong[damage])
    assert read_kept(built) is None
    again = native.build()
    assert again is not None
    assert load(again).gm_sharpen_work(16) == 3 * 16 + 64
    assert read_kept(built) == again
    assert not built.is_symlink()


@needs_kernels
def test_a_folder_that_others_may_write_to_is_not_used(
    fresh: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graph_machine.ops.native.builds.SOURCES", ("sharpen.c",))
    fresh.mkdir(parents=True)
    fresh.chmod(0o777)
    assert kernels_folder() is None
    assert native.build() is not None
    assert not list(fresh.iterdir())
    assert "others may write" in caplog.text


@needs_kernels
def test_a_folder_of_another_user_is_not_used(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.mkdir(parents=True, mode=0o700)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert kernels_folder() is None


@needs_kernels
def test_cutting_the_file_of_a_loaded_library_does_no_harm(tmp_path: Path) -> None:
    """In a process of its own: if it went wrong, it would die of SIGBUS."""
    built = kernels_folder()
    assert built is not None
    # Another process may be building in a folder there.
    shutil.copytree(built, tmp_path / "kernels", ignore=shutil.ignore_patterns("tmp*"))
    code = (
        "import os, torch; from graph_machine.ops import native, sharpen; "
        "from graph_machine.ops.native.builds import kernels_folder; assert native.library(); "
        "[os.truncate(path, 0) for path in kernels_folder().iterdir()]; "
        "print(float(sharpen(torch.rand(2, 9, 3, 9), torch.ones(2, 9, 3)).sum()))"
    )
    [(status, text)] = scripts(code, environments=[{"GRAPH_MACHINE_CACHE": str(tmp_path)}])
    assert status == 0, text
    assert float(text) == pytest.approx(54)
    assert {path.stat().st_size for path in (tmp_path / "kernels").iterdir()} == {0}


TYPES = {"long": ctypes.c_long, "int": ctypes.c_int, "float": ctypes.c_float, "Heads": Heads}


def c_type(text: str) -> object:
    """The ctypes type of an argument or a field of C, such as `const float *x`."""
    return ctypes.c_void_p if "*" in text else TYPES[text.replace("const ", "").split()[0]]


def test_functions_are_declared_as_in_c() -> None:
    text = "".join((HERE / name).read_text() for name in SOURCES)
    found = re.findall(r"^(void|long) (gm_\w+)\(([^)]*)\)", text, re.MULTILINE)
    assert {name for _, name, _ in found} == set(FUNCTIONS)
    for result, name, arguments in found:
        assert [c_type(argument.strip()) for argument in arguments.split(",")] == FUNCTIONS[name]
        assert (result == "long") == name.endswith(("_work", "_shared"))


def test_structs_are_declared_as_in_c() -> None:
    text = "".join((HERE / name).read_text() for name in (*HEADERS, *SOURCES))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    in_c = {name: body for body, name in re.findall(r"struct \{(.*?)\} (\w+);", text, re.DOTALL)}
    declared = [x for x in vars(structs).values() if isinstance(x, type)]
    for struct in [x for x in declared if issubclass(x, ctypes.Structure)]:
        fields = []
        for line in in_c[struct.__name__].split(";")[:-1]:
            [(kind, names)] = re.findall(r"\s*((?:const )?(?:unsigned )?\w+)(.*)$", line, re.DOTALL)
            for name in names.split(","):
                bare = re.sub(r"[*\s]|\[.*\]", "", name)
                array = structs.Longs if "[" in name else None
                fields.append((bare, array or c_type(kind + name)))
        assert list(struct._fields_) == fields, struct.__name__


def test_switched_off(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_MACHINE_NATIVE", "0")
    assert native.library() is None
    assert not fresh.exists()


@pytest.mark.parametrize("compiler", ["false", "/nowhere/cc"])
def test_without_a_working_compiler(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", compiler)
    for _ in range(2):
        assert native.library() is None
    (record,) = caplog.records  # said, and said once
    assert "C kernels of the fused backend are not used" in record.message


def test_a_cache_that_cannot_be_written(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.parent.write_text("a file where a folder should be")
    assert native.library() is None


def test_other_systems_and_other_numbers(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.kernels(torch.zeros(1, dtype=torch.float64)) is None
    assert native.kernels(torch.zeros(1, device="meta")) is None
    assert native.kernels(torch.zeros(1), native.LARGEST + 1) is None
    monkeypatch.setattr(sys, "platform", "darwin")
    assert native.build() is None


def _gradients(case: dict[str, Any], dtype: torch.dtype, **settings: Any) -> list[Tensor]:
    leaves = {name: x.to(dtype).requires_grad_() for name, x in case.items()}
    leaves["e2_addresses"] = leaves["e1_addresses"]
    features, addresses = edge_centric_referral(**leaves, **settings)
    (features.square().sum() + addresses[..., ::2].square().sum()).backward()
    return [leaf.grad for leaf in leaves.values() if leaf.grad is not None]


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("teams", [0, 1])
def test_any_number_of_threads(kind: Any, teams: int) -> None:
    """Threads take whole graphs, so sums keep their order; fewer threads than were asked for take
    the graphs of those that are not there."""
    case = referral_case(Sizes(b=5, h=3, n=11, k=3, d=8, v=8), torch.float32)
    before, found, loaded = torch.get_num_threads(), [], native.loaded()
    nested = loaded.omp_get_max_active_levels()
    try:
        for threads in (1, 3, 8):
            torch.set_num_threads(threads)
            loaded.omp_set_max_active_levels(teams if threads > 1 else nested)
            outs = edge_centric_referral(**case, kind=kind, backend="fused")
            found.append((outs, _gradients(case, torch.float32, kind=kind, backend="fused")))
    finally:
        torch.set_num_threads(before)
        loaded.omp_set_max_active_levels(nested)
    (right, slopes), *others = found
    for outs, grads in others:
        assert all(torch.equal(*pair) for pair in zip(outs, right))
        for grad, slope in zip(grads, slopes):  # parameters' sums have an order of their own
            assert_close(grad, slope)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_several_tiles_and_one_tensor_of_addresses(kind: str) -> None:
    """100 sources are two tiles; what is an address in both roles has the sum of two gradients."""
    case = referral_case(Sizes(b=2, h=8, n=100, k=3, d=8, v=8), torch.float32)
    expected = _gradients(case, torch.float64, kind=kind, backend="reference")
    for found, right in zip(_gradients(case, torch.float32, kind=kind, backend="fused"), expected):
        assert (found - right).abs().max() < 1e-3 * right.abs().max()


@needs_kernels
def test_not_a_number_is_not_hidden() -> None:
    case = referral_case(dtype=torch.float32)
    case["e1_addresses"][0, 2, 1, 3] = torch.nan
    features, addresses = edge_centric_referral(**case, backend="fused")
    assert features[0, :, 2].isnan().all()
    assert addresses[0, :, 2].isnan().all()
    assert not features[1].isnan().any()


@needs_kernels
def test_a_compiler_behind_a_launcher(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with CC="ccache gcc"."""
    monkeypatch.setattr("graph_machine.ops.native.builds.SOURCES", ("sharpen.c",))
    monkeypatch.setenv("CC", "env LAUNCHED=1 cc -g0")
    assert native.build() is not None


NAN = """
#include "common.h"
int main(void) {
    union { int bits; float number; } nan = {0x7fffffff}; /* what a negated log(NaN) holds */
    vw found = exponential(SET(nan.number));
    return found[0] == found[0];
}
"""


@needs_kernels
def test_exp_of_not_a_number_overflows_nothing(tmp_path: Path) -> None:
    """Built so that the overflow of a signed number ends the program."""
    source, program = tmp_path / "nan.c", tmp_path / "nan"
    source.write_text(NAN)
    checks = ("-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error")
    options = [flag for flag in FLAGS if flag != "-shared"]
    command = ["cc", *options, *checks, f"-I{HERE}", str(source), "-o", str(program), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    assert subprocess.run([program], check=False).returncode == 0


@needs_kernels
def test_the_process_keeps_its_tiny_numbers() -> None:
    """Linked with -ffast-math, loading the library would flush them to 0 everywhere."""
    code = (
        "import torch; from graph_machine.ops import native; assert native.library(); "
        "print(float(torch.tensor(1e-30) * torch.tensor(1e-10)))"
    )
    assert float(script(code)) > 0


@needs_kernels
def test_sharp_softmax_and_hard_addresses_are_finite() -> None:
    case = referral_case(dtype=torch.float32)
    for name in ("e1_addresses", "e2_addresses"):
        case[name] = torch.eye(7)[torch.randint(7, (2, 7, 3))]
    for name in ("n2_edge_factor_temps", "n2_node_factor_temps", "e2_factor_temps"):
        case[name] = 40 * case[name]
    leaf = case["n1_queries"].requires_grad_()
    fused = edge_centric_referral(**case, backend="fused")
    reference = edge_centric_referral(**case, backend="reference")
    for one, other in zip(fused, reference):
        assert_close(one, other)
    (grad,) = torch.autograd.grad(fused[0].square().sum(), leaf)
    assert grad.isfinite().all()

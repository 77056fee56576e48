"""The reference pages: every public name is on one, with shapes and an example that is true.

What is public is what the pages of docs/api name. A page names a module's `__all__`
(`:members:`), or some names of it (`:members: A, B`).
"""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import graph_machine
from support.registries import registries

__all__ = ["registries"]  # a fixture

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "graph_machine"
DIRECTIVE = re.compile(r"automodule:: graph_machine\.([\w.]+)\n\s+:members:(.*)")
# (b, n, k), (n,), or `b n k` after a comment sign: a shape that a reader can recognise.
SHAPE = re.compile(r"\([a-z_*]\w*,( [a-z_*]\w*)*[^)]*\)|# [a-z]( [a-z]\w*)+|scalars?")

# Names whose use cannot be shown in a few lines that run anywhere, and what shows it instead.
WITHOUT_EXAMPLE = {
    "lab.opening.Tried": "returned by answer_in_tries",
    "lab.tasks.clrs.ClrsTask": "needs files; docs/yardsticks.md shows the command",
    "lab.tasks.clrs.Probes": "as ClrsTask",
    "lab.tasks.clrs.graph_of": "as ClrsTask",
    "lab.tasks.relations.RelationsTask": "docs/yardsticks.md shows the command",
    "lab.tasks.relations.Algebra": "kinship and random_group make one",
    "spaces.AddressSpace": "abstract; DenseSpace has one",
    "spaces.Addresses": "abstract; DenseAddresses has one",
    "spaces.AttentionOut": "returned by EdgeAugmentedAttention, which has one",
    "spaces.ReferralOut": "returned by EdgeCentricReferral, which has one",
    "spaces.attend_without_edges": "called by EdgeAugmentedAttention with experts='node'",
    "nn.Entropies": "returned by GraphMachineStack, which has one",
    "models.ModelOut": "returned by GraphMachine, which has one",
    "lab.training.Interrupted": "raised when a run is stopped by a signal",
    "lab.training.Result": "returned by train, which has one",
    "lab.sweeps.ray_runner.RayRunner": "needs a Ray cluster",
    "lab.sweeps.progress.LiveView": "needs a terminal",
    "lab.reports.runs.RunRecord": "made by load_runs, which has one",
    "lab.reports.curves.save": "needs runs with evaluations; docs/sweeps.md shows the command",
    "lab.reports.page.renew_page": "needs runs; docs/sweeps.md shows the command",
    "lab.reports.summary.Report": "made by build_report, which has one",
    "lab.zoo.cards.render_card": "writes into the package's folder",
    "lab.zoo.add.add_model": "needs a finished run and minutes of tests",
    "lab.zoo.assess.assess_rounds": "takes long; docs/recurrent.md shows the command",
    "lab.analysis.report.statistics_markdown": "docs/inside.md shows the command",
    "lab.analysis.report.plain": "docs/inside.md shows the command",
    "lab.analysis.figures.per_puzzle.rounds": "docs/recurrent.md shows the command",
    "lab.analysis.figures.per_puzzle.filling_gif": "as rounds",
    "lab.explorer.serve.serve": "does not return",
}


def members(module: str, named: str) -> list[str]:
    if named:
        return [name.strip() for name in named.split(",")]
    found = importlib.import_module(f"graph_machine.{module}")
    own = [name for name, thing in vars(found).items() if defined_in(found.__name__, thing)]
    return list(getattr(found, "__all__", own))


def defined_in(module: str, thing: Any) -> bool:
    described = inspect.isclass(thing) or inspect.isfunction(thing)
    return described and thing.__module__ == module and not thing.__name__.startswith("_")


def public() -> list[tuple[str, Any]]:
    """(module.name, thing) for every class and function that a page of docs/api names."""
    found = {}
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for module, named in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            for name in members(module, named.strip()):
                thing = getattr(importlib.import_module(f"graph_machine.{module}"), name)
                if inspect.isclass(thing) or inspect.isfunction(thing):
                    found[f"{module}.{name}"] = thing
    return list(found.items())


PUBLIC = public()
EACH = pytest.mark.parametrize(("name", "thing"), PUBLIC, ids=[name for name, _ in PUBLIC])


def test_every_front_door_is_on_a_page() -> None:
    documented = {name for name, _ in PUBLIC}
    missing = []
    for file in [*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("lab/*/__init__.py")]:
        home = ".".join(file.parent.relative_to(PACKAGE).parts)
        room = importlib.import_module(f"graph_machine.{home}")
        for name in getattr(room, "__all__", ()):
            thing = getattr(room, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                where = {f"{home}.{name}", f"{thing.__module__[14:]}.{name}"}
                missing += [] if where & documented else [f"{home}.{name}"]
    assert not missing
    things = {id(thing) for _, thing in PUBLIC}
    assert all(id(getattr(graph_machine, name)) in things for name in graph_machine.__all__)


def imported(text: str) -> set[tuple[str, str]]:
    """(module, name) of what the Python examples of a page import from this package."""
    found = set()
    for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("graph_machine"):
                found |= {(node.module or "", alias.name) for alias in node.names}
    return found


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ct]*/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_use_what_is_public(page: Path) -> None:
    things = {id(thing) for _, thing in PUBLIC}
    unknown = []
    for module, name in sorted(imported(page.read_text(encoding="utf-8"))):
        thing = getattr(importlib.import_module(module), name)
        described = inspect.isclass(thing) or inspect.isfunction(thing)
        if described and id(thing) not in things and not issubclass_of_error(thing):
            unknown.append(f"{module}.{name}")
    assert not unknown


def issubclass_of_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def own_docstring(thing: Any) -> str:
    """What was written, and not what dataclasses and named tuples make up."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return "" if not text or text.startswith(f"{thing.__name__}(") else text


@EACH
def test_has_a_docstring(name: str, thing: Any) -> None:
    assert own_docstring(thing)
    for method, value in vars(thing).items() if inspect.isclass(thing) else ():
        described = inspect.isfunction(value) or isinstance(value, (property, classmethod))
        if described and not method.startswith("_"):
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"


@EACH
def test_has_an_example(name: str, thing: Any) -> None:
    if name in WITHOUT_EXAMPLE:
        assert ">>>" not in own_docstring(thing), "it has one: take it off the list"
    else:
        assert ">>> " in own_docstring(thing)


def test_the_list_of_exceptions_is_current() -> None:
    assert set(WITHOUT_EXAMPLE) <= {name for name, _ in PUBLIC}


def bare_arrays(thing: Any) -> list[str]:
    """Parameters (and the result) that are tensors or arrays without a shape in their type."""
    signature = inspect.signature(thing)
    kinds = {name: p.annotation for name, p in signature.parameters.items()}
    if inspect.isfunction(thing):
        kinds["return"] = signature.return_annotation
    text = {name: kind if isinstance(kind, str) else repr(kind) for name, kind in kinds.items()}
    bare = re.compile(r"(?:torch\.Tensor|numpy\.ndarray|'Tensor'|'np\.ndarray')")
    return [
        name
        for name, kind in text.items()
        if bare.search(re.sub(r"\w+\[(Tensor|ndarray), '[^']*'\]", "", kind))
    ]


@EACH
def test_gives_shapes(name: str, thing: Any) -> None:
    """Tensors have their shape in the signature, or the docstring gives it."""
    if bare_arrays(thing):
        assert SHAPE.search(own_docstring(thing)), f"{name}: {', '.join(bare_arrays(thing))}"


@pytest.mark.usefixtures("registries")
@EACH
def test_examples_are_true(name: str, thing: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names = dict(vars(inspect.getmodule(thing)) or {})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(recurse=False).find(thing, name, globs=names):
        assert runner.run(test).failed == 0

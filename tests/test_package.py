"""A wheel from a clean source tree works in an empty environment, without a compiler."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

import graph_machine

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])('dist'))"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with sdist and wheel, built from a copy: building leaves files behind."""
    tree = tmp_path_factory.mktemp("package") / "tree"
    shutil.copytree(
        ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.egg-info", "__py*")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for kind in ("build_sdist", "build_wheel"):
        done = subprocess.run([sys.executable, "-c", BUILD, kind], cwd=tree, capture_output=True)
        assert done.returncode == 0, done.stderr[-2000:]
    return tree / "dist"


@pytest.mark.slow
def test_what_is_in_the_packages(dist: Path) -> None:
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = set(ZipFile(wheel).namelist())
    for part in (
        "py.typed",
        "lab/conditions/parameters.json",
        "lab/zoo/models/gm-4x4/model.safetensors",
    ):
        assert f"graph_machine/{part}" in names
    assert any(re.match(r"graph_machine/ops/native/\w+\.c", name) for name in names)
    assert any(name.startswith("graph_machine/lab/explorer/static/") for name in names)
    with tarfile.open(sdist) as archive:
        packed = archive.getnames()
    assert sum(name.endswith(".py") for name in packed) >= sum(n.endswith(".py") for n in names)


@pytest.mark.slow
def test_the_wheel_works_alone(dist: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/*/site-packages"))
    ZipFile(next(dist.glob("*.whl"))).extractall(site)
    # Dependencies come from this environment; nothing is downloaded.
    (site / "dependencies.pth").write_text(str(Path(torch.__file__).parents[1]))
    keep = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    more = {"PATH": str(home / "bin"), "CC": "false", "OMP_NUM_THREADS": "1"}
    environment = keep | more | {"GRAPH_MACHINE_CACHE": str(tmp_path / "cache")}

    def run(*words: str) -> str:
        python = str(home / "bin" / "python")
        done = subprocess.run(
            [python, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    assert str(site) in run("-c", "import graph_machine; print(graph_machine.__file__)")
    assert "a valid solution" in run("-m", "graph_machine", "solve", "gm-4x4", "..3...4..4...2..")
    run("-m", "graph_machine", "explore", "gm-4x4", "--export", "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [code, shown] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL)[0]
    assert run("-c", code) == shown


def test_one_version_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == graph_machine.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{version}]" in changes or f"## [Unreleased]: {version}" in changes

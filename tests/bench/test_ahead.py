"""Every kernel compiles to machine code for three GPUs, within what they have.

In a process of its own: the interpreter, which the other tests use, is chosen on import. The
numbers that are committed (docs/gpu.md) are those of the pinned Triton.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed; with the extra 'gpu', it is tested")

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "benchmarks" / "results" / "gpu-kernels.json"
SPILLS = {"tf32": 0, "ieee": 64}  # bytes
SHARED = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024}


def compiled(*arguments: str) -> list[dict[str, Any]]:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(ROOT / "benchmarks" / "ahead.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def within_limits(row: dict[str, Any]) -> None:
    assert row["registers"] <= 255, row
    assert row["spills"] <= SPILLS[row["precision"]], row
    assert row["shared"] <= SHARED[row["target"]], row


@pytest.mark.slow
def test_kernels_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    rows = compiled("--targets", *map(str, SHARED), "--precisions", "tf32")
    committed = json.loads(NUMBERS.read_text())
    assert {(row["target"], row["op"], row["kernel"]) for row in rows} == {
        (row["target"], row["op"], row["kernel"]) for row in committed
    }
    for row in rows:
        within_limits(row)


def test_committed_numbers_are_within_limits() -> None:
    rows = json.loads(NUMBERS.read_text())
    assert {row["target"] for row in rows} == set(SHARED)
    assert {row["precision"] for row in rows} == {"tf32", "ieee"}
    for row in rows:
        within_limits(row)

"""kill -9 at any moment, then resume: the same weights to the bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graph_machine.training import RunFolder
from support.runs import same_bits

SCRIPT = Path(__file__).parent.parent / "support" / "kills.py"


@pytest.mark.slow
def test_killed_runs_end_in_the_same_bits(tmp_path: Path, puzzles: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parent.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), puzzles],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    stepwise, _ = map(int, done.stdout.split()[1:])
    assert stepwise >= 10
    for name in ("stepwise", "random"):
        assert same_bits(tmp_path / "whole", tmp_path / name)
        assert RunFolder(tmp_path / name).read()["status"] == "finished"
        left = {p.name for p in (tmp_path / name / "checkpoints").iterdir()}
        assert left == {"latest", "best"}
        assert not list((tmp_path / name).rglob("*.tmp"))

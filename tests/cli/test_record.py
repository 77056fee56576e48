"""`graph-machine record`."""

from pathlib import Path

import pytest

from cli.conftest import OutOf
from graph_machine.errors import CheckpointError, ConfigError, DataError
from graph_machine.lab.cli import run
from graph_machine.lab.records import Record


def test_record(tmp_path: Path, out_of: OutOf) -> None:
    out = tmp_path / "a.rec.safetensors"
    command = ["record", "handmade:2x2", "--samples", "0-2,5", "--out", str(out)]
    command += ["--names", "address_outs", "n2_*", "--layers", "0-1", "--sources", "r2c2", "r1c1"]
    assert run([*command, "--dry-run"]) == 0
    assert not out.exists()
    printed = out_of(command)
    assert "handmade 2x2: 4 puzzles, at most" in printed
    made = Record.load(out)
    assert made.samples == [0, 1, 2, 5]
    assert made.sources == [5, 0]
    assert {path.layer for path in made.paths} == {0, 1}
    assert made.box == (2, 2)
    assert made.name == "handmade 2x2"
    assert made.meta["data"]["split"] == "test"
    assert made.solutions is not None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["nowhere"], CheckpointError, "No checkpoint here"),
        (["handmade:2x2", "--samples", "x"], ConfigError, "samples 'x'"),
        (["handmade:2x2", "--samples", "99999"], DataError, "the test split has 50"),
        (["handmade:2x2", "--sources", "r9c9"], ConfigError, "r1c1 to r4c4"),
        (["handmade:2x2", "--layers", "9"], ConfigError, "layers are 0 to 5"),
        (["handmade:2x2", "--data", "none.csv"], DataError, "none.csv"),
    ],
)
def test_errors(options: list[str], error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        run(["record", *options, "--out", str(tmp_path / "x")])

"""The live pages of the documentation: exported explorer pages of small models.

    python docs/diagrams/live.py

They are kept small: 255 steps per board, without the factors of single experts. No shipped model
follows pointers; a small one is trained first (120 steps, about a minute).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from graph_machine.lab.explorer.export import export_page
from graph_machine.lab.explorer.session import open_session

OUT = Path(__file__).parents[1] / "_static" / "live"
MAZE = ".....#.##.##.....#......#...##..#.#....#.....##..#.#.#.G#S..#..#..###..###.....##"
SIX = ".142...5.1........1.234..2.46364.52."
CHAIN = "0>1 1>2 2>3 3>4 4>4 5>3 6>5 7>7 8>7 9>8 10>2 11>9"
TRAIN = ("pointers-gm", "--budget", "cpu", "--seed", "0", "--set", "train.steps=120",
         "task.nodes=12", "task.train_hops=4", "task.test_hops=4")  # fmt: skip


def pointers(folder: str) -> str:
    """A small model that follows pointers."""
    command = [
        sys.executable,
        "-m",
        "graph_machine",
        "train",
        *TRAIN,
        "--out",
        f"{folder}/pointers",
    ]
    subprocess.run(command, check=True)
    return f"{folder}/pointers"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sessions = {
            "sudoku": open_session(["gm-4x4"], examples=["..3...4..4...2.."]),
            "rounds": open_session(["gm-recurrent-6x6"], rounds=2, examples=[SIX]),
            "maze": open_session(["gm-maze"], rounds=12, examples=[MAZE]),
            "pointers": open_session([pointers(folder)], examples=[CHAIN]),
        }
        for name, session in sessions.items():
            path = OUT / f"{name}.html"
            size = export_page(session, path, precision="u8", factors=False, force=True)
            print(f"{path}: {size / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()

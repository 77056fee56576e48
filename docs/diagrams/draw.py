"""Draw the diagrams of the documentation (`python docs/diagrams/draw.py`, or `make pictures`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import operations
import tensors

import concepts

IMAGES = Path(__file__).parent.parent / "images"
PICTURES = {**concepts.PICTURES, **tensors.PICTURES, **operations.PICTURES}


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    for name, draw in PICTURES.items():
        draw().write(folder / f"{name}.svg")


if __name__ == "__main__":
    main()

"""Accuracy against rounds, as a picture: what more computation at test time brings."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graph_machine.errors import ConfigError
from graph_machine.files import atomic_path
from graph_machine.reports.curves import load_figure


def draw_rounds(
    lines: Mapping[str, Sequence[float | None]],
    rounds: Sequence[int],
    trained: int,
    path: Path,
    title: str,
) -> None:
    """One line per metric over the number of rounds; the trained number is marked.

    >>> shares = {"boards": [0.1, 0.4, 0.45]}
    >>> draw_rounds(shares, rounds=[5, 20, 80], trained=20, path=Path("rounds.png"), title="9x9")
    >>> Path("rounds.png").exists()
    True
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--plot should end in .png or .svg, got '{path.name}'.")
    figure = load_figure()(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, values in lines.items():
        axes.plot(rounds, [100 * (value or 0.0) for value in values], marker="o", label=name)
    axes.axvline(trained, color="0.6", linestyle=":", linewidth=1.2)
    axes.annotate(
        "trained", (trained, 0), xytext=(4, 4), textcoords="offset points", color="0.4", fontsize=9
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(rounds), [str(number) for number in rounds])
    axes.set_ylim(bottom=0, top=101)
    axes.set(xlabel="rounds", ylabel="right, %", title=title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=140)

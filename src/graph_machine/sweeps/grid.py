"""Which runs a sweep consists of: conditions x seeds, each with its folder and resolved config."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graph_machine.conditions.budgets import config_for
from graph_machine.conditions.registry import CONDITIONS
from graph_machine.conditions.tables import TABLES
from graph_machine.config import ExperimentConfig
from graph_machine.errors import ConfigError, GraphMachineError

State = Literal["new", "unfinished", "finished"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep. Its config travels as data, so a worker needs no registry."""

    condition: str
    seed: int
    budget: str
    config: ExperimentConfig
    out: Path
    data: str | None = None

    @property
    def name(self) -> str:
        return f"{self.condition} seed {self.seed}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "condition": self.condition,
            "seed": self.seed,
            "budget": self.budget,
            "config": self.config.to_dict(),
            "out": str(self.out),
            "data": self.data,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        return cls(
            **data
            | {"config": ExperimentConfig.from_dict(data["config"]), "out": Path(data["out"])}
        )

    def state(self) -> State:
        """How this run stands on disk; a run of other settings in its folder is an error."""
        if not (self.out / "run.json").exists():
            return "new"
        before = read_json(self.out / "run.json")
        try:
            old = ExperimentConfig.from_dict(before["config"])
        except (KeyError, TypeError, GraphMachineError) as error:
            raise ConfigError(f"run.json does not describe a run ({error}): {self.out}") from None
        changed = self.config.differences(old)
        if changed:
            flat = old.flat()
            what = ", ".join(f"{k} was {flat.get(k)}, is {v}" for k, v in changed.items())
            raise ConfigError(
                f"There is a run of other settings here ({what}). Choose another --out for this "
                f"sweep: {self.out}"
            )
        return "finished" if (self.out / "result.json").exists() else "unfinished"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise ConfigError(f"{path.name} is damaged (not valid JSON): {path}") from None


def parse_seeds(text: str) -> list[int]:
    """`0-9`, `3` or `0,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ConfigError(f"--seeds should look like 0-9 or 0,2,5, got '{text}'.")
        span = range(int(first), int(last if dash else first) + 1)
        if not span:
            raise ConfigError(f"--seeds: '{part}' runs backwards.")
        seeds += span
    return list(dict.fromkeys(seeds))


def choose_conditions(
    tables: Sequence[str] = (), conditions: Sequence[str] = (), every: bool = False
) -> list[str]:
    """Conditions by table, by name, or all of the registry; each once, in order."""
    names = [row.condition for table in tables for row in TABLES[table].rows]
    names += [CONDITIONS[name].name for name in conditions]
    if every:
        names += list(CONDITIONS)
    if not names:
        raise ConfigError("Say what to run: --table 1, --conditions gm,transformer or --all.")
    return list(dict.fromkeys(names))


def make_grid(
    conditions: Iterable[str],
    seeds: Sequence[int],
    *,
    budget: str,
    box: str | None = None,
    settings: Sequence[str] = (),
    data: str | None = None,
    out: Path = Path("runs"),
) -> list[Job]:
    """Every seed of every condition; the first seed of all of them comes first."""
    from graph_machine.training import default_out

    resolved = []
    for condition in conditions:
        config = config_for(condition, budget, box)
        for setting in settings:
            key, equals, value = setting.partition("=")
            if not equals:
                raise ConfigError(f"--set takes KEY=VALUE, got '{setting}'.")
            config = config.set(key, value)
        resolved.append((condition, config))
    # Workers may run elsewhere: absolute paths.
    where = str(Path(data).resolve()) if data is not None and Path(data).exists() else data
    return [
        Job(
            condition,
            seed,
            budget,
            config,
            out.resolve() / default_out(config, condition, budget, seed).relative_to("runs"),
            where,
        )
        for seed in seeds
        for condition, config in resolved
    ]

"""Which runs a sweep consists of: conditions x seeds, each with its folder and resolved config."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

from graph_machine.errors import ConfigError, DataError, GraphMachineError
from graph_machine.files import read_object
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.conditions.registry import CONDITIONS
from graph_machine.lab.conditions.tables import TABLES
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.plugins import load, load_installed, loaded
from graph_machine.lab.run_files import RUN_FILE, read_run
from graph_machine.lab.tasks.base import task_of
from graph_machine.lab.tasks.scores import Metric

State = Literal["new", "unfinished", "finished"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep. Its config travels as data, so a worker needs no registry.

    >>> job = make_grid(["gm"], [0], budget="smoke")[0]
    >>> job.name, job.state()
    ('gm seed 0', 'new')
    >>> Job.from_dict(job.to_dict()) == job
    True
    """

    condition: str
    seed: int
    budget: str
    config: ExperimentConfig
    out: Path
    data: str | None = None
    variant: str = ""  # its settings on the axes of the grid

    @property
    def name(self) -> str:
        """Its name on the screen."""
        return " ".join(filter(None, (self.condition, self.variant, f"seed {self.seed}")))

    @cached_property
    def metric(self) -> Metric:
        """What says how good the run is: the first metric of its task."""
        return task_of(self.config.task).metrics[0]

    def to_dict(self) -> dict[str, Any]:
        """The job as JSON data, for a worker."""
        kept = {each.name: getattr(self, each.name) for each in fields(self)}
        config, out = self.config.to_dict(), str(self.out)
        return kept | {"config": config, "out": out, "imports": loaded()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Job":
        """The inverse of `to_dict`."""
        load_installed()
        # The user has named them to the sweep that this job comes from.
        load(data.get("imports", []))
        kept = {name: value for name, value in data.items() if name != "imports"}
        config, out = ExperimentConfig.from_dict(data["config"]), Path(data["out"])
        return cls(**kept | {"config": config, "out": out})

    def state(self) -> State:
        """The state of this run on disk; a run with other settings in its folder is an error.

        Files that do not describe a run raise DataError.
        """
        if not (self.out / RUN_FILE).exists():
            return "new"
        before = read_run(self.out, DataError)
        try:
            old = ExperimentConfig.from_dict(before["config"])
        except (TypeError, GraphMachineError) as error:
            raise DataError(f"{RUN_FILE} does not describe a run ({error}): {self.out}") from None
        changed = self.config.differences(old)
        if changed:
            flat = old.flat()
            what = ", ".join(f"{k} was {flat.get(k)}, is {v}" for k, v in changed.items())
            raise ConfigError(
                f"There is a run with other settings here ({what}). Choose another --out for this "
                f"sweep: {self.out}"
            )
        if not (self.out / "result.json").exists():
            return "unfinished"
        value = read_object(self.out / "result.json", DataError).get(self.metric.name)
        if not isinstance(value, (int, float)):
            raise DataError(f"result.json has no {self.metric.name}: {self.out}")
        return "finished"


def choose_conditions(
    tables: Sequence[str] = (), conditions: Sequence[str] = (), every: bool = False
) -> list[str]:
    """Conditions by table, by name, or all of the registry; each once, in order.

    >>> choose_conditions(conditions=["gm", "transformer"])
    ['gm', 'transformer']
    """
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
    size: str | None = None,
    task: str | None = None,
    settings: Sequence[str] = (),
    axes: Sequence[str] = (),
    data: str | None = None,
    out: Path = Path("runs"),
) -> list[Job]:
    """Every seed of every condition at every value of `axes`; the first seed of all comes first.

    The runs of an axis go into a folder named after its settings: .../gm/train.peak_lr=1e-3/seed-0.

    >>> jobs = make_grid(["gm"], [0, 1], budget="smoke", axes=["train.peak_lr=1e-3,2e-3"])
    >>> [job.name for job in jobs][:2]
    ['gm train.peak_lr=1e-3 seed 0', 'gm train.peak_lr=2e-3 seed 0']
    """
    from graph_machine.lab.training import default_out

    resolved = [
        (condition, variant, config_for(condition, budget, size, (*settings, *variant), task))
        for condition in conditions
        for variant in combinations(axes)
    ]
    # Workers may run elsewhere: absolute paths.
    where = str(Path(data).resolve()) if data is not None and Path(data).exists() else data
    jobs = []
    for seed in seeds:
        for condition, variant, config in resolved:
            name = ",".join(variant)
            place = default_out(config, condition, budget, seed).relative_to("runs")
            place = out.resolve() / place.parent / name / place.name
            jobs.append(Job(condition, seed, budget, config, place, where, name))
    return jobs


def combinations(axes: Sequence[str]) -> list[tuple[str, ...]]:
    """`KEY=A,B KEY2=C,D` as settings of every combination; without axes, one that sets nothing.

    >>> combinations(["train.peak_lr=1e-3,2e-3"])
    [('train.peak_lr=1e-3',), ('train.peak_lr=2e-3',)]
    """
    choices = []
    for axis in axes:
        key, _, values = axis.partition("=")
        found = list(dict.fromkeys(value for value in values.split(",") if value))
        if not key or not found:
            raise ConfigError(f"--grid takes KEY=VALUE,VALUE,..., got '{axis}'.")
        choices.append([f"{key}={value}" for value in found])
    return list(product(*choices))

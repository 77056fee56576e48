"""The records of a run, run.json and result.json, as types: the one place that checks them."""

import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from graph_machine.errors import CheckpointError, DataError, GraphMachineError
from graph_machine.files import read_object
from graph_machine.lab.plugins import load_remembered

RUN_FILE = "run.json"
FORMAT = "graph-machine-run"
VERSION = 1
RESULT_FILE = "result.json"

Status = Literal["running", "interrupted", "failed", "finished"]

# What the files hold, and its type; `?` marks what may be absent.
RUN = {
    "config": dict, "data": dict, "seed?": int, "condition?": str | None, "budget?": str,
    "init_from?": str | None, "imports?": list, "extended?": list, "versions?": dict,
    "hardware?": dict, "status?": str, "started?": str, "error?": str | None,
}  # fmt: skip
DATA = {"identity": str, "source?": str, "size?": int | None}
RESULT = {
    "metrics": dict, "seconds?": int | float, "cpu_seconds?": int | float | None,
    "parameters?": int, "flops_per_step?": int | None, "test_examples?": int | None,
    "groups?": dict, "baselines?": dict | None,
}  # fmt: skip
METRIC = {"title": str, "share": bool, "higher_is_better?": bool}
LARGEST = 1e24  # of a number in a record; larger ones, nan and infinity are damage


def check(name: str, record: object, kinds: Mapping[str, Any]) -> None:
    """Raise DataError for a key that is missing (unless marked `?`) or of another type."""
    if not isinstance(record, dict):
        raise DataError(f"{name} should be an object")
    for key, kind in kinds.items():
        key, optional = key.removesuffix("?"), key.endswith("?")
        if key not in record:
            if optional:
                continue
            raise DataError(f"{name} has no {key}")
        value = record[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = getattr(kind, "__name__", str(kind))
            raise DataError(f"{name}: {key} should be {wanted}, got {reprlib.repr(value)}")
        if isinstance(value, (int, float)) and not abs(value) < LARGEST:
            raise DataError(f"{name}: {key} is not a usable number, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class DataInfo:
    """The data of a run: its identity, `generated` or the path of its file, and its examples."""

    identity: str
    source: str = "generated"
    size: int | None = None


@dataclass(frozen=True)
class RunInfo:
    """The contents of run.json: config, data, seed, software, hardware and status.

    >>> info = RunInfo(config={}, data=DataInfo("abc"), seed=3)
    >>> RunInfo.from_dict(info.to_dict()) == info
    True
    """

    config: dict[str, Any]  # of an ExperimentConfig
    data: DataInfo
    seed: int = 0
    condition: str | None = None
    budget: str = "custom"
    init_from: str | None = None  # the model that it began with
    imports: list[str] = field(default_factory=list)
    extended: list[int] = field(default_factory=list)  # its lengths before it was extended
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    status: Status = "running"
    error: str | None = None

    @property
    def origin(self) -> dict[str, Any]:
        """What its checkpoints and its result say of it too."""
        known = {"seed": self.seed, "condition": self.condition, "budget": self.budget}
        return known if self.init_from is None else known | {"init_from": self.init_from}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "RunInfo":
        """From the contents of run.json, checked; older ones have fewer entries."""
        known = isinstance(record, dict) and record.get("format") == FORMAT
        if not known or record.get("version") != VERSION:
            raise DataError(f"Not a run of format {FORMAT}, version {VERSION}")
        check(RUN_FILE, record, RUN)
        check(f"{RUN_FILE}: data", record["data"], DATA)
        data = DataInfo(**_known(DataInfo, record["data"]))
        return cls(**_known(cls, record) | {"data": data})

    def to_dict(self) -> dict[str, Any]:
        """The contents of run.json; entries that the run does not have are left out."""
        optional = ("init_from", "imports", "extended")
        known = {k: v for k, v in asdict(self).items() if v or k not in optional}
        return {"format": FORMAT, "version": VERSION, **known}


@dataclass(frozen=True)
class RunResult:
    """The contents of result.json: metrics on the test split, and the cost of the run.

    >>> result = RunResult({"board_accuracy": 0.5}, loss=1.0, metrics={"board_accuracy": {}})
    >>> result.score, result.to_dict()["board_accuracy"]
    (0.5, 0.5)
    """

    values: dict[str, float | int | None]  # by metric
    loss: float | int | None
    metrics: dict[str, dict[str, Any]]  # title and kind of each metric; the first one decides
    parameters: int = 0
    flops_per_step: int | None = None
    steps: int = 0
    seconds: float | int = 0.0
    cpu_seconds: float | int | None = None
    seed: int = 0
    condition: str | None = None
    budget: str = "custom"
    init_from: str | None = None
    label: str = ""
    test_examples: int | None = None
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    baselines: dict[str, Any] | None = None  # what methods without learning reach, if recorded
    train: dict[str, Any] = field(default_factory=dict)  # of a TrainConfig

    @property
    def score(self) -> float | int | None:
        """The metric that decides."""
        return self.values[next(iter(self.metrics))]

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "RunResult":
        """From the contents of result.json, checked; older ones have fewer entries."""
        check(RESULT_FILE, record, RESULT)
        names = [*record["metrics"]] or ["metrics"]
        check(RESULT_FILE, record, {names[0]: int | float})
        check(RESULT_FILE, record, dict.fromkeys(names[1:], int | float | None))
        for name, facts in record["metrics"].items():
            check(f"{RESULT_FILE}: metrics: {name}", facts, METRIC)
        groups = record.get("groups", {})
        check(f"{RESULT_FILE}: groups", groups, dict.fromkeys(groups, dict))
        scores = {f"{name}?": int | float | None for name in names}
        for name, part in (item for parts in groups.values() for item in parts.items()):
            check(f"{RESULT_FILE}: {name}", part, {"examples": int, **scores})
        known: dict[str, Any] = {"loss": None, **_known(cls, record)}
        return cls(**known | {"values": {name: record[name] for name in names}})

    def to_dict(self) -> dict[str, Any]:
        """The contents of result.json."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "values"}
        optional = ("init_from", "baselines")
        return self.values | {k: v for k, v in known.items() if v is not None or k not in optional}


def _known(kind: type, record: dict[str, Any]) -> dict[str, Any]:
    return {f.name: record[f.name] for f in fields(kind) if f.name in record}


def read_run(folder: Path, error: type[GraphMachineError] = CheckpointError) -> dict[str, Any]:
    """The checked contents of run.json; your own conditions and tasks are registered afterwards."""
    found = read_unchecked(folder, error)
    try:
        RunInfo.from_dict(found)
    except DataError as wrong:
        raise error(f"{wrong}: {folder / RUN_FILE}") from None
    load_remembered(found.get("imports"), folder / RUN_FILE)
    return found


def read_unchecked(folder: Path, error: type[GraphMachineError]) -> dict[str, Any]:
    """The contents of run.json as they are, to be packed or checked later."""
    try:
        return read_object(folder / RUN_FILE, error)
    except FileNotFoundError:
        raise error(f"No run here (there is no {RUN_FILE}): {folder}") from None


def run_above(folder: Path) -> Path | None:
    """The run folder that a model folder or checkpoint lies in (or is), if any."""
    return next((p for p in (folder, *folder.parents[:2]) if (p / RUN_FILE).is_file()), None)

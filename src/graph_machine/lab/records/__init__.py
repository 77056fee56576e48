"""What happens inside a model, recorded: the recorder, its files, the names of what they hold."""

from graph_machine.lab.records.record import Record
from graph_machine.lab.records.recorder import Tape, estimate, record, recording

__all__ = ["Record", "Tape", "estimate", "record", "recording"]

"""Recorder, record format, statistics, region detectors and figures (paper, 3.4 and C, D)."""

from graph_machine.analysis.record import Record
from graph_machine.analysis.recorder import Tape, estimate, record, recording

__all__ = ["Record", "Tape", "estimate", "record", "recording"]

"""The lab: tasks, training, conditions, reports, and the tools that look inside a model."""

# Registries look for installed plug-ins from here on.
from graph_machine.lab import plugins as plugins

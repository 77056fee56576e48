"""From run records to tables, learning curves and pages."""

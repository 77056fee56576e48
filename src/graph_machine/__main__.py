"""`python -m graph_machine`: the same as the command `graph-machine`."""

from graph_machine.lab.cli import main

if __name__ == "__main__":
    main()

"""One style for everything that draws: `figures` makes dots, curves and panels from the rows of a table."""

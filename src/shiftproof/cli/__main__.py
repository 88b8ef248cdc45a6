"""`python -m shiftproof.cli`."""

from shiftproof.cli import main

main()

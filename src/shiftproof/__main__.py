"""`python -m shiftproof`, where the command is not on the path."""

from shiftproof.cli import main

main()

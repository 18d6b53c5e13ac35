"""Splits on trees with the published counts: all rules, and all published hashes where the public lists are at hand."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fpl import doctor
from fpl.cli.splits import splits_app
from fpl.config.compose import load_config
from fpl.config.shipped import experiments_folder
from fpl.data.spec import get_spec
from fpl.data.splits import (
    FAMILIES,
    Published,
    cps_file,
    import_split,
    make,
    make_split,
    published,
    survey,
    training_list,
)
from fpl.errors import FplError
from fpl.sweep.places import Places as SweepPlaces
from fpl.sweep.plan.needs import Needs
from tests.data.published_trees import (
    CITY,
    LISTS,
    UNIMATCH,
    VOC,
    bare,
    city_ids,
    city_tree,
    dialect,
    lines_of,
    sha,
    voc_ids,
    voc_tree,
)

needs_lists = pytest.mark.skipif(not LISTS.is_dir(), reason="no public lists (FPL_TEST_DATA names a folder with them)")
FRACTIONS = {"cityscapes": (32, 16, 8, 4, 2), "voc": (16, 8, 4, 2)}
COUNTS = {"cityscapes": (93, 186, 372, 744, 1488), "voc": (662, 1323, 2646, 5291)}
LOW = (92, 183, 366, 732)


@dataclass
class Places:
    data: Path
    splits: Path
    city: list[str]
    voc: list[str]
    clean: list[str]
    low: dict[int, Path]
    city_val: list[str]
    voc_val: list[str]

    def build(self, dataset: str) -> Path:
        """Root of the tree of a data set, made of empty files when first wanted."""
        if dataset == "cityscapes":
            root = self.data / "cityscapes"
            return root if root.exists() else city_tree(root, self.city, self.city_val)
        root = self.data / "VOCdevkit" / "VOC2012"
        return root if root.exists() else voc_tree(root, self.voc, self.clean, self.voc_val)

    def run(self, *arguments: object, code: int = 0) -> str:
        places = ["--splits", str(self.splits), "--data-root", str(self.data)]
        if arguments[0] in ("import-order", "list"):
            places = places[:2]
        result = CliRunner().invoke(splits_app, [*map(str, arguments), *places], catch_exceptions=True)
        if isinstance(result.exception, FplError):
            assert code == 2
            return result.exception.message
        assert result.exit_code == code, result.output
        return result.output


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk takes longer than all the rest when others write to it."""
    monkeypatch.setattr("fpl.files.os.fsync", lambda descriptor: None)


Known = dict[tuple[str, str, str], Published]


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> tuple[Places, Known]:
    """Published numbers of invented ids, and the hashes of their lists."""
    city = city_ids(2975, 1, [f"town{n}" for n in range(18)])
    voc = sorted(voc_ids(10582))
    clean = voc[::7][:1464]
    folder = tmp_path_factory.mktemp("invented")
    vals = city_ids(500, 2, ("ville",)), sorted(voc_ids(1449, 20000))
    low, known = {}, {}
    for count in LOW:
        labeled = random.Random(count).sample(clean, count)
        low[count] = folder / f"labeled_{count}.txt"
        low[count].write_bytes("\r\n".join(labeled).encode())
        rest = [[i for i in pool if i not in frozenset(labeled)] for pool in (clean, voc)]
        known["voc", "pseudoseg-1464", str(count)] = Published(sha(labeled), sha(rest[0]))
        known["voc", "pseudoseg-10582", str(count)] = Published(sha(labeled), sha(rest[1]))
    for name, ids, write in (("cityscapes", city, dialect), ("voc", voc, list)):
        for n in FRACTIONS[name]:
            lists = write(ids[::n]), write([i for number, i in enumerate(ids) if number % n])
            known[name, "every-nth", f"1/{n}"] = Published(*map(sha, lists), cps_lines=name == "cityscapes")
    return Places(folder / "data", folder / "splits", city, voc, clean, low, *vals), known


@pytest.fixture
def generated(invented: tuple[Places, Known], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Places:
    """The invented ids, whose hashes stand in for the published ones."""
    places, known = invented
    orders = {"cityscapes": sha(dialect(places.city)), "voc": sha(places.voc)}
    monkeypatch.setattr(published, "PUBLISHED", known)
    monkeypatch.setattr(published, "ORDERS", orders)
    monkeypatch.setattr(make, "ORDERS", orders)
    return dataclasses.replace(places, splits=tmp_path / "splits")


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The published ids themselves."""
    city, voc = bare(CITY / "train.txt"), bare(UNIMATCH / "pascal/train_aug.txt")
    clean, val = sorted(bare(UNIMATCH / "pascal/1464/labeled.txt")), bare(UNIMATCH / "pascal/val.txt")
    folder = tmp_path_factory.mktemp("public")
    low = {n: VOC / f"pseudoseg_labeled_1-{r}.txt" for n, r in zip(LOW, (16, 8, 4, 2), strict=True)}
    return Places(folder / "data", folder / "splits", city, voc, clean, low, bare(CITY / "val.txt"), val)


def _make_every_nth(places: Places, dataset: str, order: Path) -> None:
    places.build(dataset)
    if dataset == "cityscapes":
        refused = places.run("make", dataset, "--fraction", "1/16", code=2)
        assert "the order of the training list is not known" in refused
        assert "fpl splits import-order cityscapes train.txt" in refused
        assert "2975 training ids" in places.run("import-order", dataset, order)
    total = len(places.city if dataset == "cityscapes" else places.voc)
    for n, labeled in zip(FRACTIONS[dataset], COUNTS[dataset], strict=True):
        printed = places.run("make", dataset, "--fraction", f"1/{n}")
        assert f"{labeled} labeled (" in printed and f"{total - labeled} unlabeled (" in printed
        assert "equals" in printed


def _import_low_data(places: Places) -> None:
    places.build("voc")
    for count, file in places.low.items():
        for family, pool in (("pseudoseg-1464", 1464), ("pseudoseg-10582", 10582)):
            printed = places.run("import", "voc", file, "--family", family, "--fraction", count)
            assert f"{count} labeled (" in printed and f"{pool - count} unlabeled (" in printed
            assert "equals the published lists" in printed


def _check(places: Places, count: int, *options: str) -> str:
    """What is printed where all is well. With `--fast` no label is read: of empty files it tells nothing."""
    printed = places.run("check", *options)
    assert printed.count(" ok\n") == count and f"{count} splits, nothing wrong" in printed
    assert "unchecked" not in printed
    return printed


@pytest.mark.parametrize("dataset", FRACTIONS)
def test_every_nth_on_trees_of_the_published_counts(generated: Places, tmp_path: Path, dataset: str) -> None:
    order = tmp_path / "train.txt"
    order.write_bytes(cps_file("cityscapes", generated.city))
    _make_every_nth(generated, dataset, order)
    count = len(FRACTIONS[dataset])
    assert _check(generated, count, "--fast").count(" equal ") == count
    assert f"{count} splits" in generated.run("check", dataset, "--family", "every-nth", "--fast")
    assert "1 splits" in generated.run("check", dataset, "--fraction", "1/8", "--fast")
    n, ids = FRACTIONS[dataset][0], generated.city if dataset == "cityscapes" else generated.voc
    assert bare(generated.splits / dataset / "every-nth" / f"1-{n}" / "labeled.txt") == ids[::n]


def test_plan_and_doctor_know_when_the_published_order_is_missing(generated: Places, tmp_path: Path) -> None:
    """As making the split does: else a plan would call runs ready that end before their first step."""
    generated.build("cityscapes")
    config = load_config(experiments_folder() / "base" / "cityscapes_cps.toml")
    places = SweepPlaces(tmp_path, generated.data, generated.splits)
    command = "fpl splits import-order cityscapes train.txt"
    needs = Needs(places)
    assert any(command in reason for reason in needs.lacking(config)) and not needs.splits
    assert any(line.startswith("- no split") and command in line for line in doctor._data(places))
    order = tmp_path / "train.txt"
    order.write_bytes(cps_file("cityscapes", generated.city))
    generated.run("import-order", "cityscapes", order)
    needs = Needs(places)
    assert not any(command in reason for reason in needs.lacking(config)) and len(needs.splits) == 1
    assert any("-> fpl splits make cityscapes" in line for line in doctor._data(places))


def test_low_data_on_a_tree_of_the_published_counts(generated: Places) -> None:
    _import_low_data(generated)
    assert _check(generated, 8).count(" equal ") == 8
    printed = generated.run("list", "voc")
    assert printed.count("  equal  ") == 8
    assert "pseudoseg-1464 (voc): labeled: PseudoSeg's lists" in printed and "unimatch" in printed
    assert "no split of cityscapes" in generated.run("list", "cityscapes")
    assert "no such split of cityscapes" in generated.run("check", "cityscapes", code=2)


def test_random_family_draws_as_the_global_generator_does(generated: Places, tmp_path: Path) -> None:
    generated.build("cityscapes")
    (tmp_path / "train.txt").write_bytes(cps_file("cityscapes", generated.city))
    generated.run("import-order", "cityscapes", tmp_path / "train.txt")
    wanted = ("make", "cityscapes", "--family", "ael-random", "--fraction", "1/16")
    assert "its index is the seed" in generated.run(*wanted, code=2)
    for seed in (1, 5):
        assert "no published lists" in generated.run(*wanted, "--index", seed)
        labeled = bare(generated.splits / f"cityscapes/ael-random/1-16.{seed}/labeled.txt")
        random.seed(seed)
        assert labeled == random.sample(generated.city, 186)
    assert "93 labeled" in generated.run(*wanted[:-1], "93", "--index", 2)
    _check(generated, 3, "--fast")


def test_check_tells_all_faults_of_a_split_and_goes_on(generated: Places) -> None:
    generated.build("voc")
    for n in (8, 16):
        generated.run("make", "voc", "--fraction", f"1/{n}")
    path = generated.splits / "voc" / "every-nth" / "1-16" / "unlabeled.txt"
    labeled, val = generated.voc[0], voc_ids(1, 20000)[0]
    path.write_text(path.read_text() + f"{labeled}\n{val}\n2099_000001\n{val}\n")
    printed = generated.run("check", "voc", code=2)
    for fault in (
        f"unlabeled.txt: ids that stand twice: {val}",
        f"1 ids are labeled and unlabeled at once: {labeled}",
        f"1 validation ids are in the training lists: {val}",
        "1 of 10586 training images are not on disk: 2099_000001",
        "662 labeled + 9924 unlabeled ids instead of 662 + 9920",
        "the list was changed; make it: fpl splits make voc --fraction 1/16",
    ):
        assert fault in printed, fault
    assert "6 wrong" in printed and "2 splits, 6 faults" in printed and printed.count(" ok\n") == 1
    assert printed.count("\n  -> ") == 6


def test_training_list_of_voc_is_rebuilt_and_sorted(generated: Places) -> None:
    spec, root = get_spec("voc"), generated.build("voc")
    assert spec.list_ids(root, "train") == generated.voc
    assert spec.subset_ids(root, "clean") == generated.clean
    listed = root / "ImageSets" / "Segmentation" / "trainaug.txt"
    shuffled = random.Random(0).sample(generated.voc, len(generated.voc))
    listed.write_text("\n".join(f"/JPEGImages/{i}.jpg /SegmentationClassAug/{i}.png" for i in shuffled))
    try:
        assert training_list(spec, root) == generated.voc
        listed.write_text("\n".join([*generated.voc[1:], "2099_000001"]))
        with pytest.raises(FplError, match="10582 training ids are not those of the published list"):
            training_list(spec, root)
    finally:
        listed.unlink()


def test_lists_of_another_training_set_are_refused_under_a_published_name(generated: Places, tmp_path: Path) -> None:
    spec, ids = get_spec("voc"), generated.voc
    labeled = [ids[0], *ids[17::16]]
    (tmp_path / "l.txt").write_text("\n".join(labeled))
    (tmp_path / "u.txt").write_text("\n".join(sorted({*ids} - {*labeled})))
    files = (tmp_path / "l.txt", tmp_path / "u.txt")
    with pytest.raises(FplError, match=r"not the published lists of voc every-nth 1/16") as caught:
        import_split(spec, *files, "every-nth", "1/16")
    assert "--family imported" in caught.value.hint
    assert len(import_split(spec, *files, "imported", "1/16").split.labeled) == 662


@needs_lists
@pytest.mark.parametrize("dataset", FRACTIONS)
def test_published_lists_are_reproduced_byte_for_byte(public: Places, dataset: str) -> None:
    _make_every_nth(public, dataset, CITY / "train.txt")
    findings = list(survey(public.splits, dataset, "every-nth", data_root=public.data))
    assert len(findings) == len(FRACTIONS[dataset])
    assert all(finding.published == "equal" and not finding.faults for finding in findings)
    folder = CITY / "subset_train" if dataset == "cityscapes" else VOC
    for n in (16, 8, 4, 2):
        for part in ("labeled", "unlabeled"):
            ids = bare(public.splits / f"{dataset}/every-nth/1-{n}/{part}.txt")
            assert cps_file(dataset, ids) == (folder / f"train_aug_{part}_1-{n}.txt").read_bytes()


@needs_lists
def test_published_low_data_lists_are_completed(public: Places) -> None:
    _import_low_data(public)
    for count, file in zip(LOW, (16, 8, 4, 2), strict=True):
        folder = public.splits / "voc" / "pseudoseg-1464" / str(count)
        listed = bare(VOC / f"pseudoseg_unlabeled_1-{file}.txt")
        leaked = set(listed) & set(bare(folder / "labeled.txt"))
        assert leaked == {published.LEAKS[str(count)]}
        assert bare(folder / "unlabeled.txt") == [i for i in listed if i not in leaked]


@needs_lists
def test_every_public_list_is_imported(tmp_path: Path) -> None:
    city, voc = get_spec("cityscapes"), get_spec("voc")
    lists = [(city, CITY / "subset_train", "train_aug", "every-nth", n, f"1/{n}") for n in (16, 8, 4, 2)]
    lists += [(voc, VOC, "train_aug", "every-nth", n, f"1/{n}") for n in (16, 8, 4, 2)]
    lists += [
        (voc, VOC, "pseudoseg", "pseudoseg-1464", n, f) for n, f in zip((16, 8, 4, 2), map(str, LOW), strict=True)
    ]
    for spec, folder, name, family, n, fraction in lists:
        pair = (folder / f"{name}_labeled_1-{n}.txt", folder / f"{name}_unlabeled_1-{n}.txt")
        imported = import_split(spec, *pair, family, fraction)
        assert len(imported.dropped) == (name == "pseudoseg")
        assert imported.split.labeled == tuple(bare(pair[0]))
    for folder in sorted(UNIMATCH.glob("*/*/")):
        family = "u2pl" if folder.name.startswith("u2pl_") else "unimatch"
        fraction = folder.name.removeprefix("u2pl_").replace("_", "/")
        spec = voc if folder.parent.name == "pascal" else city
        split = import_split(spec, folder / "labeled.txt", folder / "unlabeled.txt", family, fraction).split
        assert len(split.labeled) + len(split.unlabeled) == spec.counts["train"]
        assert split.labeled == tuple(bare(folder / "labeled.txt"))
    assert published.PUBLISHED.keys() <= {
        *((spec.name, family, fraction) for spec, *_, family, _, fraction in lists),
        *(("voc", family, str(n)) for family in ("unimatch", "pseudoseg-10582") for n in (*LOW, 1464)),
        *((name, family, f"1/{n}") for name in FRACTIONS for family in ("unimatch", "u2pl") for n in (2, 4, 8, 16, 30)),
        ("cityscapes", "every-nth", "1/32"),
    }
    with pytest.raises(FplError, match="not the published lists of voc pseudoseg-10582 732"):
        import_split(voc, *(UNIMATCH / f"pascal/732/{p}labeled.txt" for p in ("", "un")), "pseudoseg-10582", "732")


@needs_lists
def test_hashes_of_the_stored_lists_are_those_of_the_table() -> None:
    assert sha(lines_of(CITY / "train.txt")) == published.ORDERS["cityscapes"] == "c3cfe49bc680f1db"
    assert sha(bare(UNIMATCH / "pascal/train_aug.txt")) == published.ORDERS["voc"] == "855dff350b7f447b"


def test_every_family_is_exercised() -> None:
    """A new family must come with a test here or in test_import_splits."""
    assert set(FAMILIES) == {
        "clean-nth",  # tests/data/test_synthetic_voc.py
        "every-nth",
        "ael-random",
        "pseudoseg-1464",
        "pseudoseg-10582",
        "u2pl",
        "unimatch",
        "imported",
    }


def test_families_that_no_rule_gives_name_their_source_and_the_command(generated: Places) -> None:
    spec, root = get_spec("voc"), generated.build("voc")
    for family, fraction, source in (
        ("pseudoseg-1464", "92", "TorchSemiSeg"),
        ("pseudoseg-10582", "732", "TorchSemiSeg"),
        ("u2pl", "1/16", "UniMatch"),
        ("unimatch", "732", "UniMatch"),
        ("imported", "1/3", "whoever"),
    ):
        with pytest.raises(FplError, match="its lists are imported") as caught:
            make_split(spec, root, family, fraction)
        assert source in caught.value.hint
        assert f"--fraction {fraction} --family {family}" in caught.value.hint
        assert "fpl splits import voc LABELED" in caught.value.hint

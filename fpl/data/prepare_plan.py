"""Which files of which archives make a data set, and what is missing: known before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fpl.data.archives import Archive, Member, open_tree
from fpl.data.layout import PARTS, Layout
from fpl.data.layouts import VocLayout
from fpl.data.lists import parse_ids
from fpl.data.spec import SPECS, DatasetSpec
from fpl.errors import FplError
from fpl.text import enumerate_briefly

# What archives are called, for a hint: they are known by what is in them.
_PACKED = (".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2")
_ANNOTATION = re.compile(r"(?:.*/)?cls/(?P<id>[^/\0]+)\.mat")


@dataclass(frozen=True)
class Found:
    """A file of the data set in an archive, or at its place already.

    Attributes:
        archive: Where it is.
        member: The file.
        position: Numbers of the archive and of the member in it, to read in the order in which they lie there.
        in_place: Whether it is at its place already.
    """

    archive: Archive
    member: Member
    position: tuple[int, int]
    in_place: bool = False

    @property
    def where(self) -> str:
        """Its place in words, for errors."""
        return f"{self.archive.path}, {self.member.name}"


@dataclass(frozen=True)
class Job:
    """One file to take out.

    Attributes:
        source: Where it comes from.
        targets: Where it is put; what is there and the same stays.
        image: For an annotation of SBD, which becomes a label: the image that it is of.
    """

    source: Found
    targets: tuple[Path, ...]
    image: Path | None = None


@dataclass
class _Tree:
    """All that archives and disk have of a data set.

    Attributes:
        files: Path at which the file belongs -> file.
        annotations: Image id -> annotation of SBD.
    """

    files: dict[str, Found] = field(default_factory=dict)
    annotations: dict[str, Found] = field(default_factory=dict)

    def first(self, paths: Iterable[str]) -> str | None:
        """The first of the paths of which there is a file."""
        return next((path for path in paths if path in self.files), None)


def plan_jobs(spec: DatasetSpec, root: Path, archives: Sequence[Archive]) -> list[Job]:
    """What makes the data set at `root` complete: the files it needs and no others.

    Archives are known by what is in them. What stands at `root` already counts; what an archive has as well comes
    from there. VOC's own labels serve the images that have one, SBD's the others.

    Args:
        spec: The data set.
        root: Its folder, which need not exist.
        archives: Archives or unpacked folders, in any order.

    Returns:
        Jobs in the order to do them: an image comes before the annotation that is compared with it.

    Raises:
        FplError: An archive has nothing of the data set, two files claim one place, or files are missing: says which,
            and which archive has them.
    """
    layout = spec.layout
    tree = _collect(spec, root, archives)
    lists = {part: tree.first(f"{root}/{name.format(part=part)}" for name in layout.list_files) for part in PARTS}
    ids = {part: _ids(layout, root, tree, part, lists[part]) for part in PARTS}
    own: set[str] = set()
    if isinstance(layout, VocLayout):
        own = {*ids["train"], *ids["val"]}
        ids["train"] = sorted({*ids["train"], *_augmented(layout, root, tree)} - {*ids["val"]})
    jobs = [Job(tree.files[path], (Path(path),)) for path in lists.values() if path is not None]
    missing: dict[str, list[str]] = {"image": [], "label": []}
    for part, image_id in ((each, image_id) for each in PARTS for image_id in ids[each]):
        image = tree.first(layout.image_candidates(root, part, image_id))
        image_job = None if image is None else Job(tree.files[image], (Path(image),))
        label_job = _label_job(layout, root, tree, part, image_id, image_id in own)
        for kind, job in (("image", image_job), ("label", label_job)):
            if job is None:
                missing[kind].append(f"{part} {image_id}")
            else:
                jobs.append(job)
    if problems := [*_wrong_numbers(spec, ids, lists), *_missing_files(spec, missing)]:
        raise FplError(
            f"{spec.name} would not be complete, nothing was written\n    " + "\n    ".join(problems),
            where=str(root),
            hint="give these archives, or unpacked folders, in one command; what is in place already counts",
        )
    jobs = [job for job in jobs if not (job.source.in_place and job.image is None and len(job.targets) == 1)]
    return sorted(jobs, key=lambda job: (job.image is not None, job.source.position))


def _label_job(layout: Layout, root: Path, tree: _Tree, part: str, image_id: str, own: bool) -> Job | None:
    if not isinstance(layout, VocLayout):
        path = tree.first(layout.label_candidates(root, part, image_id))
        return None if path is None else Job(tree.files[path], (Path(path),))
    augmented, original = (f"{root}/{kind.folder}/{image_id}{kind.ending}" for kind in layout.labels)
    if own:
        # Other tools read all labels in one folder.
        source = tree.files.get(original)
        return None if source is None else Job(source, (Path(original), Path(augmented)))
    if image_id in tree.annotations:
        image = next(layout.image_candidates(root, part, image_id))
        return Job(tree.annotations[image_id], (Path(augmented),), image=Path(image))
    source = tree.files.get(augmented)
    return None if source is None else Job(source, (Path(augmented),))


def _collect(spec: DatasetSpec, root: Path, archives: Sequence[Archive]) -> _Tree:
    tree, layout = _Tree(), spec.layout
    for number, archive in enumerate(archives, start=1):
        files, annotations = list(_files_of(layout, archive, number)), []
        if isinstance(layout, VocLayout):
            annotations = list(_annotations_of(archive, number))
        if not files and not annotations:
            raise _nothing(spec, archive)
        for place, found in files:
            _add(tree.files, f"{root}/{place}", found)
        for image_id, found in annotations:
            _add(tree.annotations, image_id, found)
    tops = {path.split("/")[0] for part in PARTS for path in _folders(layout, part)}
    for place, found in _files_of(layout, open_tree(root, tops), 0):
        if found.member.name == place:
            tree.files.setdefault(f"{root}/{place}", Found(found.archive, found.member, found.position, in_place=True))
    return tree


def _files_of(layout: Layout, archive: Archive, number: int) -> Iterator[tuple[str, Found]]:
    """Path below the root and file for all files of the layout, whatever folders they lie in."""
    files, lists = _patterns(layout)
    prefixes, found_lists = set(), []
    for position, member in enumerate(archive.members):
        if match := files.fullmatch(member.name):
            prefixes.add(match["prefix"])
            yield match["place"], Found(archive, member, (number, position))
        elif match := lists.fullmatch(member.name):
            found_lists.append((match, Found(archive, member, (number, position))))
    # Many things have a list called so: it is this data set's where it stands beside its files.
    yield from ((match["place"], found) for match, found in found_lists if match["prefix"] in prefixes)


def _annotations_of(archive: Archive, number: int) -> Iterator[tuple[str, Found]]:
    for position, member in enumerate(archive.members):
        if match := _ANNOTATION.fullmatch(member.name):
            yield match["id"], Found(archive, member, (number, position))


def _patterns(layout: Layout) -> tuple[re.Pattern[str], re.Pattern[str]]:
    name = r"[^/\0]+/[^/\0]+" if layout.city_folders else r"[^/\0]+"
    files, lists = set(), set()
    for part in PARTS:
        files |= {f"{layout.images.format(part=part)}/{name}{re.escape(ending)}" for ending in layout.image_endings}
        files |= {f"{kind.folder.format(part=part)}/{name}{re.escape(kind.ending)}" for kind in layout.labels}
        lists |= {re.escape(file.format(part=part)) for file in layout.list_files}
    whole = r"(?P<prefix>(?:.*/)?)(?P<place>{})"
    return re.compile(whole.format("|".join(sorted(files)))), re.compile(whole.format("|".join(sorted(lists))))


def _folders(layout: Layout, part: str) -> Iterator[str]:
    for path in (layout.images, *(kind.folder for kind in layout.labels), *layout.list_files):
        yield path.format(part=part)


def _add(files: dict[str, Found], key: str, found: Found) -> None:
    other = files.get(key)
    # In one archive the later of two members of one name counts, as for every program that unpacks it.
    same_name = other is not None and (other.archive, other.member.name) == (found.archive, found.member.name)
    if other is None or same_name:
        files[key] = found
    elif (other.member.size, other.member.checksum) != (found.member.size, found.member.checksum):
        hint = "give only the archives of one copy of the data set"
        raise FplError(f"two files for {key}, and they differ: {other.where}", where=found.where, hint=hint)


def _nothing(spec: DatasetSpec, archive: Archive) -> FplError:
    packed = [member.name for member in archive.members if member.name.lower().endswith(_PACKED)]
    if archive.path.is_dir() and packed:
        what = f"a folder of archives: {enumerate_briefly(packed, 3)}"
        raise FplError(what, where=str(archive.path), hint="give these instead: nothing is unpacked by hand")
    named = enumerate_briefly((member.name for member in archive.members), 3) or "no file at all"
    fits = [each.name for each in SPECS.values() if not each.drawn and any(_files_of(each.layout, archive, 0))]
    guess = f"; it looks like {' or '.join(fits)}" if fits else ""
    wanted = " and ".join(dict.fromkeys(spec.archives))
    hint = f"{spec.name} is made of {wanted}; expected in them: {spec.layout.description}"
    return FplError(f"nothing of {spec.name} is in it, but {named}{guess}", where=str(archive.path), hint=hint)


def _ids(layout: Layout, root: Path, tree: _Tree, part: str, listed: str | None) -> list[str]:
    """Ids of a part: those of its list, or else of its images; of VOC, which has no other, of its list alone."""
    if listed is not None:
        found = tree.files[listed]
        return parse_ids(found.archive.read(found.member), lambda line: layout.listed_id(line, part), found.where)
    if isinstance(layout, VocLayout):
        return []
    folder = f"{layout.image_folder(root, part)}/"
    names = (path.rsplit("/", 1)[-1] for path in tree.files if path.startswith(folder))
    endings = layout.image_endings
    return sorted({name.removesuffix(end) for name in names for end in endings if name.endswith(end)})


def _augmented(layout: VocLayout, root: Path, tree: _Tree) -> Iterator[str]:
    yield from tree.annotations
    folder = f"{root}/{layout.augmented}/"
    yield from (path.removeprefix(folder).removesuffix(".png") for path in tree.files if path.startswith(folder))


def _wrong_numbers(
    spec: DatasetSpec, ids: Mapping[str, Sequence[str]], lists: Mapping[str, str | None]
) -> Iterator[str]:
    augmented = isinstance(spec.layout, VocLayout)
    for part, wanted in (spec.counts or {}).items():
        if augmented and lists[part] is None:
            yield f"{spec.layout.list_files[0].format(part=part)} is missing; it comes in {spec.archives[0]}"
        elif len(ids[part]) != wanted:
            source = spec.archives[augmented and part == "train"]
            yield f"{len(ids[part])} {part} images, {wanted} are expected; they come in {source}"


def _missing_files(spec: DatasetSpec, missing: Mapping[str, Sequence[str]]) -> Iterator[str]:
    # What VOC lacks is its own: where SBD's label is missing, nothing tells of the image.
    sources = spec.archives[:1] * 2 if isinstance(spec.layout, VocLayout) else spec.archives
    for (kind, names), source in zip(missing.items(), sources, strict=True):
        if names:
            count = f"{len(names)} {kind}s are" if len(names) > 1 else f"1 {kind} is"
            yield f"{count} missing: {enumerate_briefly(names, 3)}; they come in {source}"

"""List files and records of splits with any content."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fpl.data.lists import read_ids
from fpl.data.spec import get_spec
from fpl.data.splits import Split, read_split, split_folder, write_split
from fpl.data.splits.importing import import_split
from fpl.errors import FplError
from tests.fuzz.outcome import files_in, result_or_error

IDS = st.lists(
    st.sampled_from(
        ["a", "b", "0001TP_006690", "a b", "#c", "-d", "é", "e\u0301", "%41", "x" * 300, "..", "a/b", "/etc/x"]
    )
    | st.text(st.characters(codec="utf-8"), max_size=6),
    max_size=6,
)
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda ids, end, mark, last: mark + (end.join(ids) + last).encode(),
        IDS,
        st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\t", " \n"]),
        st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe"]),
        st.sampled_from(["", "\n", "\0", "\x1a"]),
    ),
)
RECORDS = st.one_of(
    st.binary(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["repairs", "counts", "labeled", "origin", "labeled_digest", "index", "rule"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [b'{"repairs": null}', b'{"repairs": [[]]}', b'{"counts": 5}', b"[" * 3000, b'{"a": ' + b"9" * 5000 + b"}"]
    ),
)


@given(content=CONTENTS)
def test_lists(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.txt"
        path.write_bytes(content)
        found = result_or_error(lambda: read_ids(path, str), path)
    if not isinstance(found, FplError):
        assert all(line and line == line.strip() and not line.startswith("#") for line in found)


@given(labeled=CONTENTS, unlabeled=CONTENTS)
def test_imports(labeled: bytes, unlabeled: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / "labeled.txt", Path(name) / "unlabeled.txt"]
        for path, content in zip(paths, (labeled, unlabeled), strict=True):
            path.write_bytes(content)
        result_or_error(lambda: import_split(get_spec("camvid"), *paths, "imported", "1/4"), name)
        assert files_in(Path(name)) == set(paths)


@given(labeled=CONTENTS, unlabeled=CONTENTS, record=RECORDS)
def test_stored_splits(labeled: bytes, unlabeled: bytes, record: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = split_folder(Path(name), "camvid", "every-nth", "1/4")
        folder.mkdir(parents=True)
        for file, content in (("labeled.txt", labeled), ("unlabeled.txt", unlabeled), ("split.json", record)):
            (folder / file).write_bytes(content)
        result_or_error(lambda: read_split(Path(name), "camvid", "every-nth", "1/4"), folder)


@given(labeled=IDS, unlabeled=IDS)
def test_r62_what_is_written_reads_back_or_is_refused(labeled: list[str], unlabeled: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = split_folder(Path(name), "camvid", "imported", "1/4")
        split = Split("camvid", "imported", "1/4", tuple(labeled), tuple(unlabeled))
        written = result_or_error(lambda: write_split(split, folder), *labeled, *unlabeled, folder)
        if isinstance(written, FplError):
            assert not folder.exists()
            return
        assert [read_ids(path, str) for path in written[:2]] == [labeled, unlabeled]

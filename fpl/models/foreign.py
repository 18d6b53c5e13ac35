"""What a file that cannot be read as weights seems to be, told by its first bytes, and what to do then."""

from __future__ import annotations

import codecs
import zipfile
from pathlib import Path

from fpl.text import enumerate_briefly

# Longer than the place of a tar archive's mark.
_HEAD = 1024
# Characters of a text that a message shows.
_SHOWN = 40
# A header of safetensors is no longer, says its format.
_LONGEST_HEADER = 100_000_000
_LFS = b"version https://git-lfs"
_TAR = (257, b"ustar")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
# Protocols 2 to 5.
_PICKLE = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))
# With which torch before 1.6 begins a pickle of its own.
_OF_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_KNOWN = {
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\0": "an xz archive",
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    b"\x93NUMPY": "an array of NumPy",
}
_CUT_OFF = "the download or copy was cut off: fetch it again"
_UNPACK = "unpack it, and give the weights file in it"
_SAVE = "save its tensors under parameter names with torch.save"

Seeming = tuple[str, str]


def seems(path: Path) -> Seeming:
    """What a file seems to be that is no weights file under its name, and what to do.

    Args:
        path: A regular file, a folder, or nothing.

    Returns:
        `is a gzip archive`, and advice; two empty texts for what may be a weights file, and for what cannot be told.
    """
    if path.is_dir():
        return "is a folder", "name a file; a weights file that was unpacked has to be fetched again"
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not head:
            return "is empty", _CUT_OFF
        return _text(head) or _archive(path, head) or _misnamed(path, head) or ("", "")
    except Exception:  # a damaged archive can raise anything; that it cannot be read is said by who asked
        return "", ""


def _text(head: bytes) -> Seeming | None:
    if head.startswith(_LFS):
        hint = "fetch the file itself: git lfs pull, in the repository that it comes from"
        return "is a pointer of git-LFS, which stands for a file that was not fetched", hint
    encoding = "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        # The last character may be cut.
        text = codecs.getincrementaldecoder(encoding)().decode(head).strip()
    except UnicodeDecodeError:
        return None
    if not all(character.isprintable() or character.isspace() for character in text):
        return None
    begins = f"begins with {text.partition(chr(10))[0].strip()[:_SHOWN]!r}"
    if text.startswith("<"):
        hint = "the download failed: fetch the file again by its own address, not by that of a page about it"
        return f"is a web page or the answer of a server, and {begins}", hint
    return f"is a text file, and {begins}", "give the weights themselves: a file of torch.save or of safetensors"


def _archive(path: Path, head: bytes) -> Seeming | None:
    for mark, name in _KNOWN.items():
        if head.startswith(mark):
            return f"is {name}", _UNPACK if name.endswith("archive") else _SAVE
    place, mark = _TAR
    if head[place:].startswith(mark):
        return "is a tar archive", _UNPACK
    if not head.startswith(_ZIP):
        return None
    if not zipfile.is_zipfile(path):
        return "begins as a file of torch.save does, or another zip archive, and has no end", _CUT_OFF
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any(name.endswith("/data.pkl") for name in names):
        return None
    return f"is a zip archive of other files ({enumerate_briefly(names, 3) or 'none'})", _UNPACK


def _misnamed(path: Path, head: bytes) -> Seeming | None:
    if path.suffix == ".safetensors":
        if not head.startswith((*_ZIP, *_PICKLE)):
            return None
        return "is a file of torch.save under the name of a safetensors file", "give it the ending .pth"
    if head.startswith(_PICKLE) and not head.startswith(_OF_TORCH):
        return "is a pickle of Python, not of torch.save", _SAVE
    if head[8:9] != b"{" or not 0 < int.from_bytes(head[:8], "little") <= _LONGEST_HEADER:
        return None
    hint = (
        'save it as its name says: python -c "import torch; from safetensors.torch import load_file; '
        f"torch.save(load_file({path.name!r}), 'weights.pth')\""
    )
    return "is a safetensors file under another name", hint

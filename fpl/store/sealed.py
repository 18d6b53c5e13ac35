"""Parquet files with a checksum over all of their bytes.

Parquet's own checksums cover the pages alone: a flipped bit behind them gives a column another name, and it reads as
null. So a seal is put between the pages, which are found from the beginning of a file, and the footer, which is found
from its end. No reader of Parquet looks there.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

_MARK, _DIGEST = b"fpl: blake2b of all other bytes: ", 16
# Behind the footer: its length in four bytes, and four letters.
_END = 8


def encoded(rows: pa.Table) -> bytes:
    """A sealed Parquet file of the rows."""
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, compression="zstd")
    content: bytes = buffer.getvalue().to_pybytes()
    footer = len(content) - _END - int.from_bytes(content[-_END : 4 - _END], "little")
    return content[:footer] + _MARK + _digest(content[:footer], content[footer:]) + content[footer:]


def is_broken(content: bytes) -> bool:
    """Whether a file has a seal that is not that of its bytes; files of before, and of other programs, have none."""
    pages, mark, rest = content.rpartition(_MARK)
    return bool(mark) and rest[:_DIGEST] != _digest(pages, rest[_DIGEST:])


def _digest(pages: bytes, footer: bytes) -> bytes:
    digest = hashlib.blake2b(pages, digest_size=_DIGEST)
    digest.update(footer)
    return digest.digest()

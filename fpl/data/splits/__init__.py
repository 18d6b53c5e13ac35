"""Which images are labeled: splits as files that exist before a training starts. Works without torch."""

from fpl.data.splits.families import FAMILIES, every_nth, families_of, get_family, seeded_sample
from fpl.data.splits.importing import import_split
from fpl.data.splits.make import import_order, make_split, training_list
from fpl.data.splits.published import Published, cps_file, published_of
from fpl.data.splits.split import Split, digest_ids, hold_out, split_folder
from fpl.data.splits.store import read_split, resolve_split, write_split
from fpl.data.splits.survey import Finding, survey

__all__ = [
    "FAMILIES",
    "Finding",
    "Published",
    "Split",
    "cps_file",
    "digest_ids",
    "every_nth",
    "families_of",
    "get_family",
    "hold_out",
    "import_order",
    "import_split",
    "make_split",
    "published_of",
    "read_split",
    "resolve_split",
    "seeded_sample",
    "split_folder",
    "survey",
    "training_list",
    "write_split",
]

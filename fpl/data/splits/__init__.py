"""Which images are labeled: splits as files that exist before a training starts. Works without torch."""

from fpl.data.splits.families import FAMILIES, Family, every_nth, families_of, get_family, how_to_get, seeded_sample
from fpl.data.splits.faults import check_split
from fpl.data.splits.importing import Imported, import_split
from fpl.data.splits.make import import_order, make_split, training_list
from fpl.data.splits.published import PUBLISHED, Published, cps_file, cps_lines, digests_like, published_of
from fpl.data.splits.split import DROP_FROM_UNLABELED, Split, digest_ids, hold_out, split_folder
from fpl.data.splits.store import read_split, resolve_split, write_split
from fpl.data.splits.survey import Finding, survey

__all__ = [
    "DROP_FROM_UNLABELED",
    "FAMILIES",
    "PUBLISHED",
    "Family",
    "Finding",
    "Imported",
    "Published",
    "Split",
    "check_split",
    "cps_file",
    "cps_lines",
    "digest_ids",
    "digests_like",
    "every_nth",
    "families_of",
    "get_family",
    "hold_out",
    "how_to_get",
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

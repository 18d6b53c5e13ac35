"""Studies as a journal of Optuna: one file that `optuna.load_study` and optuna-dashboard open. Made anew each time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend

import fpl
from fpl.errors import FplError, file_error
from fpl.files import check_regular, write_atomic
from fpl.text import first_line

# What marks a study, and each of its trials, as written from our rows.
STUDY_MARK, TRIAL_MARK = "fpl_version", "number"
_HINT = "name another file: only a journal that was exported before is replaced"


def write_journal(path: Path, studies: Mapping[str, optuna.Study]) -> None:
    """Write studies with all their trials, in the place of an earlier export.

    Args:
        path: The file.
        studies: By the names that they get there.

    Raises:
        FplError: As `check_journal`, or the file cannot be written.
    """
    check_journal(path)
    backend = _Collected()
    storage = JournalStorage(backend)
    for name, study in studies.items():
        written = optuna.create_study(storage=storage, study_name=name, directions=study.directions)
        written.set_user_attr(STUDY_MARK, fpl.__version__)
        written.add_trials(study.get_trials(deepcopy=False))
    lines = (json.dumps(log, separators=(",", ":")) + "\n" for log in backend.logs)
    write_atomic(path, "".join(lines).encode())


def check_journal(path: Path) -> None:
    """Refuse a file that would be lost: anything but an export, and one to which somebody has added trials.

    Raises:
        FplError: The path has such a file, or a folder.
    """
    check_regular(path)
    if not path.exists():
        return
    try:
        content = path.read_bytes()
        storage = JournalStorage(JournalFileBackend(str(path)))
    except OSError as error:
        raise file_error(error, path) from error
    except Exception as error:  # Optuna trusts what it reads
        raise FplError(f"it is no journal of Optuna: {first_line(error)}", where=str(path), hint=_HINT) from error
    names = optuna.get_all_study_names(storage)
    # Optuna takes a last line that it cannot read for one that is being written.
    if content and not names:
        raise FplError("it is no journal of Optuna", where=str(path), hint=_HINT)
    for name in names:
        study = optuna.load_study(study_name=name, storage=storage)
        trials = study.get_trials(deepcopy=False)
        if STUDY_MARK not in study.user_attrs or any(TRIAL_MARK not in trial.user_attrs for trial in trials):
            raise FplError(f"its study {name} has trials of others", where=str(path), hint=_HINT)


class _Collected(BaseJournalBackend):
    """A journal in memory: Optuna's own file is synced for every trial."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.logs += logs

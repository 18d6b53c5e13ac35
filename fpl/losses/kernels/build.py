"""Compile the CPU kernels on first use, and keep the library in a folder of the user's."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("source")
COMPILERS = ("c++", "g++", "clang++")
COMPILE_SECONDS = 300
# Beginning of the names of libraries that are being compiled.
BUILDING = "building-"

# The compiler may use what this machine's torch uses, and never "whatever this machine has" (-march=native): a home
# folder is often shared by machines of different age, and a library that is built on one of them for itself alone
# stops the others with an illegal instruction. These sets are part of the library's name, so each kind gets its own.
CAPABILITY_FLAGS = {
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
# Neither errno nor floating-point traps are read; both would keep loops from becoming vectors. Not -ffast-math: it
# assumes that there is no NaN, and a diverged network has to be seen.
FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC", "-pthread", "-Wno-psabi")


class BuildError(Exception):
    """The kernels cannot be compiled or loaded here; the message is the reason, on one line."""


def find_compiler() -> list[str]:
    """Command that starts a C++ compiler: the environment variable CXX, else the first of :data:`COMPILERS`.

    Raises:
        BuildError: There is none, or that of CXX is not found.
    """
    try:
        chosen = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise BuildError(f"CXX is {os.environ['CXX']!r}: {error}") from error
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise BuildError(f"no C++ compiler: CXX is {chosen[0]!r}, which is not found")
        return chosen
    for name in COMPILERS:
        path = shutil.which(name)
        if path is not None:
            return [path]
    raise BuildError(f"no C++ compiler: none of {', '.join(COMPILERS)} is found, and CXX is not set")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    # In English, whatever the user's language: errors are looked for by that word.
    environment = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMPILE_SECONDS, env=environment
        )
    except OSError as error:
        raise BuildError(f"{command[0]} does not start: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} took longer than {COMPILE_SECONDS} s") from error


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line.lower()), lines[0] if lines else "no message")


def compile_flags() -> tuple[str, ...]:
    """All flags, those of this machine's vector instructions included."""
    return (*FLAGS, *CAPABILITY_FLAGS.get(torch.backends.cpu.get_cpu_capability(), ()))


def source_key(source: Path) -> str:
    """Changes with the sources, the flags, and the kind of machine that a shared home folder is read from."""
    key = hashlib.sha256()
    for flag in (sys.platform, platform.machine(), *compile_flags()):
        key.update(flag.encode() + b"\0")
    for path in sorted(source.glob("[!.]*.[ch]pp")):
        content = path.read_bytes()
        key.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return key.hexdigest()[:16]


def library_name(compiler: list[str], source: Path) -> str:
    """First part of a file name, which changes with the sources, the flags and the compiler.

    The second is a digest of the file: of a damaged library single losses would be wrong, without a word.

    Raises:
        BuildError: The compiler does not tell its version.
    """
    version = _run([*compiler, "--version"])
    if version.returncode != 0:
        raise BuildError(f"{compiler[0]} --version failed: {_first_error(version.stderr)}")
    key = hashlib.sha256("\0".join([*compiler[1:], version.stdout.partition("\n")[0]]).encode())
    return f"kernels-{source_key(source)}-{key.hexdigest()[:8]}"


def _whole_name(name: str, library: Path) -> str:
    return f"{name}-{hashlib.sha256(library.read_bytes()).hexdigest()[:16]}.so"


def cache_folders() -> Iterator[Path]:
    """Folders to keep the library in, the preferred one first; the last one is for homes that cannot be written."""
    if os.environ.get("FPL_CACHE"):
        cache = os.environ["FPL_CACHE"]
    elif os.environ.get("XDG_CACHE_HOME"):
        cache = os.path.join(os.environ["XDG_CACHE_HOME"], "fpl")  # noqa: PTH118
    else:
        # Stays relative where there is no home to expand to; such a folder is not made below.
        cache = os.path.expanduser("~/.cache/fpl")  # noqa: PTH111
    # A folder of our own in it, since others may be allowed to write to that one.
    yield Path(cache, "kernels")
    yield Path(tempfile.gettempdir(), f"fpl-{os.getuid()}")


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user and root can have changed what this is the status of."""
    return status.st_uid in _trusted() and not status.st_mode & 0o022


def _trusted() -> tuple[int, ...]:
    # In some containers root has another number, and owns "/" under it.
    return os.getuid(), 0, Path("/").stat().st_uid


def _is_private(folder: Path) -> bool:
    """Whether nobody else can have put a library there for us to run, or the folder itself."""
    try:
        status = folder.lstat()
        # By either way to it: a link may be on it.
        above = [parent.stat() for parent in {*folder.absolute().parents, *folder.resolve().parents}]
    except OSError:
        # Not there, or in a home that this user may not look into: of no use in either case.
        return False
    # In a sticky folder such as /tmp all may write, but nobody can rename what is another's.
    held = all(_is_ours(each) or (each.st_mode & stat.S_ISVTX and each.st_uid in _trusted()) for each in above)
    return stat.S_ISDIR(status.st_mode) and _is_ours(status) and held


def _is_trusted(library: Path) -> bool:
    """Whether a library is a plain file that nobody else can have written, and still what was written."""
    try:
        status = library.lstat()
        if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
            return False
        return library.name == _whole_name(library.stem.rpartition("-")[0], library)
    except OSError:
        return False


def _writable_folder() -> Path:
    for folder in cache_folders():
        try:
            if folder.is_absolute():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if _is_private(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    # It is not found again by the next process, which compiles anew.
    return Path(tempfile.mkdtemp(prefix="fpl-"))


def _built_before(pattern: str) -> Path | None:
    for folder in cache_folders():
        if folder.is_absolute() and _is_private(folder):
            for library in sorted(folder.glob(pattern)):
                if _is_trusted(library):
                    return library
    return None


def build(source: Path = SOURCE) -> Path:
    """Compile all .cpp files of a folder into one library, unless that has been done before.

    Processes that start at once may all compile; each puts a complete file in place.

    Returns:
        The library.

    Raises:
        BuildError: There is no compiler, it fails, or there is no place for the library.
    """
    if os.name != "posix":
        raise BuildError("the CPU kernels are compiled on Linux and macOS only")
    try:
        return _build(source)
    except OSError as error:
        raise BuildError(f"the CPU kernels cannot be put in place: {error}") from error


def _build(source: Path) -> Path:
    try:
        compiler = find_compiler()
    except BuildError:
        # A machine without a compiler takes what one with the same vector instructions left in the shared home.
        if (built := _built_before(f"kernels-{source_key(source)}-*.so")) is None:
            raise
        return built
    name = library_name(compiler, source)
    if (built := _built_before(f"{name}-*.so")) is not None:
        return built
    folder = _writable_folder()
    print(f"compiling the fuzzy positive loss for this CPU, once, into {folder}: some seconds", file=sys.stderr)
    _sweep(folder)
    handle, temporary = tempfile.mkstemp(prefix=BUILDING, suffix=".so", dir=folder)
    os.close(handle)
    try:
        files = [str(path) for path in sorted(source.glob("[!.]*.cpp"))]
        done = _run([*compiler, *compile_flags(), "-o", temporary, *files])
        if done.returncode != 0:
            raise BuildError(f"{compiler[0]} failed: {_first_error(done.stderr)}")
        _sync(Path(temporary))
        library = folder / _whole_name(name, Path(temporary))
        Path(temporary).replace(library)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return library


def _sweep(folder: Path) -> None:
    """Remove what compilers left that were killed: never loaded, but there for good."""
    for path in folder.glob(f"{BUILDING}*"):
        if time.time() - path.stat().st_mtime > 2 * COMPILE_SECONDS:
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Put a library on the disk before it gets its name, with which it is loaded unseen. Others may not write it."""
    path.chmod(0o700)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def load(path: Path) -> ctypes.CDLL:
    """Load a library.

    Raises:
        BuildError: It cannot be loaded, for example from a folder that nothing may be run from.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"cannot load {path}: {error}") from error

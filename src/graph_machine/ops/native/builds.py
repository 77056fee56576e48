"""Building the C kernels, and keeping the build where no other user can write.

A kept build is code that will run in this process, so it is taken only from a folder and a file
that belong to this user and that no other user may write to, and only if it is whole: its last
bytes are a digest of the rest. Anything else is built again. It is loaded from a copy in memory:
what happens to the file later does not matter.
"""

import ctypes
import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from graph_machine.files import cache_folder

HERE = Path(__file__).parent
SOURCES = (
    *("attend.c", "feed_forward.c", "gather.c", "messages.c", "own_edges.c", "project.c"),
    *("refer.c", "sharpen.c"),
)
HEADERS = ("common.h", "factors.h", "lanes.h")
# Not -ffast-math: linked into a library it would change how the whole process treats tiny numbers.
FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-std=gnu11", "-ffp-contract=fast"),
    *("-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
DIGEST_BYTES = hashlib.sha256().digest_size


def build() -> bytes | None:
    """The built library, from the cache if it is there; None where it cannot be built."""
    # CC may hold a launcher and options, such as "ccache gcc".
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    compiler = shlex.split(found) if found else []
    if sys.platform != "linux" or not compiler:
        return None
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    texts = [(HERE / name).read_text() for name in (*HEADERS, *SOURCES)]
    key = "\n".join(
        [*texts, *compiler[1:], version.stdout, torch.__version__, _cpu_flags(), *FLAGS]
    )
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    folder = kernels_folder()
    kept = None if folder is None else read_kept(folder / name)
    return kept or _compile(compiler, None if folder is None else folder / name)


def kernels_folder() -> Path | None:
    """The folder of kept builds; None if another user may write to it."""
    folder = cache_folder() / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if _ours(folder.lstat()):
        return folder
    logging.getLogger("graph_machine").warning(
        "C kernels are built for this process only: others may write to the folder of kept "
        "builds. Take their permission (chmod go-w), or set GRAPH_MACHINE_CACHE: %s",
        folder,
    )
    return None


def _ours(found: os.stat_result) -> bool:
    """Belongs to this user, and no other user may write to it."""
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def read_kept(path: Path) -> bytes | None:
    """A kept build that is ours and whole; None for anything else, or nothing."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if not _ours(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    made, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return made if made and hashlib.sha256(made).digest() == digest else None


def _compile(compiler: list[str], keep: Path | None) -> bytes | None:
    """Build in a folder of our own, and keep it with its digest if there is a place for it."""
    with tempfile.TemporaryDirectory(dir=None if keep is None else keep.parent) as folder:
        out = Path(folder) / "kernels.so"
        files = [str(HERE / name) for name in SOURCES]
        command = [*compiler, *FLAGS, *files, "-o", str(out), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return None
        made = out.read_bytes()
        if keep is not None:
            out.write_bytes(made + hashlib.sha256(made).digest())
            out.chmod(0o600)
            os.replace(out, keep)  # whole or not at all, also when several processes build
    return made


def load(made: bytes) -> ctypes.CDLL:
    """The library out of memory: no file that could be cut while it is in use."""
    handle = os.memfd_create("graph-machine-kernels")
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(made)
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def _cpu_flags() -> str:
    """What -march=native depends on: a home folder may be shared by different machines."""
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")

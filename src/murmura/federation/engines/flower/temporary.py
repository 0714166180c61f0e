"""Short-lived folders of long-lived processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path


def temporary(opened: ExitStack) -> Path:
    """A folder in the system's temporary one, which nobody else may look into. It goes when ``opened`` is closed.

    A site may wait for weeks until it is asked, and many systems remove what was not read there for ten days. Their
    systemd-tmpfiles passes by a folder that is locked, with all that is in it.
    """
    folder = Path(tempfile.mkdtemp(prefix="murmura-"))  # with mode 0700
    opened.callback(shutil.rmtree, folder, ignore_errors=True)
    held = os.open(folder, os.O_RDONLY)
    opened.callback(os.close, held)
    with suppress(OSError):  # not every file system has locks
        fcntl.flock(held, fcntl.LOCK_EX)
    return folder

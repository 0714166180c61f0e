"""How a command ends that works for long: a signal that asks it to is taken like Ctrl-C."""

from __future__ import annotations

import signal
import threading


def end_as_by_hand() -> None:
    """Have SIGTERM, which batch systems, service managers and comparisons end a process with, do what Ctrl-C does: what
    is there is kept, and the command says how to go on. Nothing changes where somebody has decided otherwise."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)

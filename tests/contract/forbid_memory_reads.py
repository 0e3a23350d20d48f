"""Runs a script in which the kernel refuses process_vm_readv and process_vm_writev, as many containers do.

Usage: forbid_memory_reads.py SCRIPT ARGUMENT...
"""

from __future__ import annotations

import ctypes
import errno
import platform
import runpy
import struct
import sys

_NUMBERS = {"x86_64": (310, 311), "aarch64": (270, 271)}
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def forbid() -> None:
    read, write = _NUMBERS[platform.machine()]
    # Loads the number of the system call; both jumps lead to the refusal, everything else to the permission.
    program = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (_LOAD, 0, 0, 0),
            (_JUMP_EQUAL, 2, 0, read),
            (_JUMP_EQUAL, 1, 0, write),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        )
    )
    memory = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(memory)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.addressof(header), 0, 0)):
        if prctl(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    forbid()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

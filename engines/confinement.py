"""Confinement of child processes that read hostile files.

Linux only; `doctor` reports the measures that are missing.

The measures are independent, so a kernel or container that lacks one still gets the others: another
account when root, a network namespace, no_new_privs (prctl(2)), resource limits, Landlock
(landlock(7)) and a seccomp filter (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NOBODY_UID = 65534
MAX_OUTPUT_BYTES = 16 * 2**20
"""Output limit of a child: its stdout is a file of the parent, and it can open no other file for
writing."""
MAX_OPEN_FILES, MAX_TASKS = 256, 256

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_THREAD = 0x10000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_CLONE_NEWIPC = 0x08000000
_CAP_DAC_READ_SEARCH = 1 << 2

MeasureFailures = dict[str, str]
"""Reason why a measure is not in force, by name of the measure; empty if it is."""


_INHERITED, _PER_JOB = ("network", "privileges", "account", "limits"), ("files", "calls")


def drop_privileges() -> MeasureFailures:
    """Apply the measures that forked processes inherit. Needs a single thread.

    The process may still fork, and read files and memory of its account; see `confine_job`.
    """
    if sys.platform != "linux":
        return _list_missing(_INHERITED)
    # First: it needs rights that the later measures give up.
    network_failure = _attempt(_unshare_network)
    measures = {
        "network": network_failure,
        "privileges": _attempt(lambda: _prctl(_PR_SET_NO_NEW_PRIVS, 1)),
        "account": _attempt(_become_nobody),
    }
    # Only now: the kernel clears it when the account changes.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A job has the same account: without this it could write to the memory of this process.
    _prctl(_PR_SET_DUMPABLE, 0)
    has_own_account = not network_failure or not measures["account"]
    return measures | {"limits": _attempt(lambda: _set_limits(has_own_account))}


def confine_job(packages: Sequence[str]) -> MeasureFailures:
    """Apply the other measures to a process that was forked for one job.

    `packages` are the top-level packages that it may still import.
    """
    if sys.platform != "linux":
        return _list_missing(_PER_JOB)
    # Both are per process: fork clears the first, and /proc/self/fd of a process that is not
    # dumpable belongs to root and cannot be opened.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_DUMPABLE, 1)
    # In the job, because the rule for /proc/self means the process that adds it.
    return {
        "files": _attempt(lambda: _restrict_files(packages)),
        "calls": _attempt(_install_syscall_filter),
    }


def _list_missing(names: Sequence[str]) -> MeasureFailures:
    return dict.fromkeys(names, f"{sys.platform} has no such measure")


def limit_cpu_time(seconds: float) -> None:
    """Limit the CPU time from now on; SIGXCPU ends the process at the limit."""
    # RLIMIT_CPU counts from the start of the process.
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _attempt(measure: Callable[[], None]) -> str:
    try:
        measure()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _raise_on_error(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, *values: object) -> None:
    # prctl(2) requires the unused ones of its four further arguments to be zero.
    _raise_on_error(_libc().prctl(option, *values, *(ctypes.c_ulong(0),) * (4 - len(values))))


def _unshare_network() -> None:
    flags = _CLONE_NEWNET | _CLONE_NEWIPC
    # An ordinary account may leave the network only inside a user namespace of its own.
    _raise_on_error(_libc().unshare(flags if os.geteuid() == 0 else flags | _CLONE_NEWUSER))


def _become_nobody() -> None:
    """Switch from root to `nobody` and drop all capabilities.

    Only CAP_DAC_READ_SEARCH stays, and only if other accounts cannot read the libraries.

    That capability is harmless only under Landlock and without open_by_handle_at(2), so without
    Landlock the account stays root.
    """
    if os.geteuid() != 0:
        _set_capabilities(0)
        return
    needs_read_capability = not all(
        ancestor.stat().st_mode & stat.S_IXOTH
        for path in (sys.prefix, sys.base_prefix, __file__)
        for ancestor in Path(path).resolve().parents
    )
    if needs_read_capability and _landlock_version() < 1:
        _set_capabilities(0)
        raise OSError(
            errno.EPERM,
            f"stays root without capabilities: other accounts may not enter {sys.base_prefix}",
        )
    # Otherwise the change of the account clears every capability.
    _prctl(_PR_SET_KEEPCAPS, 1)
    # Groups first, user last: only root may change the others.
    os.setgroups([])
    os.setresgid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
    os.setresuid(NOBODY_UID, NOBODY_UID, NOBODY_UID)
    _set_capabilities(_CAP_DAC_READ_SEARCH if needs_read_capability else 0)


def _set_capabilities(capabilities: int) -> None:
    # capset(2), version 3: two 32-bit words each of effective, permitted and inheritable.
    header = ctypes.create_string_buffer(struct.pack("<Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(struct.pack("<6I", capabilities, capabilities, 0, 0, 0, 0))
    _raise_on_error(_libc().capset(header, data))


def _set_limits(has_own_account: bool) -> None:
    _lower_limit(resource.RLIMIT_FSIZE, MAX_OUTPUT_BYTES)
    _lower_limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    # RLIMIT_NPROC counts per account, so it must not be lowered where other processes share the
    # account.
    if has_own_account:
        _lower_limit(resource.RLIMIT_NPROC, MAX_TASKS)


def _lower_limit(resource_id: int, limit: int) -> None:
    hard = resource.getrlimit(resource_id)[1]
    # Python's RLIM_INFINITY is -1, which min() would choose.
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource_id, (limit, limit))


# Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file access rights by Landlock ABI version; later versions have as many as version
5."""
_SYSTEM_FOLDERS = (
    "/usr",
    "/lib",
    "/lib64",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/proc/self",
    "/proc/sys/vm",
)
_SYSTEM_FILES = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/dev/urandom",
    "/dev/zero",
)


def _landlock_version() -> int:
    return int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def _restrict_files(packages: Sequence[str]) -> None:
    """Deny all file access except reading the interpreter, its libraries and `packages`.

    TCP, and signals to other processes, are denied too.
    """
    version = _landlock_version()
    if version < 1:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock, or it is disabled")
    handled_rights = (1 << _FILE_RIGHTS_BY_ABI.get(version, 16)) - 1
    # TCP since ABI 4; abstract sockets and signals since ABI 6.
    fields = [handled_rights] + ([0b11] if version >= 4 else []) + ([0b11] if version >= 6 else [])
    attributes = ctypes.create_string_buffer(
        struct.pack(f"<{len(fields)}Q", *fields), 8 * len(fields)
    )
    ruleset = _raise_on_error(
        _libc().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    )
    try:
        # Imports list the folders of sys.path. Their files stay unreadable: one may hold a data
        # folder.
        # Path.is_dir raises where a parent is closed.
        folders = [path for path in sys.path if path and os.path.isdir(path)]  # noqa: PTH112
        _allow_paths(ruleset, folders, _READ_DIR)
        readable_folders = [
            *_SYSTEM_FOLDERS,
            sys.prefix,
            sys.base_prefix,
            *(path for path in folders if Path(path).name in ("site-packages", "dist-packages")),
            # Our own packages in other folders.
            *(str(Path(path, package)) for path in folders for package in packages),
        ]
        _allow_paths(ruleset, readable_folders, _READ_FILE | _READ_DIR)
        _allow_paths(ruleset, _SYSTEM_FILES, _READ_FILE)
        _allow_paths(ruleset, ("/dev/null",), _READ_FILE | _WRITE_FILE)
        _raise_on_error(_libc().syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow_paths(ruleset: int, paths: Iterable[str], rights: int) -> None:
    for path in paths:
        try:
            path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a missing path needs no rule
        try:
            # struct landlock_path_beneath_attr is packed: 12 bytes, not 16.
            rule = ctypes.create_string_buffer(struct.pack("<Qi", rights, path_fd), 12)
            _raise_on_error(_libc().syscall(_ADD_RULE, ruleset, 1, rule, 0))
        finally:
            os.close(path_fd)


# seccomp

_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_REFUSED_CALLS = {
    "x86_64": (
        41, 42, 43, 49, 50, 288,  # socket connect accept bind listen accept4
        57, 58, 59, 322,  # fork vfork execve execveat
        101, 310, 311, 312,  # ptrace process_vm_readv process_vm_writev kcmp
        135, 298,  # personality perf_event_open
        103, 155, 161, 165, 166, 167, 168,  # syslog pivot_root chroot mount umount2 swap*
        169, 170, 171, 179,  # reboot set*name quotactl
        172, 173, 175, 176, 313, 246, 320,  # iopl ioperm *_module kexec_load kexec_file_load
        321, 323,  # bpf userfaultfd
        248, 249, 250, 256, 279, 272, 308,  # keys *_pages unshare setns
        303, 304, 317, 319,  # *_handle_at seccomp memfd_create
    ),
    "aarch64": (
        198, 203, 202, 200, 201, 242, 221, 281, 117, 270, 271, 272, 92, 241, 116, 41, 51, 40, 39,
        224, 225, 142, 161, 162, 60, 105, 106, 273, 104, 294, 280, 282, 217, 218, 219, 238, 239,
        97, 268, 264, 265, 277, 279,
    ),
}  # fmt: skip
_REFUSED_CALLS_EVERYWHERE = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 442)
"""pidfd_send_signal, io_uring_*, mount calls, pidfd_open, pidfd_getfd, mount_setattr: the same
numbers on every machine since Linux 5.1."""
_ALLOW, _REFUSE, _MISSING = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _BpfProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _install_syscall_filter() -> None:
    """Refuse system calls that reading a file never needs, with EPERM.

    These concern sockets, other processes, mounts, keys and kernel interfaces. Threads stay
    allowed.
    """
    machine = platform.machine()
    if machine not in _REFUSED_CALLS:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    instructions = [
        (_LOAD, 0, 0, 4),  # load the architecture of the call
        (_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE),
        # Load its number; above 2^30 are x32 calls, which the list does not cover.
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, 0x40000000),
        (_RETURN, 0, 0, _REFUSE),
        # A filter cannot read clone3's flags. ENOSYS makes glibc fall back to clone.
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _MISSING),
        (_EQUAL, 0, 4, _CLONE[machine]),
        (_LOAD, 0, 0, 16),  # load the low half of its first argument, the flags
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for call in (*_REFUSED_CALLS[machine], *_REFUSED_CALLS_EVERYWHERE):
        instructions += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    code = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (*instructions, (_RETURN, 0, 0, _ALLOW))
    )
    code_buffer = ctypes.create_string_buffer(code, len(code))
    program = _BpfProgram(len(code) // 8, ctypes.addressof(code_buffer))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program))


@contextmanager
def pass_file(file: Path | None) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the descriptors to send with a job, or paths where memfd_create is missing.

    The content is copied into sealed memory (memfd_create(2)), which any account can open through
    /proc/self/fd and Landlock permits. A descriptor of the file itself could be reopened only with
    access to its folder.
    """
    if file is None:
        yield [], []
    elif sys.platform != "linux":
        yield [], [str(file)]
    else:
        descriptor = os.memfd_create("document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with file.open("rb") as source, open(descriptor, "wb", closefd=False) as copy:
                while block := source.read(2**20):
                    copy.write(block)
            fcntl.fcntl(
                descriptor,
                fcntl.F_ADD_SEALS,
                fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
            )
            yield [descriptor], []
        finally:
            os.close(descriptor)

"""Choose the account that runs Postgres, which refuses to run as root. No folder's mode is changed."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

Account = pwd.struct_passwd
OWN_ACCOUNT = "anabranch"


def find_server_account(preferred: str | None = None) -> Account | None:
    """Return the account that runs Postgres; None for the current one.

    As root: the preferred account, `postgres`, a system account of ours, else `nobody`.
    """
    if os.geteuid() != 0:
        return None
    return (
        _find_account((preferred or "", "postgres", OWN_ACCOUNT))
        or _create_account()
        or _find_account(("nobody",))
    )


def _find_account(names: Sequence[str]) -> Account | None:
    accounts_by_name = {account.pw_name: account for account in pwd.getpwall()}
    return next((accounts_by_name[name] for name in names if name in accounts_by_name), None)


def _create_account() -> Account | None:
    # initdb looks its uid up in the account database; a bare uid fails.
    if not shutil.which("useradd"):
        return None
    subprocess.run(
        ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", OWN_ACCOUNT],
        capture_output=True,
        check=False,
    )
    return _find_account((OWN_ACCOUNT,))


def can_enter(folder: Path, account: Account) -> bool:
    """Whether the account can traverse every folder down to this one."""
    return all(_can_pass(step.stat(), account) for step in (folder, *folder.parents))


def _can_pass(status: os.stat_result, account: Account) -> bool:
    if status.st_uid == account.pw_uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.pw_gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)

"""A quick look at the tracking store, before the first trial and for ``doctor``.

Never imports mlflow (seconds) and never creates or changes anything.
"""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from tasks.adapters.mlflow_store.store_uri import checked_uri, redacted, sqlite_path
from tasks.domain.errors import ConfigError

_TIMEOUT_S = 2.0


def check_tracking(uri: str) -> tuple[bool, str]:
    """Tell whether a run could be recorded at this address now, and say in a sentence why."""
    try:
        address = checked_uri(uri)
    except ConfigError as error:
        return False, str(error)
    path = sqlite_path(address)
    return _check_server(address) if path is None else _check_file(path)


def _check_server(address: str) -> tuple[bool, str]:
    shown = redacted(address)
    try:
        reply = httpx.get(f"{address}/version", timeout=_TIMEOUT_S)
    except httpx.HTTPError as error:
        return False, f"no answer from the MLflow server {shown} in {_TIMEOUT_S:.0f} s: {error}"
    if reply.status_code == 200 and re.match(r"\d+\.\d+", reply.text):
        return True, f"MLflow {reply.text.strip()} answers at {shown}"
    return False, (
        f"{shown}/version answered HTTP {reply.status_code}, not an MLflow version; "
        "check the address, the credentials and the server's --allowed-hosts"
    )


def _check_file(path: Path) -> tuple[bool, str]:
    if not path.exists():
        return _check_new_file(path)
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return False, f"the store {path} or its folder is not writable; change its owner"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=0.5)) as db:
            db.execute("BEGIN IMMEDIATE")
            tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'runs'").fetchall()
            db.rollback()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return True, f"the store {path} is there and busy; recording waits for it"
        return False, f"the store {path} cannot be opened: {error}"
    except sqlite3.DatabaseError as error:
        return False, f"{path} is not an sqlite database ({error}); name another file"
    state = "is writable" if tables else "is empty and will be initialised"
    return True, f"the store {path} {state}"


def _check_new_file(path: Path) -> tuple[bool, str]:
    folder = next(parent for parent in path.parents if parent.exists())
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return True, f"the store {path} will be created"
    return False, f"the store {path} cannot be created: {folder} is not a writable folder"

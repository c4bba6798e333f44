"""Tracking addresses: which kinds are supported, the default, and how to print one safely.

Imports no mlflow, so that ``doctor`` and the CLI stay quick.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from tasks.domain.errors import ConfigError

_SQLITE = "sqlite:///"


def default_tracking_uri(home: Path) -> str:
    """Return the sqlite store under the product's home, absolute."""
    return f"{_SQLITE}{home.resolve() / 'mlflow' / 'mlflow.db'}"


def checked_uri(uri: str) -> str:
    """Return the address in one spelling: sqlite paths absolute, no trailing slash.

    Raises:
        ConfigError: TRACKING_STORE_UNSUPPORTED for anything but ``sqlite:///`` and http(s).
    """
    scheme = urlsplit(uri).scheme.lower()
    if scheme in ("http", "https") and urlsplit(uri).netloc:
        return uri.rstrip("/")
    path = sqlite_path(uri)
    if path is not None:
        return f"{_SQLITE}{path}"
    seen = f"tracking URI {redacted(uri)!r}"
    if scheme in ("", "file"):
        advice = (
            "is a folder, which MLflow >= 3.13 refuses to write; use sqlite:///FILE or the http "
            "address of a server; `mlflow migrate-filestore` moves existing runs"
        )
    elif scheme.startswith("sqlite"):
        advice = "names no database file; use sqlite:///FILE"
    else:
        advice = (
            "needs sqlite:///FILE or an http(s) address; put `mlflow server "
            "--backend-store-uri ...` in front of the database and name that server"
        )
    raise ConfigError(f"{seen} {advice}", code="TRACKING_STORE_UNSUPPORTED")


def sqlite_path(uri: str) -> Path | None:
    """Return the absolute database file of a ``sqlite:///`` address, None for other addresses."""
    if not uri.lower().startswith(_SQLITE):
        return None
    name = unquote(uri[len(_SQLITE) :].partition("?")[0])
    return None if name in ("", ":memory:") else Path(name).absolute()


def redacted(uri: str) -> str:
    """Return the address without user name and password, for messages and logs."""
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"***@{host}", parts.path, parts.query, parts.fragment))

"""Open-file limit: how many connections this process can hold, checked before any is opened."""

import resource

RESERVED_DESCRIPTORS = 64
TOO_LOW = "RLIMIT_NOFILE_TOO_LOW"


def needed_descriptors(concurrency: int) -> int:
    """Return descriptors for ``concurrency`` requests: 2 * concurrency + 64.

    One for each open connection, one for its successor while the old one closes, and 64 for logs,
    timers, name look-ups and the interpreter.
    """
    return 2 * concurrency + RESERVED_DESCRIPTORS


def descriptor_shortfall(*, concurrency: int, soft: int) -> tuple[str, str] | None:
    """Return (RLIMIT_NOFILE_TOO_LOW, sentence) where ``soft`` does not suffice, else None."""
    needed = needed_descriptors(concurrency)
    if soft >= needed:
        return None
    return (
        TOO_LOW,
        f"the open-file limit is soft={soft}, {concurrency} requests in flight need "
        f"needed_at_least={needed}; raise it with `ulimit -n {needed}` or LimitNOFILE=",
    )


def raised_soft_limit(concurrency: int) -> int:
    """Lift this process's soft limit as far as needed and allowed; return the limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_descriptors(concurrency)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft

"""What an arm's first engine said of itself, kept beside the arm's measurements.

A study that is run again recalls its measurements and starts no engine, but its record must not
lose how that engine was started and how long that took.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tasks.adapters.evidence_store import write_whole
from tasks.domain.codec import RecordFormatError, from_text, to_text
from tasks.domain.steps import Deployed
from tasks.domain.trial import Trial

ENGINE = "engine.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNotes:
    """Seconds of the start, and the log's facts as (name, value)."""

    startup_s: float | None
    facts: tuple[tuple[str, str], ...]


def keep_engine_notes(trial_folder: Path, deployed: Deployed) -> None:
    """Keep the notes of the arm's first engine; those of a later one change nothing.

    Raises:
        StorageError: if they cannot be written.
    """
    if _notes(trial_folder) is None:
        notes = EngineNotes(startup_s=deployed.startup_s, facts=deployed.facts)
        write_whole(trial_folder / ENGINE, to_text(notes, indent=1))


def with_engine_notes(trials: tuple[Trial, ...], folder: Path) -> tuple[Trial, ...]:
    """Return the trials with the kept notes of their engines."""
    found = ((trial, _notes(folder / "trials" / trial.arm.name)) for trial in trials)
    return tuple(
        trial
        if notes is None
        else replace(trial, startup_s=notes.startup_s, engine_facts=notes.facts)
        for trial, notes in found
    )


def _notes(trial_folder: Path) -> EngineNotes | None:
    try:
        return from_text(EngineNotes, (trial_folder / ENGINE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecordFormatError):
        return None

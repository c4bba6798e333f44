"""What is known already: a run's own outcomes, and those that every run of the home shares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flows.environment import Home
from tasks.adapters.evidence_store import OutcomeStore
from tasks.domain.steps import Evaluated, Outcome, StoredOutcome, TextProbed


@dataclass(frozen=True, slots=True, eq=False)
class KnownOutcomes(Mapping[str, Outcome]):
    """Outcomes by step key. Accuracy belongs to a checkpoint, not to a study: it is shared."""

    own: OutcomeStore[StoredOutcome]
    shared: OutcomeStore[StoredOutcome]

    def put(self, key: str, stored: StoredOutcome) -> None:
        """Keep an outcome where the next run that may use it looks for it.

        Raises:
            StorageError: if it cannot be written.
        """
        belongs_to_all = isinstance(stored.outcome, Evaluated | TextProbed)
        (self.shared if belongs_to_all else self.own).put(key, stored)

    def __getitem__(self, key: str) -> Outcome:
        """Return the outcome of a key; KeyError where it is not known."""
        for store in (self.own, self.shared):
            if key in store:
                return store[key].outcome
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        """Yield every key once."""
        yield from dict.fromkeys([*self.own, *self.shared])

    def __len__(self) -> int:
        """Return the number of keys."""
        return sum(1 for _ in self)


def shared_outcomes(place: Home) -> OutcomeStore[StoredOutcome]:
    """Return the outcomes that belong to checkpoints."""
    return OutcomeStore(place.root / "checkpoint-outcomes", StoredOutcome)

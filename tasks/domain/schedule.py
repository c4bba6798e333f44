"""A request schedule: absolute send times and exact token counts, seeded and hashed."""

import hashlib
import json
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRequest:
    """One request to send ``due_s`` seconds after the schedule's start.

    prefix_blocks: ids of reusable prefix blocks (``prefix_block_tokens`` tokens each) that the
    prompt starts with; the rest of the prompt is fresh.
    """

    index: int
    due_s: float
    prompt_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSchedule:
    """Requests sorted by due time, offered for ``duration_s`` seconds.

    seed draws the prompts' tokens together with the run's salt, so a repeat sends other text of
    the same shape. offered_req_s is requests / duration_s. notes are codes with a sentence, for
    example ("TRACE_CYCLED", "…"); they are not part of the hash. whole_sha256: where this is only
    the beginning of another schedule, that one's hash.
    """

    requests: tuple[ScheduledRequest, ...]
    duration_s: float
    seed: int
    prefix_block_tokens: int = 512
    notes: tuple[tuple[str, str], ...] = ()
    whole_sha256: str | None = None

    def beginning(self, seconds: float) -> "RequestSchedule":
        """Return the requests due in the first seconds, as a part of this schedule."""
        due = tuple(request for request in self.requests if request.due_s < seconds)
        return replace(
            self, requests=due, duration_s=seconds, whole_sha256=self.whole_sha256 or self.sha256
        )

    @property
    def offered_req_s(self) -> float:
        """Offered rate in requests per second over the whole window."""
        return len(self.requests) / self.duration_s

    @property
    def sha256(self) -> str:
        """Hash of everything that is sent, prompts' text apart; a beginning has its whole's."""
        if self.whole_sha256 is not None:
            return self.whole_sha256
        rows = [
            [r.due_s, r.prompt_tokens, r.output_tokens, list(r.prefix_blocks)]
            for r in self.requests
        ]
        text = json.dumps([rows, self.duration_s, self.seed, self.prefix_block_tokens])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def reuse_frac(self) -> float:
        """Share of prompt tokens (0..1) that an ideal prefix cache would hold from this schedule.

        Counts leading blocks up to the first that no earlier request held: a prefix cache cannot
        jump over a miss. The engine may find fewer.
        """
        seen: set[int] = set()
        reused = 0
        for request in self.requests:
            hits = 0
            for block in request.prefix_blocks:
                if block not in seen:
                    break
                hits += 1
            reused += min(hits * self.prefix_block_tokens, request.prompt_tokens)
            seen.update(request.prefix_blocks)
        return reused / sum(request.prompt_tokens for request in self.requests)

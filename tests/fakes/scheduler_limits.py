"""What a vLLM scheduler is to the live knobs: its two limits and its running requests."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Limits:
    """The attributes that the knobs move, and the running requests."""

    max_num_running_reqs: int = 16
    max_num_scheduled_tokens: int = 512
    running: list[int] = field(default_factory=list)

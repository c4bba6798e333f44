"""Prompt tokens of a schedule: exact counts, reuse where the trace has it, fresh text elsewhere.

Draws token ids from a hash of seed, salt and block id, so a run can be made again bit for bit and
another salt gives other text. Knows no tokenizer and no file.
"""

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tasks.domain.errors import ConfigError
from tasks.domain.schedule import ScheduledRequest

BYTES_PER_DRAW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVocabulary:
    """Token ids that prompts may be drawn from: ordinary text tokens, no special ones.

    Raises:
        ConfigError: for fewer than two ids or a negative one.
    """

    token_ids: tuple[int, ...]
    _array: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the ids and keep them once more as an array, which draws faster."""
        if len(self.token_ids) < 2 or min(self.token_ids) < 0:
            raise ConfigError(
                f"a prompt vocabulary of {len(self.token_ids)} ids cannot make fresh prompts; "
                "give at least two token ids, none of them negative"
            )
        object.__setattr__(self, "_array", np.asarray(self.token_ids, dtype=np.int64))

    def drawn(self, key: tuple[int | str, ...], count: int) -> list[int]:
        """Return ``count`` ids that depend on the key alone.

        SHAKE-128 of the key as JSON, read as little-endian 32-bit words, modulo the vocabulary's
        size; the bias of the modulo is below size / 2**32.
        """
        digest = hashlib.shake_128(json.dumps(key).encode()).digest(count * BYTES_PER_DRAW)
        words = np.frombuffer(digest, dtype="<u4").astype(np.int64)
        ids: list[int] = self._array[words % len(self._array)].tolist()
        return ids


def prompt_token_ids(
    request: ScheduledRequest,
    *,
    vocabulary: PromptVocabulary,
    seed: int,
    salt: str,
    prefix_block_tokens: int,
) -> list[int]:
    """Return exactly ``request.prompt_tokens`` ids.

    The first len(prefix_blocks) * prefix_block_tokens of them, cut at the prompt's length, depend
    on (seed, salt, block id) only, so equal blocks are equal text within a run and other text
    under another salt. The rest depends on the request's index and is shared with no other.
    """
    ids: list[int] = []
    for block in request.prefix_blocks:
        room = request.prompt_tokens - len(ids)
        if room <= 0:
            break
        ids += vocabulary.drawn((seed, salt, "block", block), prefix_block_tokens)[:room]
    rest = request.prompt_tokens - len(ids)
    if rest > 0:
        ids += vocabulary.drawn((seed, salt, "fresh", request.index), rest)
    return ids

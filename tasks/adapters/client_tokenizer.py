"""A model's tokenizer on the client's side: counts and decodes, to check the server's counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from tasks.domain.errors import ConfigError


@dataclass(slots=True)
class ClientTokenizer:
    """The tokenizer.json of a checkpoint's folder; loaded when first used, so that it pickles.

    Raises:
        ConfigError: on use, where the file is missing or is no tokenizer.
    """

    folder: Path
    _loaded: Tokenizer | None = field(default=None, repr=False)

    def count(self, text: str, *, special: bool) -> int:
        """Return the tokens of a text; ``special`` adds those that a prompt begins or ends with."""
        return len(self._tokenizer().encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        text: str = self._tokenizer().decode(list(ids), skip_special_tokens=False)
        return text

    def __getstate__(self) -> Path:
        """Keep the folder alone: a worker process loads the file again."""
        return self.folder

    def __setstate__(self, folder: Path) -> None:
        """Take the folder."""
        self.folder, self._loaded = folder, None

    def _tokenizer(self) -> Tokenizer:
        if self._loaded is None:
            path = self.folder / "tokenizer.json"
            try:
                self._loaded = Tokenizer.from_file(str(path))
            except Exception as error:  # the library raises Exception itself, whatever is wrong
                raise ConfigError(
                    f"{path} cannot be read as a tokenizer: {error}; give the folder of the served "
                    "model with its tokenizer.json"
                ) from error
        return self._loaded

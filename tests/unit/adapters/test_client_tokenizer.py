"""The client's tokenizer counts, decodes, travels to worker processes, and names a bad folder."""

import pickle
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tasks.adapters.client_tokenizer import ClientTokenizer
from tasks.domain.errors import ConfigError


def folder_with_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of whole words that begins every prompt with a special token."""
    words = {"<s>": 0, "?": 1, "one": 2, "two": 3}
    made = Tokenizer(WordLevel(words, unk_token="?"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_prompts_count_their_special_tokens_and_answers_do_not(tmp_path: Path) -> None:
    tokenizer = ClientTokenizer(folder_with_tokenizer(tmp_path))
    assert tokenizer.count("one two two", special=True) == 4
    assert tokenizer.count("one two two", special=False) == 3
    assert tokenizer.decode([2, 3]) == "one two"


def test_a_copy_in_another_process_loads_the_file_itself(tmp_path: Path) -> None:
    tokenizer = ClientTokenizer(folder_with_tokenizer(tmp_path))
    assert tokenizer.count("one", special=False) == 1
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.folder == tmp_path
    assert copy.count("one two", special=False) == 2


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json cannot be read"):
        ClientTokenizer(tmp_path).count("one", special=False)

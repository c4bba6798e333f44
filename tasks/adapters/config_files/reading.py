"""Reads a YAML file into a strict pydantic model, or says in one error what is wrong with it.

Knows YAML and pydantic; knows nothing of what the values mean.
"""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from tasks.domain.errors import ConfigError

ModelT = TypeVar("ModelT", bound=BaseModel)


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys, NaN, infinity and silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class _UniqueKeyLoader(yaml.SafeLoader):
    """A safe loader that refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        """Build the mapping; a repeated key is an error with its place."""
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> object:
    """Return the file's one document.

    Raises:
        ConfigError: if the file is missing, unreadable, not UTF-8 or not YAML; names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; expected a UTF-8 YAML file") from error
    return parse_yaml(text, source=str(path))


def parse_yaml(text: str, *, source: str) -> object:
    """Return the text's one document; ``source`` is what errors name.

    Raises:
        ConfigError: if it is not YAML; names the line.
    """
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown place"
        raise ConfigError(
            f"{source}: not valid YAML at {place}: {error.problem}; fix the syntax there"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {error}") from error


def read_model(path: Path, model: type[ModelT]) -> ModelT:
    """Return the file as ``model``.

    Raises:
        ConfigError: names the file, the path of every wrong key, its value and what is allowed.
    """
    return _validated(read_yaml(path), model, source=str(path))


def parse_model(text: str, model: type[ModelT], *, source: str) -> ModelT:
    """Return the text as ``model``; ``source`` is what errors name.

    Raises:
        ConfigError: as ``read_model``.
    """
    return _validated(parse_yaml(text, source=source), model, source=source)


def _validated(document: object, model: type[ModelT], *, source: str) -> ModelT:
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise ConfigError(f"{source}: expected a mapping of keys at the top, found {found}")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        lines = [_sentence(model, detail) for detail in error.errors(include_url=False)]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from error


def _sentence(model: type[BaseModel], detail: ErrorDetails) -> str:
    key = ".".join(str(part) for part in detail["loc"]) or "(top)"
    if detail["type"] == "extra_forbidden":
        allowed = ", ".join(_allowed_keys(model, detail["loc"]))
        return f"{key}: unknown key (value {detail['input']!r}); allowed here: {allowed}"
    if detail["type"] == "missing":
        return f"{key}: this key is required and missing"
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{key}: {message}, found {detail['input']!r}"


def _allowed_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the model that holds ``location``'s last part."""
    current: type[BaseModel] = model
    for part in location[:-1]:
        if not isinstance(part, str) or part not in current.model_fields:
            continue
        nested = _nested_model(current.model_fields[part].annotation)
        if nested is not None:
            current = nested
    return list(current.model_fields)


def _nested_model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        nested = _nested_model(argument)
        if nested is not None:
            return nested
    return None

"""Writes plain documents as YAML."""

from collections.abc import Sequence

import yaml


def yaml_documents(documents: Sequence[object], *, comments: Sequence[str] = ()) -> str:
    """Return documents as one YAML text, keys in their given order, comments before the first."""
    head = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    bodies = [
        yaml.dump(document, Dumper=_NoAliases, sort_keys=False, allow_unicode=True, width=100)
        for document in documents
    ]
    return head + "---\n".join(bodies)


class _NoAliases(yaml.SafeDumper):
    """Writes a mapping that is used twice twice: anchors read badly in a manifest."""

    def ignore_aliases(self, data: object) -> bool:
        """Never make an alias."""
        return True

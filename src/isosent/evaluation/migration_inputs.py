"""What `migrate` compares, from an index or from files: both sides, the texts, and queries with their answers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.evaluation.migration import Answers, Side
from isosent.io.pairs import SPLIT_COLUMNS, TEST, take_part
from isosent.io.tables import open_table
from isosent.io.texts import TextSource
from isosent.io.vector_source import VectorSource
from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.search.inputs import Rows
from isosent.search.rows import ID, TEXT


class MigrationInputs(NamedTuple):
    """Both sides, the texts that both know, and the vectors that the old model need not make."""

    old: Side
    new: Side
    texts: list[str]
    stored: VectorSource | None = None

    @classmethod
    def of_index(cls, index: Index, new: Side) -> MigrationInputs:
        """The model of an index, or its vectors if it has none, and its texts."""
        folder = index.folder
        if TEXT not in index.schema.names:
            raise InputError(
                f"migrate: {folder} holds no texts. Name files of the same texts instead, in one order: isosent "
                f"transform OLD_VECTORS -m {folder}/model -o OLD, which names the space of the index, then isosent "
                "migrate OLD NEW TEXTS -o map."
            )
        if (groups := index.model.groups) is not None:
            raise InputError(f"migrate: {folder} has a map for each {groups.column}. Make an index with the new model.")
        if n_mapped := index.stats().n_mapped:
            raise InputError(f"migrate: {folder} still has {n_mapped} mapped rows. Replace them: isosent index add.")
        _require_same_ids(index, new)
        rows = Rows.of_index(index)
        assert rows.vectors is not None
        if isinstance(index.model.encoder, PrecomputedVectors):
            return cls(rows.vectors, new, rows.texts or [])
        return cls(index.model, new, rows.texts or [], rows.vectors)

    @classmethod
    def of_texts(cls, old: Side, new: Side, texts: TextSource) -> MigrationInputs:
        """Two models, or the vectors that they gave the texts of a file."""
        _require_same_ids(texts, old, new)
        return cls(old, new, texts.texts())


def _require_same_ids(*inputs: Index | TextSource | Side) -> None:
    """Refuse tables and an index whose ids differ."""
    named = [(name, ids) for name, ids in map(_ids_of, inputs) if ids is not None]
    for name, ids in named[1:]:
        first, expected = named[0]
        if ids != expected:
            raise InputError(f"{name}: its ids are not those of {first}, in this order. Write both in one order.")


def _ids_of(side: Index | TextSource | Side) -> tuple[str, list[str] | None]:
    if isinstance(side, Index):
        return str(side.folder), [str(name) for batch in side.batches() for name in batch.column(ID).to_pylist()]
    if isinstance(side, SentenceEncoder) or not (side.is_column if side.kind == "vectors" else side.is_table):
        return "", None
    with open_table(side.name) as table:
        return side.name, [str(value) for _, (value,) in table.rows(ID)] if ID in table.columns else None


def read_answers(path: str) -> Answers:
    """Queries and the texts that answer them: the first two columns of a table."""
    wanted = "Give a table of two columns, with a header: a query, and the text that answers it."
    if not TextSource(path).is_table:
        raise InputError(f"{path} is not a table. {wanted}")
    with open_table(path) as table:
        if len(table.columns) < 2:
            raise InputError(f"{path} has one column, {table.columns[0]}. {wanted}")
        columns = [name for name in table.columns if name.lower() not in SPLIT_COLUMNS][:2]
        take_part(table, TEST, columns)
        answers = [
            (table.text(number, columns[0], query), table.text(number, columns[1], answer))
            for number, (query, answer) in table.rows(*columns)
        ]
    if not answers:
        raise InputError(f"{path} holds no queries. {wanted}")
    return answers


def absolute_location(reference: str) -> str:
    """A reference that holds in other folders, too."""
    scheme, colon, rest = reference.partition(":") if not Path(reference).is_dir() else ("", "", reference)
    location, mark, options = rest.partition("?")
    path = Path(location)
    return f"{scheme}{colon}{path.absolute()}{mark}{options}" if location and path.exists() else reference

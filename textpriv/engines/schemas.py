"""What a schema holds beside names and types: anything that somebody has put there, of which no release has a part.

Types of Arrow only; what a package of its own writes into the metadata of a file is the matter of its format or engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["types_alone", "with_children"]


def types_alone(schema: pa.Schema) -> pa.Schema:
    """Return a schema without metadata, at whatever depth; what tells a type that Arrow does not know stays."""
    import pyarrow as pa

    return pa.schema([_type_alone(field) for field in schema])


def _type_alone(field: pa.Field) -> pa.Field:
    told = {k: v for k, v in (field.metadata or {}).items() if k.startswith(b"ARROW:extension:")}
    return field.with_type(with_children(field.type, _type_alone)).with_metadata(told or None)


def with_children(kind: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """Return a nested type with other fields in it; any other type as it is.

    Parameters
    ----------
    kind : pyarrow.DataType
    change : callable
        From a field one level below to the one in its place.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return pa.struct([change(kind.field(n)) for n in range(kind.num_fields)])
    if types.is_union(kind):
        fields = [change(kind.field(n)) for n in range(kind.num_fields)]
        return pa.union(fields, kind.mode, kind.type_codes)
    if types.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(change(kind.value_field), kind.list_size)
    for name in ("list", "large_list", "list_view", "large_list_view"):
        if getattr(types, f"is_{name}", _never)(kind):
            return getattr(pa, "list_" if name == "list" else name)(change(kind.value_field))
    return kind


def _never(kind: pa.DataType) -> bool:
    """Of types that an older Arrow does not have."""
    return False

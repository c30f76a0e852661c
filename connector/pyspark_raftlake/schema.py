"""The columns: those that the source yields and those that the sink takes. Both are the Spark Kafka connector's.

Columns that the sink does not know are ignored, as they are there, so a stream that was read can be written back as it is. Its
`timestamp` is among them: a record's time is the time of its append. So is a misspelt `key`.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_raftlake.errors import InvalidSchema, missing_value
from raftlake.errors import ConfigError

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_SOURCE_FIELDS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
#: The sink's columns and the types that each may have.
_SINK_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
}


def source_schema(*, include_headers: bool) -> StructType:
    return StructType([*_SOURCE_FIELDS, StructField("headers", HEADERS)] if include_headers else _SOURCE_FIELDS)


def require_source_schema(schema: StructType, *, include_headers: bool) -> None:
    """InvalidSchema for a schema that the user gave: the source has a fixed one."""
    expected = source_schema(include_headers=include_headers)
    if _without_nullability(schema) != _without_nullability(expected):
        raise InvalidSchema(
            "raftlake source has a fixed schema and cannot be set with a custom one: "
            f"got {schema.simpleString()}, the source has {expected.simpleString()}"
        )


def sink_columns(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns of `schema` that the sink reads. InvalidSchema when one is missing or has a type that cannot be written;
    ConfigError when neither a column nor the option names the topic."""
    found = {field.name: field.dataType for field in schema.fields if field.name in _SINK_TYPES}
    if "value" not in found:
        raise missing_value(schema.names, _SINK_TYPES)
    if topic is None and "topic" not in found:
        raise ConfigError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    for name, data_type in found.items():
        allowed = _SINK_TYPES[name]
        if not any(_without_nullability(data_type) == _without_nullability(other) for other in allowed):
            expected = " or ".join(other.simpleString() for other in allowed)
            raise InvalidSchema(f"{name} attribute unsupported type {data_type.simpleString()}. {name} must be a(n) {expected}")
    return tuple(name for name in _SINK_TYPES if name in found and not (name == "topic" and topic is not None))


def _without_nullability(data_type: DataType) -> object:
    """A comparable shape: names and types, no nullability and no metadata."""
    match data_type:
        case StructType():
            return tuple((field.name, _without_nullability(field.dataType)) for field in data_type.fields)
        case ArrayType():
            return ("array", _without_nullability(data_type.elementType))
        case _:
            return type(data_type)

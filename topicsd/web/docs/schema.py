"""JSON Schema of the message types, from what msgspec knows of them.

msgspec's own generator cannot show raw payloads that have a default, and knows nothing of
bounds that handlers check. Every type becomes one component, found by its name.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from topicsd.web.docs.fields import ANY_OF, OVERLAYS, REQUIRED, TEXTS, U64
from topicsd.web.docs.shapes import TopicConfigEcho

_REFERENCE = "#/components/schemas/"
# Replies always have all fields of these types, whatever the type's defaults.
# What a topic never has; the door of streams tells it in its own words.
_INTERNAL = frozenset({"stream"})
_COMPLETE = frozenset({TopicConfigEcho})


class Components:
    """The schemas of all types asked for so far, by name."""

    def __init__(self) -> None:
        self.schemas: dict[str, dict[str, Any]] = {}

    def reference(self, kind: type) -> dict[str, Any]:
        """A reference to the schema of a Struct, which is made when it is new."""
        return self._of(inspect.type_info(kind))

    def _of(self, info: inspect.Type) -> dict[str, Any]:
        match info:
            case inspect.StructType():
                return self._struct(info)
            case inspect.IntType():
                return dict(U64)
            case inspect.FloatType():
                return {"type": "number"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.StrType():
                return {"type": "string"}
            case inspect.NoneType():
                return {"type": "null"}
            case inspect.LiteralType():
                return {"enum": list(info.values)}
            case inspect.ListType():
                return {"type": "array", "items": self._of(info.item_type)}
            case inspect.DictType():
                return {"type": "object", "additionalProperties": self._of(info.value_type)}
            case inspect.UnionType():
                return {"anyOf": [self._of(part) for part in info.types]}
            case inspect.AnyType() | inspect.RawType():
                return {}
        raise TypeError(f"no schema for {info}")

    def _struct(self, info: inspect.StructType) -> dict[str, Any]:
        name = info.cls.__name__
        if name not in self.schemas:
            schema: dict[str, Any] = {"type": "object", "description": info.cls.__doc__ or ""}
            self.schemas[name] = schema
            fields = [field for field in info.fields if field.name not in _INTERNAL]
            schema["properties"] = {field.encode_name: self._field(name, field) for field in fields}
            schema["required"] = [
                field.encode_name
                for field in fields
                if field.required or field.name in REQUIRED.get(name, ()) or info.cls in _COMPLETE
            ]
            if name in ANY_OF:
                schema["anyOf"] = [{"required": [field]} for field in ANY_OF[name]]
        return {"$ref": _REFERENCE + name}

    def _field(self, owner: str, field: inspect.Field) -> dict[str, Any]:
        overlay = OVERLAYS.get(f"{owner}.{field.encode_name}", {})
        schema = self._of(field.type)
        if "type" in overlay or "$ref" in overlay:
            schema = {}
        schema |= overlay
        schema.setdefault("description", TEXTS.get(field.encode_name, ""))
        if field.default is not msgspec.NODEFAULT and not isinstance(field.default, msgspec.Raw):
            schema["default"] = field.default
        return schema

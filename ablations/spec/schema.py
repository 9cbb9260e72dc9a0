"""JSON Schemas (draft 2020-12) of spec files and files of claims, with which editors complete and check what
is written."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ablations.spec.contrasts import ClaimFile
from ablations.spec.experiment import SECTIONS, Experiment, Overrides
from lightning_modules.config import RunSettings
from lightning_modules.plugins import NAME, TEXT

_OF_PLUGIN: JsonSchemaValue = {"type": "string", "pattern": f"^{NAME}$"}
_PLUGIN: JsonSchemaValue = {"type": "object", "properties": {"kind": _OF_PLUGIN}, "required": ["kind"]}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec file, without references to other files.

    A spec may write one part of a section for all arms and another part for one arm. So the schema requires
    no setting of a section, and `load.load` checks the merged sections.
    """
    spec = Experiment.model_json_schema(schema_generator=_AsWritten)
    run = RunSettings.model_json_schema(schema_generator=_AsWritten)
    for settings in run["$defs"].values():
        settings.pop("required", None)
    for properties in (spec["properties"], spec["$defs"][Overrides.__name__]["properties"]):
        for name in SECTIONS:
            properties[name] = _part(run["properties"][name], description=properties[name]["description"])
    spec["properties"]["arms"]["additionalProperties"] = False
    return {"$schema": _AsWritten.schema_dialect, **spec, "$defs": {**spec["$defs"], **run["$defs"]}}


def claims_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of claims. It does not compare the needs of a claim with its effects:
    `claims.load` does."""
    return {"$schema": _AsWritten.schema_dialect, **ClaimFile.model_json_schema(schema_generator=_AsWritten)}


def _part(section: dict[str, Any], *, description: str) -> dict[str, Any]:
    """Return the schema of a section in which every setting may be left out, even its kind. Without a kind a
    section may fit several kinds, so the schema is an `anyOf`."""
    kinds = section.get("oneOf") or section.get("anyOf") or [{"$ref": section["$ref"]}]
    return {"description": description, "anyOf": kinds}


class _AsWritten(GenerateJsonSchema):
    """Generator of schemas that also allow short forms, which validators expand before pydantic checks
    them."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow one file in place of a list of files, and the name of a kind in place of a measure of that
        kind."""
        full = super().function_before_schema(schema)
        if "items" in full:
            return {"anyOf": [full["items"], full]}
        if "discriminator" not in full:  # this validator only words the error
            return full
        named = [_OF_PLUGIN] if _PLUGIN in full["oneOf"] else []
        return {"anyOf": [{"enum": list(full["discriminator"]["mapping"])}, *named, full]}

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow the kind of a plugin, whose settings are unknown here, and the file of a user's own task."""
        full = super().function_wrap_schema(schema)
        if "oneOf" not in full:
            return {"anyOf": [full, {"type": "string", "pattern": f"^{TEXT}$"}]}
        return {**full, "oneOf": [*full["oneOf"], _PLUGIN]}

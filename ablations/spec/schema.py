"""JSON Schemas of spec files and files of claims (draft 2020-12), for editors that complete and check while one
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
    """Return the form of a spec file as one JSON Schema that refers to nothing outside itself.

    Sections may be written in part, above all arms or in one of them, so nothing in a section is required here:
    `load.load` checks the parts together.
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
    """Return the form of a file of claims as a JSON Schema; `claims.load` checks that a claim needs what its
    effects read."""
    return {"$schema": _AsWritten.schema_dialect, **ClaimFile.model_json_schema(schema_generator=_AsWritten)}


def _part(section: dict[str, Any], *, description: str) -> dict[str, Any]:
    """Return a section of which anything may be left out, its kind too; so it may fit several kinds at once."""
    kinds = section.get("oneOf") or section.get("anyOf") or [{"$ref": section["$ref"]}]
    return {"description": description, "anyOf": kinds}


class _AsWritten(GenerateJsonSchema):
    """Generator of schemas with the short forms that validators turn into the full ones before pydantic looks at
    them."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow a single file for a list with that file, and a bare name for the measure of that kind."""
        full = super().function_before_schema(schema)
        if "items" in full:
            return {"anyOf": [full["items"], full]}
        if "discriminator" not in full:  # a validator that only words what is refused
            return full
        named = [_OF_PLUGIN] if _PLUGIN in full["oneOf"] else []
        return {"anyOf": [{"enum": list(full["discriminator"]["mapping"])}, *named, full]}

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow a kind of a plugin, whose settings are not known here, and the file of a task of one's own."""
        full = super().function_wrap_schema(schema)
        if "oneOf" not in full:
            return {"anyOf": [full, {"type": "string", "pattern": f"^{TEXT}$"}]}
        return {**full, "oneOf": [*full["oneOf"], _PLUGIN]}

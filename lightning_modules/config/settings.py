"""Base class of all settings, and kinds of settings that plugins add."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from lightning_modules import plugins
from lightning_modules.errors import PluginError
from lightning_modules.plugins import Plugin


class Settings(BaseModel):
    """Base of all settings: unknown keys are errors, types are not guessed, nothing changes later."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    plugin: ClassVar[Plugin | None] = None
    """Part of one's own that these settings come from; None for those of this project."""


def from_name(value: Any) -> Any:
    """Return the settings of a kind with their defaults if the value is a bare name."""
    return {"kind": value} if isinstance(value, str) else value


def kind_of_part(part: Any) -> str:
    """Return what a part of a plugin is, for a sentence about one that does not fit its place."""
    return f"the class {part.__name__}" if isinstance(part, type) else f"of the type {type(part).__name__}"


class _NoSettings(Settings):
    """Second member of a union that would have one."""

    kind: Literal[""]


_OF_PLUGINS: dict[str, type[Settings]] = {}


def of_plugin(name: str) -> type[Settings] | None:
    """Return the settings class of a plugin that was validated last under this name; None without one."""
    return _OF_PLUGINS.get(name)


@functools.cache
def _named(settings: type[Settings], plugin: Plugin) -> type[Settings]:
    """Return a class of the same settings whose kind is the name of the plugin."""
    kind: Any = (Literal[plugin.name], ...)
    about: Any = {"__module__": settings.__module__, "__doc__": settings.__doc__}
    named = create_model(settings.__name__, __base__=settings, **about, kind=kind)
    named.plugin = plugin
    return named


@functools.cache
def _adapter(settings: type[Settings]) -> TypeAdapter[Any]:
    """Return a union by kind, in which a fault has the same place as in the unions of this project."""
    union: Any = Annotated[settings | _NoSettings, Field(discriminator="kind")]
    return TypeAdapter(union)


def or_plugin(settings_of: Callable[[Plugin], type[Settings]]) -> WrapValidator:
    """Return a validator by which the kind in a union of settings may also be the name of a plugin.

    Args:
        settings_of: returns the settings class of the plugin, or raises a `PluginError` that says what it lacks.
    """

    def validated(value: Any, union: Callable[[Any], Any]) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if isinstance(value, Settings) or not plugins.is_name(kind):
            return value if getattr(value, "plugin", None) else union(value)
        try:
            plugin = plugins.load(str(kind))
            _OF_PLUGINS[plugin.name] = settings = _named(settings_of(plugin), plugin)
        except PluginError as error:
            context = {"sentence": str(error).removesuffix("."), "at": ("kind",)}
            raise PydanticCustomError("sentence", "{sentence}", context) from error
        return _adapter(settings).validate_python(value)

    return WrapValidator(validated)


def plugins_of(settings: Iterable[Settings]) -> dict[str, dict[str, str]]:
    """Return the records of the plugins that settings come from, by name, those inside them and the tasks of files
    too."""
    return {plugin.name: plugin.record for one in settings for plugin in _plugins_in(one)}


def _plugins_in(settings: Settings) -> Iterator[Plugin]:
    if settings.plugin is not None:
        yield settings.plugin
    yield from (plugins.load(name) for name in getattr(settings, "tasks", None) or () if plugins.is_text(name))
    for _, value in settings:
        if isinstance(value, Settings):
            yield from _plugins_in(value)

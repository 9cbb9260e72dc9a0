"""Base class of all settings, and kinds of settings that plugins add."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WrapValidator, create_model
from pydantic_core import PydanticCustomError

from lightning_modules import plugins
from lightning_modules.errors import PluginError
from lightning_modules.plugins import Plugin

SETTING_LIMIT = 2**31
"""Bound of sizes and distances in tokens. Larger numbers do not fit into the arrays that hold them."""

MOST_LAYERS, WIDEST = 10_000, 1_000_000
"""Largest number of blocks and largest width. No machine trains more, and a wrong number is found before it is
tried."""

LARGEST_RATE = 1_000_000
"""Largest learning rate and epsilon of Adam. No training needs more, and torch ends with an error on numbers that
fp32 does not hold."""


class Settings(BaseModel):
    """Base of all settings. Unknown keys are errors, values are not converted to other types, and settings
    never change."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    plugin: ClassVar[Plugin | None] = None
    """Plugin that defines these settings; None for settings of this project."""


def from_name(value: Any) -> Any:
    """Return a mapping with a bare name as its `kind`; other values are returned as they are."""
    return {"kind": value} if isinstance(value, str) else value


def kind_of_part(part: Any) -> str:
    """Return a short description of an object of a plugin, as `the class Rank` or `of the type int`, for
    error sentences."""
    return f"the class {part.__name__}" if isinstance(part, type) else f"of the type {type(part).__name__}"


class _NoSettings(Settings):
    """Placeholder: a discriminated union needs a second member."""

    kind: Literal[""]


_OF_PLUGINS: dict[str, type[Settings]] = {}


def of_plugin(name: str) -> type[Settings] | None:
    """Return the settings class that was last validated under the name of a plugin; None if there is none."""
    return _OF_PLUGINS.get(name)


@functools.cache
def _named(settings: type[Settings], plugin: Plugin) -> type[Settings]:
    """Return a subclass of the settings whose `kind` is the name of the plugin."""
    kind: Any = (Literal[plugin.name], ...)
    about: Any = {"__module__": settings.__module__, "__doc__": settings.__doc__}
    named = create_model(settings.__name__, __base__=settings, **about, kind=kind)
    named.plugin = plugin
    return named


@functools.cache
def _adapter(settings: type[Settings]) -> TypeAdapter[Any]:
    """Return a validator of the settings as a union by kind, so that errors have the same paths as in other
    unions."""
    union: Any = Annotated[settings | _NoSettings, Field(discriminator="kind")]
    return TypeAdapter(union)


def sentence_error(sentence: str, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """Return an error with a whole sentence, for a validator to raise.

    Args:
        at: path from the validated value to the part that the sentence is about.
    """
    return PydanticCustomError("sentence", "{sentence}", {"sentence": sentence, "at": at})


def or_plugin(settings_of: Callable[[Plugin], type[Settings]]) -> WrapValidator:
    """Return a validator that accepts the name of a plugin as the kind in a union of settings.

    Args:
        settings_of: returns the settings class of the plugin, or raises a `PluginError` that says what the
            plugin lacks.
    """

    def validated(value: Any, union: Callable[[Any], Any]) -> Any:
        kind = value.get("kind") if isinstance(value, dict) else None
        if isinstance(value, Settings) or not plugins.is_name(kind):
            return value if getattr(value, "plugin", None) else union(value)
        try:
            plugin = plugins.load(str(kind))
            _OF_PLUGINS[plugin.name] = settings = _named(settings_of(plugin), plugin)
            with plugins.guarded(plugin):  # validators of the class are code of a user
                return _adapter(settings).validate_python(value)
        except PluginError as error:
            raise sentence_error(str(error).removesuffix("."), at=("kind",)) from error

    return WrapValidator(validated)


def plugins_of(settings: Iterable[Settings]) -> dict[str, dict[str, str]]:
    """Return the records of all plugins that settings come from, by plugin name. Plugins of nested settings
    and the YAML files of tasks count too."""
    return {plugin.name: plugin.record for part in settings for plugin in _plugins_in(part)}


def _plugins_in(settings: Settings) -> Iterator[Plugin]:
    if settings.plugin is not None:
        yield settings.plugin
    yield from (plugins.load(name) for name in getattr(settings, "tasks", None) or () if plugins.is_text(name))
    for _, value in settings:
        if isinstance(value, Settings):
            yield from _plugins_in(value)

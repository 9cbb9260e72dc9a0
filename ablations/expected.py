"""What a model expects at the place where pydantic found an error."""

import operator
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ablations.problems import KeyPath
from ablations.wording import number

BOUNDS = {"gt": "greater than", "ge": "at least", "lt": "less than", "le": "at most"}
"""How a bound is spoken, by its name in the metadata of a field."""

COMPARISONS = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}
"""What a bound asks of a number."""


class Spot(NamedTuple):
    """A place in the validated data."""

    path: KeyPath
    """Keys and positions, without the labels that pydantic adds for the members of a union."""
    name: str
    """The path as a sentence calls it."""
    owner: type[BaseModel]
    """The model that the last key on the way belongs to."""
    annotation: Any
    """What the value may be."""
    metadata: tuple[Any, ...]
    """What else is asked of it."""

    @property
    def key(self) -> str:
        return str(self.path[-1])

    @property
    def kinds(self) -> list[str]:
        """The tags of the union that the value belongs to; empty if it belongs to none."""
        return [kind for model in models_in(self.annotation) if (kind := kind_of(model))]

    @property
    def words(self) -> list[str]:
        """The words that the value may be, where it is to be one of a few."""
        return [
            str(word)
            for member in _members(self.annotation)
            if get_origin(member) is Literal
            for word in get_args(member)
        ]

    @property
    def range(self) -> str:
        """Every bound of a number, as in ``greater than 0 and at most 1``."""
        return " and ".join(f"{BOUNDS[name]} {number(bound)}" for name, bound in self._bounds)

    def allows(self, value: float) -> bool:
        """Whether a number lies within every bound."""
        return all(COMPARISONS[name](value, bound) for name, bound in self._bounds)

    @property
    def is_share(self) -> bool:
        """Whether the value is a number from 0 to 1."""
        return [bound for _, bound in self._bounds] == [0, 1]

    @property
    def _bounds(self) -> list[tuple[str, float]]:
        bounds = ((name, getattr(limit, name, None)) for limit in self.metadata for name in BOUNDS)
        return [(name, bound) for name, bound in bounds if bound is not None]


def spot_of(model: type[BaseModel], location: KeyPath, *, about: Literal["value", "key"]) -> Spot:
    """The place that pydantic calls ``location`` when it validates ``model``: a value, or the key of one."""
    path: list[str | int] = []
    words: list[str] = []
    owner: type[BaseModel] = model
    annotation: Any = model
    metadata: tuple[Any, ...] = ()
    for step in location:
        annotation = _bare(annotation)
        models = models_in(annotation)
        container = get_origin(annotation)
        if annotation in models:
            owner, field = annotation, annotation.model_fields.get(str(step))
            annotation, metadata = (field.annotation, _flat(field.metadata)) if field else (Any, ())
        elif models:  # the tag of a member; it names an entry of a list better than its position does
            annotation = next(member for member in models if kind_of(member) == step)
            words += [str(step)] * isinstance(path[-1], int)
            continue
        elif container in (dict, tuple):
            annotation = get_args(annotation)[1 if container is dict else 0]
            metadata = _metadata(annotation)
        else:  # the label of a member of another union
            continue
        path.append(step)
        words += [step] if isinstance(step, str) else []
    name = ".".join(words)
    if about == "key":
        name = "a name in " + ".".join(words[:-1])
    elif path and isinstance(path[-1], int):
        name = "an entry of " + name
    return Spot(tuple(path), name, owner, annotation, metadata)


def key_paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """The dotted path of everything that can be set in ``model``, in every kind of a tagged union."""
    for name, field in model.model_fields.items():
        yield above + name
        for member in models_in(field.annotation):
            yield from key_paths(member, f"{above}{name}.")


def kind_of(model: type[BaseModel]) -> str | None:
    """The tag of a member of a tagged union; None for any other model."""
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else None


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value may be: one, or the members of a tagged union."""
    return [
        member for member in _members(annotation) if isinstance(member, type) and issubclass(member, BaseModel)
    ]


def _members(annotation: Any) -> list[Any]:
    bare = _bare(annotation)
    return list(get_args(bare)) if get_origin(bare) in (Union, types.UnionType) else [bare]


def _bare(annotation: Any) -> Any:
    """An annotation without its metadata and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    some = [member for member in get_args(annotation) if member is not types.NoneType]
    is_optional = get_origin(annotation) in (Union, types.UnionType) and len(some) == 1
    return _bare(some[0]) if is_optional else annotation


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return _flat(get_args(annotation)[1:]) if get_origin(annotation) is Annotated else ()


def _flat(metadata: Any) -> tuple[Any, ...]:
    """Metadata with those of nested fields among them."""
    return tuple(
        inner for item in metadata for inner in (item.metadata if isinstance(item, FieldInfo) else [item])
    )

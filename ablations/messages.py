"""Error messages of pydantic in plain words: what is wrong, what was expected and what was probably meant.

A `Spot` holds what a model expects at the place where pydantic reported an error.
"""

import functools
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ablations.errors import Fault, KeyPath, Problem
from ablations.wording import exact_number, guess, listed, must_be, nearest, percentage_as_share, shown
from ablations.yamlfile import Document
from lightning_modules.config import RunSettings
from lightning_modules.config.data import Files
from lightning_modules.config.settings import of_plugin


class Spot(NamedTuple):
    """Place in the validated data, and what the model expects there."""

    path: KeyPath
    """Keys and positions, without the labels that pydantic adds for the members of a union."""
    name: str
    """The path as error messages write it."""
    owner: type[BaseModel]
    """Model that has the last key of the path."""
    annotation: Any
    """Type of the value."""

    @property
    def key(self) -> str:
        return str(self.path[-1])

    @property
    def kinds(self) -> list[str]:
        """Return the tags of the value's tagged union; empty if the value is of none."""
        return [kind for model in models_in(self.annotation) if (kind := kind_of(model))]

    @property
    def words(self) -> list[str]:
        """Return the words that the value may be; empty if its type has no `Literal`."""
        return [
            str(word)
            for member in _members(self.annotation)
            if get_origin(member) is Literal
            for word in get_args(member)
        ]


def spot_of(model: type[BaseModel], location: KeyPath, *, about: Literal["value", "key"]) -> Spot:
    """Return the spot for ``location``, as pydantic names it in errors of ``model``.

    Args:
        about: whether the error is about the value there, or about a key of a dictionary.
    """
    path: list[str | int] = []
    words: list[str] = []
    owner: type[BaseModel] = model
    annotation: Any = model
    for step in location:
        annotation = _bare(annotation)
        models = models_in(annotation)
        container = get_origin(annotation)
        if annotation in models:
            owner, field = annotation, annotation.model_fields.get(str(step))
            annotation = field.annotation if field else Any
        elif models:  # the step is the tag of a member; in a list a kind says more than an index
            member = next(
                (candidate for candidate in models if step in (kind_of(candidate), candidate.__name__.lower())),
                None,
            )
            member = member or of_plugin(str(step))
            words += [str(step)] * (member is not None and kind_of(member) == step and isinstance(path[-1], int))
            annotation = member or next(
                candidate for candidate in _members(annotation) if get_origin(_bare(candidate)) is tuple
            )
            continue
        elif container in (dict, tuple):
            annotation = get_args(annotation)[1 if container is dict else 0]
        else:  # the step is a label of a union without tags
            continue
        path.append(step)
        words += [step] if isinstance(step, str) else []
    name = ".".join(words)
    if about == "key":
        name = "a name in " + ".".join(words[:-1])
    elif path and isinstance(path[-1], int):
        name = "an entry of " + name
    return Spot(tuple(path), name, owner, annotation)


def key_paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting of ``model``, with those of all kinds of its tagged unions."""
    for name, field in model.model_fields.items():
        yield above + name
        for member in models_in(field.annotation):
            yield from key_paths(member, f"{above}{name}.")


def kind_of(model: type[BaseModel]) -> str | None:
    """Return the tag of a member of a tagged union; None for any other model."""
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else None


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a value of this type may be: one, or the members of a tagged union; empty for
    other types."""
    members = map(_bare, _members(annotation))
    return [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]


def _members(annotation: Any) -> list[Any]:
    bare = _bare(annotation)
    return list(get_args(bare)) if get_origin(bare) in (Union, types.UnionType) else [bare]


def _bare(annotation: Any) -> Any:
    """Return an annotation without its metadata and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    members = [member for member in get_args(annotation) if member is not types.NoneType]
    is_optional = get_origin(annotation) in (Union, types.UnionType) and len(members) == 1
    return _bare(members[0]) if is_optional else annotation


EXPECTED_TYPES = {
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
    "tuple_type": "a list",
}
"""Expected types in the words of YAML, by the type of pydantic's error. Listed are the errors whose own
message has words of Python."""


def faults(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Return the faults in ``error``, which the validation of ``model`` raised: one fault for each place."""
    # A value of a union fails once for each member of the union, always at the same place.
    by_path: dict[KeyPath, list[tuple[ErrorDetails, Spot]]] = {}
    for details in error.errors(include_url=False):
        location = details["loc"]
        if _is_echo(details):
            continue
        if _is_about_name(details):
            spot = spot_of(model, location[:-1], about="key")
        else:
            spot = spot_of(model, location, about="value")
        by_path.setdefault(spot.path, []).append((details, spot))
    misspelt = {
        (*path[:-1], _meant(rivals[0][1]))
        for path, rivals in by_path.items()
        if rivals[0][0]["type"] == "extra_forbidden"
    }
    return [
        _fault(*rivals[0], [details for details, _ in rivals])
        for path, rivals in by_path.items()
        if rivals[0][0]["type"] != "missing" or path not in misspelt
    ]


AnyModel = TypeVar("AnyModel", bound=BaseModel)


def validated(document: Document, model: type[AnyModel]) -> tuple[AnyModel | None, set[Problem]]:
    """Return the content of a file as a model, None if it does not fit, and all problems of the file so far."""
    try:
        return model.model_validate(document.content), set(document.problems)
    except ValidationError as error:
        return None, {*document.problems, *document.problems_of(faults(error, model))}


def about(name: str, sentence: str) -> str:
    """Return the sentence with ``name`` as its subject, unless it has a subject already."""
    return f"{name} {sentence}" if sentence.startswith(("must ", "has ")) else sentence


def _fault(details: ErrorDetails, spot: Spot, rivals: list[ErrorDetails]) -> Fault:
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return Fault(spot.path, _unknown(spot), "key")
        case "missing":
            return Fault(spot.path, _missing(spot), "missing")
        case "union_tag_not_found":
            sentence = f"{spot.name} lacks its kind, which is {listed(spot.kinds)}"
            return Fault((*spot.path, "kind"), sentence, "missing")
        case "union_tag_invalid":
            return Fault((*spot.path, "kind"), _unknown_kind(details["input"]["kind"], spot))
        case "value_error":
            sentence = about(spot.name, str(context["error"]))
            return Fault(spot.path, sentence, "key" if _is_about_name(details) else "several")
        case "sentence":
            return Fault((*spot.path, *context["at"]), about(spot.name, context["sentence"]))
        case "too_short" | "string_too_short":
            return Fault(spot.path, f"{spot.name} must not be empty")
    return Fault(spot.path, _mismatch(details["input"], spot, rivals))


def _is_echo(details: ErrorDetails) -> bool:
    """Return whether an error only follows from others, as for a default that depends on a wrong value, or
    for a list that is empty because all its entries are wrong."""
    return details["type"] == "default_factory_not_called" or (details["type"] == "too_short" and details["input"])


def _is_about_name(details: ErrorDetails) -> bool:
    """Return whether pydantic refused a key of a dictionary. An unknown key that is called `[key]` is another
    error."""
    return details["loc"][-1:] == ("[key]",) and details["type"] != "extra_forbidden"


def _meant(spot: Spot) -> str | None:
    names = [name for name in spot.owner.model_fields if name != "kind" or not kind_of(spot.owner)]
    return nearest(spot.key, names)  # pydantic chose this model by its `kind`, so `kind` is already written


def _unknown(spot: Spot) -> str:
    meant = [name for name in (_meant(spot), _elsewhere(spot)) if name not in (None, spot.name)]
    if meant:
        return f"{spot.name} is unknown; did you mean {listed(meant)}?"
    kind = kind_of(spot.owner)
    whole = (spot.name.rpartition(".")[0] or "this file") + (f" of kind {kind}" if kind else "")
    return f"{spot.name} is unknown; {whole} has the settings {listed(list(spot.owner.model_fields), 'and')}"


def _elsewhere(spot: Spot) -> str | None:
    """Return the path of the first setting of a run with the name of a key; None if there is none, if the name is
    too common for a hint, or if both lie inside parts of different sections."""
    path = None if spot.key in ("kind", "seed", "name") else _first_paths().get(spot.key)
    if path and min(path.count("."), spot.name.count(".")) > 1 and path.split(".")[0] not in spot.name.split("."):
        return None
    return path


@functools.cache
def _first_paths() -> dict[str, str]:
    """Return the first path of each name among a run's settings. It is cached, since a file may have
    thousands of unknown keys."""
    paths = [*key_paths(RunSettings)]
    return {path.rpartition(".")[2]: path for path in reversed(paths)}


def _missing(spot: Spot) -> str:
    if spot.kinds:
        return f"{spot.name} is missing; its kind is {listed(spot.kinds)}"
    promise = _promise(spot)
    return f"{spot.name} is missing" + (f" ({promise})" if promise else "")


def _promise(spot: Spot) -> str:
    """Return the first part of a setting's description, with a small letter; empty if it has none."""
    field = spot.owner.model_fields.get(spot.key)
    description = (field.description if field else None) or ""
    promise = re.split(r"[.;:](?:\s|$)| \(", description, maxsplit=1)[0]
    return promise[:1].lower() + promise[1:]


ALSO_CALLED = {
    "masked_lm": ("mlm", "bert", "roberta", "cloze", "denoising"),
    "causal_lm": ("clm", "lm", "gpt", "gpt2", "autoregressive"),
    "translation": ("mt", "nmt"),
    "replaced_token": ("electra", "rtd", "discriminator"),
    "permutation_lm": ("plm", "xlnet"),
    "skip_gram": ("word2vec", "w2v", "sgns"),
    "files": ("csv", "tsv", "txt", "text", "jsonl", "parquet", "local"),
    "hub": ("huggingface", "hf", "datasets"),
    "language": ("built_in", "builtin", "synthetic", "toy"),
}
"""Other common names of kinds. They may be spelt so differently that `nearest` does not find them."""


def _unknown_kind(kind: Any, spot: Spot) -> str:
    kinds = spot.kinds
    for name, others in ALSO_CALLED.items():
        if name in kinds and isinstance(kind, str) and kind.lower().replace("-", "_") in others:
            return f"{spot.name} must be one of {len(kinds)} kinds, but is {shown(kind)}; did you mean {name}?"
    return f"{spot.name} {must_be(kind, kinds, noun=f'one of {len(kinds)} kinds', prefix='of kind ')}"


def _mismatch(value: Any, spot: Spot, rivals: list[ErrorDetails]) -> str:
    """Return ``NAME must be THIS or THAT, but is VALUE; HINT``."""
    types = {rival["type"] for rival in rivals}
    if types == {"literal_error"}:
        sentence = must_be(value, spot.words, noun=f"one of {len(spot.words)} words")
        return f"{spot.name} {sentence}{_always(spot)}"
    noun = "the text " if isinstance(value, str) and "literal_error" not in types else ""
    expected = listed([_expected(rival) for rival in rivals])
    return f"{spot.name} must be {expected}, but is {noun}{shown(value)}{_hint(value, spot, rivals)}"


def _expected(details: ErrorDetails) -> str:
    expected = re.sub(r"^Input should be |, got .*", "", details["msg"])
    return EXPECTED_TYPES.get(details["type"], expected).replace("'", "")


def _hint(value: Any, spot: Spot, rivals: list[ErrorDetails]) -> str:
    """Return a hint on what to write instead; empty if that is not clear."""
    types = {rival["type"] for rival in rivals}
    if "literal_error" in types:
        return guess(value, spot.words)
    if types & {"greater_than", "greater_than_equal"}:
        return "; raise it"
    if types & {"less_than", "less_than_equal"}:
        is_share = 1 in rivals[0]["ctx"].values() and 0 < value <= 100
        return (
            f"; lower it ({exact_number(value)}% is written {percentage_as_share(value)})"
            if is_share
            else "; lower it"
        )
    if types & {"int_type", "int_from_float", "float_type"}:
        return _or_default(spot) if value is None else _as_number(value, whole="float_type" not in types)
    if "string_type" in types and isinstance(value, int | float):
        return "; put it in quotes"
    if "tuple_type" in types and isinstance(value, str | int | float) and len(str(value)) < 60:
        return _as_list(value, spot)
    if "model_attributes_type" in types and isinstance(value, str) and (meant := nearest(value, spot.kinds)):
        return f"; write {{kind: {meant}}}"
    if types & {"model_type", "dict_type"} and value is None:
        return "; write {} to change nothing"
    return _as_in(spot)


def _always(spot: Spot) -> str:
    """Return a hint on a setting that has the same value in every file; empty for other settings."""
    promise = _promise(spot)
    return f"; it is {promise}" if re.search(r", always \S+$", promise) else ""


def _or_default(spot: Spot) -> str:
    """Return a hint on an empty number with its default; empty if it has no fixed one."""
    field = spot.owner.model_fields.get(spot.key)
    default = field.default if field is not None else None
    return f"; leave it out for {exact_number(default)}" if isinstance(default, int | float) else ""


def _as_list(value: str | int | float, spot: Spot) -> str:
    """Return a hint with the list that a single value probably stands for."""
    if _bare(spot.annotation) == _bare(Files) and not isinstance(value, str):
        return f"; write names of files, such as [{spot.key}.txt]"
    if spot.key == "seeds" and value in range(2, 11):
        return f"; write {[*range(int(value))]} for {value} seeds, or [{value}] for seed {value} alone"
    if isinstance(value, str):
        return f"; write [{value.removesuffix('.yaml') if spot.key == 'claims' else value}]"
    return f"; write [{shown(value)}]"


def _as_in(spot: Spot) -> str:
    """Return a hint with the example in a setting's description; empty if it has none."""
    fields = [spot.owner.model_fields[key] for key in spot.path if key in spot.owner.model_fields]
    example = re.search(r"as in\s+`([^`]+)`", (fields[-1].description or "") if fields else "")
    return f"; write it as in `{example[1]}`" if example else ""


def _as_number(value: Any, *, whole: bool) -> str:
    """Return a hint with the number that quotes, underscores, an exponent or a per cent sign hide; empty if
    there is none."""
    if not isinstance(value, str | float):
        return ""
    percent = None if whole else re.fullmatch(r"(100|[0-9]{1,2}(?:\.[0-9]+)?) ?%", str(value))
    try:
        plain = float(percentage_as_share(percent[1]) if percent else value)
    except ValueError:
        return ""
    return f"; write {exact_number(plain)}" if abs(plain) < 1e15 and (plain.is_integer() or not whole) else ""

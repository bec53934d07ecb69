"""The parameters of a plug-in, as its function declares them and a table of settings gives them."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import to_json
from typing_extensions import TypedDict

from assay.config.messages import refusal
from assay.errors import SettingsError
from assay.registry import one_line

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def fitted(
    kind: str, name: str, function: Callable[..., Any], values: Mapping[str, Any], *within: str,
    common: Mapping[str, type] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """`values` as the parameters of `function` but its first one, and as `common` ones that all
    plug-ins of a kind have.

    `within` is the place of the table. An array becomes a tuple, a string a path; 1 is not true.
    Raises SettingsError for an unknown parameter, a wrong value, or one without a default that is
    not given.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    by_name = {parameter.name: parameter for parameter in parameters if parameter.kind in NAMED}
    if twice := sorted(common.keys() & by_name):
        raise SettingsError(
            f"{kind} {name!r} has a parameter `{twice[0]}`, which every {kind} has; rename it"
        )
    kinds: dict[str, Any] = {word: NotRequired[hint] for word, hint in common.items()}
    for parameter in by_name.values():
        hint = _kind(f"{kind} {name!r}", function, parameter) if parameter.name in values else Any
        kinds[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    make: Any = TypedDict
    table = with_config(ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))(
        make(name, kinds)
    )
    try:
        return dict(TypeAdapter(table).validate_json(to_json(values)))
    except ValidationError as error:
        raise refusal(error, kinds, *within) from None


def _kind(plugin: str, function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The parameter's annotation, resolved alone: others may name what is imported for type
    checkers only.
    """
    if parameter.annotation is parameter.empty:
        return Any
    alone: Any = SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        globals_of = getattr(inspect.unwrap(function), "__globals__", {})
        kind = get_type_hints(alone, globals_of, include_extras=True)["it"]
        TypeAdapter(kind)
    except Exception as error:  # an annotation is the user's code: it may raise anything
        raise SettingsError(
            f"{plugin}: the annotation of {parameter.name!r} cannot be used ({one_line(error)});"
            " write a type that TOML holds and that is there at run time"
        ) from error
    return kind

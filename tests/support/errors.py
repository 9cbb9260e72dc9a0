"""The text of an expected error."""

from collections.abc import Callable
from typing import Any

import pytest


def error_text(kind: type[BaseException], function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Call a function, which must raise an error of this kind, and return the text of the error."""
    with pytest.raises(kind) as error:
        function(*arguments, **options)
    return str(error.value)

"""The built-in language of seed 0, and text of it, made once for all tests of this folder."""

import pytest

from lightning_modules.data.language import Language
from tests.support.recogniser import Recogniser


@pytest.fixture(scope="package")
def language():
    return Language(0)


@pytest.fixture(scope="package")
def documents(language):
    return [language.document("train", index) for index in range(400)]


@pytest.fixture(scope="package")
def text(documents):
    return [sentence for document in documents for sentence in document]


@pytest.fixture(scope="package")
def recogniser(language):
    return Recogniser(language.lexicon)

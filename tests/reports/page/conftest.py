"""A page with nothing missing; and the page of the folder of a test, as it is read and as its twin says it."""

import pytest

from reports.page import page
from tests.support.fake_experiment import write
from tests.support.html_page import Page, strict_json


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("whole"))
    assert page.write(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def shown(folder):
    return Page(folder / "report.html")


@pytest.fixture(scope="module")
def twin(folder):
    return strict_json(folder / "report.json")

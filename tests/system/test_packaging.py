"""The wheel holds everything that a command reads, and nothing else; its version is that of the tag."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import setuptools_scm
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
OURS = ("ablations", "lightning_modules", "reports")
TAG = "v1.2.3"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git, which holds the tag")


def build(kind, source, folder):
    """Build a wheel or an sdist of a source tree into a folder, with the packages that are installed."""
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SETUPTOOLS_SCM")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=source, env=environment, check=True, capture_output=True, text=True
    )
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The tree as a repository of its own, with one tag."""
    tree = tmp_path_factory.mktemp("source")
    for name in (*OURS, "experiments"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "runs-*"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, tree / name)
    author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"], ["tag", TAG]):
        subprocess.run(["git", *author, *command], cwd=tree, check=True)
    return tree


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return build("wheel", source, tmp_path_factory.mktemp("wheel"))


def shipped():
    """What a wheel must hold beside its metadata, as paths inside it."""
    code = [path for name in OURS for path in (ROOT / name).rglob("*.*") if "__pycache__" not in path.parts]
    specs = [
        path
        for pattern in ("*.yaml", "claims/*.yaml", "published/*")
        for path in ROOT.glob(f"experiments/{pattern}")
    ]
    return {path.relative_to(ROOT).as_posix() for path in code} | {
        f"ablations/{path.relative_to(ROOT).as_posix()}" for path in specs
    }


def test_the_wheel_holds_the_packages_the_specs_and_the_templates_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == shipped()
    assert {"ablations/experiments/smoke.yaml", "reports/page/templates/page.html"} <= inside
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE"}


def test_the_metadata_names_version_licence_and_pythons(wheel):
    archive = zipfile.ZipFile(wheel)
    name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Version"] == TAG.removeprefix("v")
    assert metadata["License-Expression"] == "MIT"
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    versions = [value.rpartition(" ")[2] for value in metadata.get_all("Classifier") if "Python :: 3." in value]
    assert versions == ["3.11", "3.12", "3.13"]


def test_a_wheel_works_from_any_folder(wheel, tmp_path):
    """Unpacked, as an installer does, and first in the path; the folder it is called from holds nothing."""
    installed, here = tmp_path / "installed", tmp_path / "here"
    here.mkdir()
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        "from ablations.cli import main\n"
        "for command in (['examples', 'smoke'], ['validate', 'experiments/smoke.yaml']):\n"
        "    try:\n"
        "        main(command)\n"
        "    except SystemExit as done:\n"
        "        assert not done.code"
    )
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=environment, check=True, capture_output=True, text=True
    )
    assert "experiments/smoke.yaml: copied\n" in done.stdout
    assert "experiments/smoke.yaml: good, 18 runs\n" in done.stdout


@pytest.mark.slow
def test_an_sdist_is_enough_to_build_the_wheel_again(source, wheel, tmp_path):
    with tarfile.open(build("sdist", source, tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(path for path in tmp_path.iterdir() if path.is_dir())
    again = build("wheel", unpacked, tmp_path)
    assert again.name == wheel.name
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_a_copy_without_git_has_a_version_too(source, tmp_path):
    shutil.copy(source / "pyproject.toml", tmp_path)
    configuration = setuptools_scm.Configuration.from_file(str(tmp_path / "pyproject.toml"))
    assert setuptools_scm.get_version(root=tmp_path, fallback_version=configuration.fallback_version) == "0.1.dev0"


def versions(name):
    """Return the versions that a file of requirements pins, by package."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = (line.partition("==") for line in lines if line[:1].isalnum())
    return {canonicalize_name(package): version.split()[0] for package, _, version in pins}


def test_the_lock_has_the_tested_versions_of_all_that_the_project_needs_each_with_hashes():
    locked, tested = versions("requirements.lock"), versions("constraints.txt")
    differing = {
        name: (version, tested[name]) for name, version in locked.items() if tested.get(name, version) != version
    }
    assert differing == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(line for extra in extras.values() for line in extra)]
    names = {canonicalize_name(Requirement(line).name) for line in needed} - {"pretraining-ablations"}
    assert names <= locked.keys()
    for entry in re.split(r"\n(?=[a-z])", (ROOT / "requirements.lock").read_text(encoding="utf-8")):
        if not entry.startswith("#"):
            assert re.fullmatch(r"[\w.-]+(\[[\w,]+\])?==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", entry), (
                entry
            )

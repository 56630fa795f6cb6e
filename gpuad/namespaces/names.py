"""What each name of an array library becomes.

In: a library, and a name of it. Out, outside of tapes: what the library has, or what does the same. Inside of tapes, for pairs:

* functions that ask their arguments what to do (NumPy's `__array_function__` and ufuncs) are the library's own objects;
* functions that do not (`asarray`, all of CuPy's) are guarded: where an argument is a pair, the operation of that name is called, and where
  there is none, the call is refused;
* makers of arrays give pairs (`making`), types of numbers convert pairs, and pairs count as instances of `ndarray`;
* kernels are gpuad's (`kernels`);
* modules of functions (`linalg`, `fft`, `scipy.special`) are namespaces like this one; other modules, classes, constants are as they are.

UnknownNameError, which names what is near, for a name that the library has not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper, wraps
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ..arguments.annotations import Active, Duplicated
from ..arguments.arrays import is_array, namespace
from ..arguments.operators import by_place, names, offered
from ..errors import ArgumentTypeError, GpuadError, UnknownNameError, alike
from ..ops.plain_results import bare
from . import kernels
from .making import PAIRS, array_type, holds_pair, makers, number_type

_ROOMS = frozenset(
    ("fft", "linalg", "scipy", "special", "ndimage", "signal", "interpolate", "stats", "sparse", "spatial", "fftpack", "lib", "random")
)
_SAME = frozenset(("lib", "random"))  # whose functions take no pairs, and refuse them by themselves in NumPy
_NUMBERS = frozenset(("float32", "float64", "double", "single", "float_", "complex64", "complex128", "csingle", "cdouble", "complex_"))
_DISPATCHING = ("_ArrayFunctionDispatcher",)


class Namespace(ModuleType):
    """A module with the names of one of a library's modules. `room`: its path below the library, `linalg.`; `top`: the library."""

    def __init__(self, name: str, library: ModuleType, room: str, top: ModuleType, whole: Any) -> None:
        super().__init__(name, library.__doc__)
        vars(self).update(_library=library, _room=room, _top=top, _whole=whole or self, __path__=[])
        sys.modules.setdefault(name, self)

    def __getattr__(self, name: str) -> Any:
        value = resolved(self, name)
        vars(self)[name] = value
        return value

    def __dir__(self) -> list[str]:
        return sorted({*dir(vars(self)["_library"]), *vars(self)})


class _Finder:
    """Finds the rooms of a namespace for `from gpuad.numpy.fft import rfft`, which asks for the module before anybody has looked at it."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The room of that name; None where its parent is no namespace, or has none."""
        parent, _, room = name.rpartition(".")
        space = sys.modules.get(parent)
        found = getattr(space, room, None) if isinstance(space, Namespace) else None
        return ModuleSpec(name, _Loader(found)) if isinstance(found, Namespace) else None


class _Loader(Loader):
    """Gives what was found."""

    def __init__(self, found: Namespace) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The namespace."""
        return self._found

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: its names are there."""


sys.meta_path.append(_Finder)


def resolved(space: Any, name: str) -> Any:
    """What a name becomes in a namespace. UnknownNameError where the library has none."""
    library = vars(space)["_library"]
    if name.startswith("__"):
        raise AttributeError(f"module {space.__name__!r} has no attribute {name!r}")
    try:
        value = getattr(library, name)
    except AttributeError:
        close = alike(name, dir(library))
        near = f": near it are {', '.join(close)}" if close else ""
        raise UnknownNameError(f"module {space.__name__!r} has no attribute {name!r}, nor has {library.__name__}{near}") from None
    return _become(space, name, value)


def _become(space: Any, name: str, value: Any) -> Any:
    library, room, top, whole = (vars(space)[key] for key in ("_library", "_room", "_top", "_whole"))
    on_device = top.__name__.startswith("cupy")
    if name == "jit" and on_device:
        return kernels.jit()
    if isinstance(value, ModuleType):
        wrapped = name in _ROOMS and not (name in _SAME and not on_device) and name != "lib"
        return Namespace(f"{space.__name__}.{name}", value, f"{room}{name}.", top, whole) if wrapped else value
    if name == "get_array_module":
        return _array_module(whole, value)
    if not room and name in (special := makers(library) if _has_makers(library) else {}):
        return special[name]
    if on_device and name in kernels.KINDS:
        return kernels.KINDS[name](library, value)
    if isinstance(value, type):
        numbers = name in _NUMBERS and issubclass(value, np.generic)
        return number_type(value) if numbers else array_type(value) if name == "ndarray" and not room else value
    dispatches = isinstance(value, np.ufunc) or type(value).__name__ in _DISPATCHING
    if not callable(value) or (dispatches and not on_device):
        return value
    return guarded(f"{room}{name}", value)


def _has_makers(library: Any) -> bool:
    return hasattr(library, "ndarray") and hasattr(library, "zeros")


_OTHER_NAMES = {
    "scipy.fft.": "fft.", "fftpack.": "fft.", "scipy.linalg.": "linalg.", "scipy.special.": "", "scipy.": "",
}  # fmt: skip


def _operation_of(path: str) -> Callable[..., Any] | None:
    """The operation that stands for a function of a library."""
    for prefix, own in _OTHER_NAMES.items():
        if path.startswith(prefix):
            path = own + path.removeprefix(prefix)
            break
    return offered(path)


_NO_PAIRS = frozenset((bool, int, float, complex, str, type(None), type, np.ndarray))


def guarded(path: str, function: Any) -> Any:
    """A function that does not ask its arguments: where one carries a gradient, the operation of its name, or a refusal."""

    def call(*args: Any, **keywords: Any) -> Any:
        for x in args:
            if type(x) not in _NO_PAIRS and holds_pair(x):
                break
        else:
            if not keywords or not any(map(holds_pair, keywords.values())):
                return function(*args, **keywords)
        own = _operation_of(path)
        if own is None:
            raise ArgumentTypeError(_unknown(path))
        keywords = {key: value for key, value in keywords.items() if key not in ("overwrite_x", "plan", "workers", "check_finite")}
        try:
            return own(*args, **by_place(function, own, keywords)) if keywords else own(*args)
        except GpuadError:
            raise
        except TypeError as error:
            raise ArgumentTypeError(f"{path}: {error}") from None

    guard: Any = update_wrapper(call, function)
    guard.__module__ = getattr(function, "__module__", None) or type(function).__module__  # kernels of jit know functions by theirs
    for name in _OF_UFUNCS:
        if hasattr(function, name):  # CuPy's ufuncs: programs call add.at, maximum.reduce
            value = getattr(function, name)
            setattr(guard, name, _guarded_method(path, name, value) if callable(value) else value)
    return guard


_OF_UFUNCS = ("at", "reduce", "accumulate", "outer", "reduceat", "nin", "nout", "nargs", "types", "name")


def _guarded_method(path: str, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a ufunc: of pairs as NumPy's would ask them."""

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        pair = next((x for x in (*args, *keywords.values()) if isinstance(x, PAIRS)), None)
        if pair is None:
            return function(*args, **keywords)
        return pair.__array_ufunc__(SimpleNamespace(__name__=path.rpartition(".")[2]), method, *args, **keywords)

    return call


def _unknown(path: str) -> str:
    close = alike(path, names())
    near = f" (near it: {', '.join(close)})" if close else ""
    return (
        f"{path} of a pair is not recorded{near}: its gradient would be dropped. Write it with other operations, as a kernel or as a rule "
        "of your own, or pass `.primal` where no gradient is to go through"
    )


def _array_module(whole: Any, original: Any) -> Any:
    """`get_array_module`: the namespace itself for its library's arrays."""

    @wraps(original)
    def get_array_module(*args: Any) -> Any:
        library = vars(whole)["_top"]
        for x in args:
            array = x.shadow if isinstance(x, Active) else bare(x) if isinstance(x, Duplicated) else x
            if is_array(array):
                return (
                    whole
                    if namespace(array) is library
                    else sys.modules.get(f"gpuad.{namespace(array).__name__}") or opened(namespace(array))
                )
        return opened(np) if library is not np and original(*args) is np else whole

    return get_array_module


def opened(library: Any) -> Any:
    """The namespace of a library."""
    name = f"gpuad.{library.__name__}"
    return sys.modules.get(name) or Namespace(name, library, "", library, None)


def replacement(value: Any) -> Any:
    """What stands in the place of a module's name for a library, or for a thing of it, while a function is traced."""
    if isinstance(value, Namespace) or value is None:
        return value
    if isinstance(value, ModuleType):
        return _of_module(value)
    if (kernel := kernels.wrapped(value)) is not None:
        return kernel
    home = str(getattr(value, "__module__", None) or "").partition(".")[0] or type(value).__module__.partition(".")[0]
    if home not in ("numpy", "cupy", "cupyx") and not isinstance(value, np.ufunc):
        return value
    name = getattr(value, "__name__", None)
    library = sys.modules.get(home)
    if not isinstance(name, str) or library is None or isinstance(value, np.ndarray) or getattr(library, name, None) is not value:
        return value
    return getattr(opened(library), name)


def _of_module(value: ModuleType) -> Any:
    """The namespace of a library, or of one of its modules."""
    home, _, path = value.__name__.partition(".")
    if home not in ("numpy", "cupy", "cupyx"):
        return value
    space = opened(sys.modules[home])
    for part in path.split(".") if path else ():
        space = getattr(space, part, None)
        if not isinstance(space, ModuleType):
            return value
    return space

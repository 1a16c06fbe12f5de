"""Reads the tensors that a pickle of PyTorch describes, without running anything of it.

A pickle is a program for a small stack machine: it may name any function of Python and call it.
This is another such machine. It cannot access any function; a name is just a name here, and only
those that tensors need have a meaning. PyTorch's own ``weights_only`` loading works the same way:
https://github.com/pytorch/pytorch/blob/main/torch/_weights_only_unpickler.py
"""

from __future__ import annotations

import math
import pickletools
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from trained_models.errors import BadDataError, UserError

# The numpy type of storages, by their class. numpy has no bfloat16, so those are bits here.
FLOATS = {"torch.FloatStorage": "<f4", "torch.HalfStorage": "<f2"}
BFLOAT16 = "torch.BFloat16Storage"
DTYPES = FLOATS | {BFLOAT16: "<u2", "torch.LongStorage": "<i8"}
_DICT = "collections.OrderedDict"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PARAMETER = "torch._utils._rebuild_parameter"
_ALLOWED = {_DICT, _TENSOR, _PARAMETER, *DTYPES}
_SHOWN_CHARACTERS = 80
_MOST_DIMENSIONS = 8
_KEY = re.compile(r"[0-9]{1,9}")
ADVICE = (
    "Get the model as safetensors, or, where you trust the file, write them once: "
    "AutoModelForMaskedLM.from_pretrained(FOLDER).save_pretrained(OTHER) of the library "
    "transformers, and copy the vocabulary."
)


class Storage(NamedTuple):
    """The numbers of one or several tensors.

    :param kind: a key of :data:`DTYPES`.
    :param key: the name of its file in the archive.
    :param size: how many numbers there are.
    """

    kind: str
    key: str
    size: int


class Tensor(NamedTuple):
    """A view of a storage, within its bounds.

    :param offset: offset of the first number; like the strides, in numbers, not in bytes.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Global(NamedTuple):
    """An allowed name; it stands for no Python object."""

    name: str


class _DamagedError(ValueError):
    """The pickle is not one that PyTorch writes."""


def read_tensors(data: bytes, place: str) -> dict[str, Tensor]:
    """Return the tensors of a state dictionary by name.

    :param data: the pickle.
    :param place: name of the file in messages.
    :raises UserError: it asks for something that no tensor needs, or holds something else.
    :raises BadDataError: it is damaged.
    """
    found = _Machine(place).run(data)
    if not isinstance(found, dict) or not all(type(v) is Tensor for v in found.values()):
        raise UserError(
            f"{place} is refused: it holds something else than tensors by name, the state "
            f"dictionary of a model. {ADVICE}"
        )
    return found


class _Machine:
    """The stack machine.

    Values are None, booleans, numbers, texts, tuples, dictionaries by text, and the classes above.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        try:
            for opcode, argument, _ in pickletools.genops(data):
                if opcode.name == "STOP":
                    return self._stack.pop()
                step = _STEPS.get(opcode.name)
                if step is None:
                    self._refuse(f"it has the instruction {opcode.name}")
                step(self, argument)
        # Errors of pickletools, and of a stack or memo that lacks something.
        except (ValueError, TypeError, LookupError, AssertionError, struct.error) as error:
            reason = str(error) if isinstance(error, _DamagedError) else type(error).__name__
        else:
            reason = "it has no end"
        raise BadDataError(
            f"{self._place} cannot be read as a pickle of PyTorch ({reason}): it is damaged, or "
            "was written by something else. Get it again."
        )

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(
            f"{self._place} is refused: {reason}, which tensors of {', '.join(DTYPES)} do not "
            f"need. Nothing of it was run. {ADVICE}"
        )

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def skip(self, _argument: Any) -> None:
        """Do nothing, for protocol and frames."""

    def mark(self, _argument: Any) -> None:
        self._marks.append(len(self._stack))

    def _since_mark(self) -> list[Any]:
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def empty_dict(self, _argument: Any) -> None:
        self.push({})

    def empty_tuple(self, _argument: Any) -> None:
        self.push(())

    def tuple_since_mark(self, _argument: Any) -> None:
        self.push(tuple(self._since_mark()))

    def put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def memoize(self, _argument: Any) -> None:
        self.put(len(self._memo))

    def get(self, number: int) -> None:
        self.push(self._memo[number])

    def set_item(self, _argument: Any) -> None:
        self._marks.append(len(self._stack) - 2)
        self.set_items(None)

    def set_items(self, _argument: Any) -> None:
        items = self._since_mark()
        target = self._stack[-1]
        keys, values = items[::2], items[1::2]
        if type(target) is not dict or len(keys) != len(values):
            raise _DamagedError("it sets items of what is no dictionary")
        if not all(type(key) is str for key in keys):
            raise _DamagedError("a name is no text")
        target.update(zip(keys, values, strict=True))

    def global_(self, argument: str) -> None:
        self._push_global(".".join(argument.split(" ", 1)))

    def stack_global(self, _argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not (type(name) is type(module) is str):
            raise _DamagedError("a global has no text as its name")
        self._push_global(f"{module}.{name}")

    def _push_global(self, name: str) -> None:
        if name not in _ALLOWED:
            shown = ascii(name[:_SHOWN_CHARACTERS])[1:-1]
            self._refuse(f"it asks for {shown}{'…' if len(name) > _SHOWN_CHARACTERS else ''}")
        self.push(_Global(name))

    def build(self, _argument: Any) -> None:
        """Drop the state that PyTorch adds to a state dictionary: versions of the modules."""
        self._stack.pop()
        if type(self._stack[-1]) is not dict:
            self._refuse("it sets the state of what is no dictionary")

    def persistent_id(self, _argument: Any) -> None:
        word, kind, key, _device, size = self._stack.pop()
        if word != "storage" or type(kind) is not _Global or kind.name not in DTYPES:
            raise _DamagedError("a storage is none")
        if type(key) is not str or not _KEY.fullmatch(key) or not _are_counts((size,)):
            raise _DamagedError("a storage has no number or no size")
        self.push(Storage(kind.name, key, size))

    def reduce(self, _argument: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not _Global or type(arguments) is not tuple:
            raise _DamagedError("it calls what is no function")
        call = _CALLS.get(function.name)
        if call is None:
            raise _DamagedError("it calls a storage")
        self.push(call(arguments))


def _are_counts(values: object) -> bool:
    return type(values) is tuple and all(type(n) is int and n >= 0 for n in values)


def _dictionary(arguments: tuple[Any, ...]) -> dict[str, Any]:
    if arguments:
        raise _DamagedError("a dictionary is made of something")
    return {}


def _parameter(arguments: tuple[Any, ...]) -> Tensor:
    if not arguments or type(arguments[0]) is not Tensor:
        raise _DamagedError("a parameter is no tensor")
    return arguments[0]


def _tensor(arguments: tuple[Any, ...]) -> Tensor:
    storage, offset, shape, strides, *_ = arguments
    if type(storage) is not Storage or not _are_counts((offset,)):
        raise _DamagedError("a tensor has no storage")
    if not (_are_counts(shape) and _are_counts(strides) and len(shape) == len(strides)):
        raise _DamagedError("a tensor has no shape")
    if len(shape) > _MOST_DIMENSIONS:
        raise _DamagedError("a tensor has too many dimensions")
    steps = zip(shape, strides, strict=True)
    last = offset + sum((size - 1) * stride for size, stride in steps)
    # The second check: with a stride of 0, one number would make a tensor of any size.
    if 0 not in shape and (last >= storage.size or math.prod(shape) > storage.size):
        raise _DamagedError("a tensor is larger than its storage")
    return Tensor(storage, offset, shape, strides)


_CALLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    _DICT: _dictionary,
    _TENSOR: _tensor,
    _PARAMETER: _parameter,
}


def _tuple_of(count: int) -> Callable[[_Machine, Any], None]:
    def step(machine: _Machine, _argument: Any) -> None:
        items = [machine._stack.pop() for _ in range(count)]
        machine.push(tuple(reversed(items)))

    return step


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _argument: machine.push(value)


_ARGUMENTS = ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1")
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME"), _Machine.skip),
    **dict.fromkeys(_ARGUMENTS, _Machine.push),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Machine.get),
    **{f"TUPLE{count}": _tuple_of(count) for count in (1, 2, 3)},
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "MARK": _Machine.mark,
    "EMPTY_DICT": _Machine.empty_dict,
    "EMPTY_TUPLE": _Machine.empty_tuple,
    "TUPLE": _Machine.tuple_since_mark,
    "MEMOIZE": _Machine.memoize,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.persistent_id,
    "REDUCE": _Machine.reduce,
}

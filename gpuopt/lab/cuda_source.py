"""Reading CUDA C++ as people write it: what the simulator's compiler needs changed.

`Source(text)` finds the `__global__` functions and their parameters, and rewrites shared
arrays, which a host compiler does not have, on the lines where they stand, so that every
line keeps its number.  It is no compiler: what it does not recognise is left to one.
Order: errors, masking, blocks of code, kernels, shared arrays, the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FILE = "kernel.cu"  # the source's name in messages and counts


class CompileError(ValueError):
    """The source does not compile: `line` (0: unknown), its `text`, the `sentence`."""

    def __init__(self, sentence: str, line: int = 0, text: str = "", output: str = "") -> None:
        where = f"line {line}: " if line else ""
        shown = f"\n    {text.strip()}" if text.strip() else ""
        super().__init__(f"{where}{sentence}{shown}")
        self.sentence, self.line, self.text, self.output = sentence, line, text, output


# ---- masking: the text without comments, strings and directives, at the same offsets ----

_IGNORED = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
    r"""|^[ \t]*\#(?:\\\n|/\*.*?\*/|//[^\n]*|[^\n])*""",
    re.S | re.M,
)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def mask(text: str) -> str:
    """Replace what is no code with blanks; a digit separator (1'000) is no string."""
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "0", text)
    return _IGNORED.sub(_blank, text)


def _closing(code: str, start: int) -> int:
    """The offset of the bracket that closes the one at `start`; the end if none does."""
    opening = code[start]
    closing = {"(": ")", "{": "}", "[": "]"}[opening]
    depth = 0
    for i in range(start, len(code)):
        depth += (code[i] == opening) - (code[i] == closing)
        if depth == 0:
            return i
    return len(code)


# ---- blocks of code ----


@dataclass(frozen=True)
class Function:
    """A function's definition: offsets of its head and body, and the namespaces around."""

    head: int
    open: int
    close: int
    scope: str


_SCOPE = re.compile(r"\b(namespace|struct|class|union|extern)\b(?:\s+(\w+))?")


def functions(
    code: str, start: int = 0, end: int | None = None, scope: str = ""
) -> list[Function]:
    """The functions of masked code, those in namespaces and classes too."""
    found: list[Function] = []
    head = at = start
    end = len(code) if end is None else end
    while at < end:
        if code[at] in ";}":
            head = at + 1
        elif code[at] == "{":
            close = min(_closing(code, at), end)
            text = code[head:at]
            kind = _SCOPE.search(text)
            if "(" in text and not (kind and kind[1] == "namespace"):
                found.append(Function(head, at, close, scope))
            elif kind:
                inner = scope
                if kind[1] != "extern":
                    inner = f"{scope}{kind[2]}::" if kind[2] else scope
                found += functions(code, at + 1, close, inner)
            at = close
            head = at + 1
        at += 1
    return found


# ---- kernels ----


@dataclass(frozen=True)
class Kernel:
    """A `__global__` function as it is written."""

    name: str
    scope: str
    parameters: tuple[str, ...]  # "const float *x"
    names: tuple[str, ...]  # "x"
    line: int


def split(text: str) -> list[str]:
    """The parts between commas outside of all brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>")
        if c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [p for p in parts if p.strip()]


def _parameter(text: str) -> tuple[str, str]:
    """A parameter in one line, and its name ("" if it has none)."""
    words = " ".join(text.split("=")[0].split())
    name = re.search(r"([A-Za-z_]\w*)\s*(?:\[\w*\])?$", words)
    alone = name and name.start() == 0
    return words, name[1] if name and not alone else ""


def _kernel(code: str, function: Function) -> Kernel | None:
    head = code[function.head : function.open]
    if not re.search(r"\b__global__\b", head):
        return None
    line = code.count("\n", 0, function.head + head.index("__global__")) + 1
    opening = [m.start() for m in re.finditer(r"\(", head)]
    last = max(i for i in opening if _closing(head, i) == head.rindex(")"))
    name = re.search(r"([A-Za-z_]\w*)\s*$", head[:last])
    if name is None:
        return None
    if re.search(r"\btemplate\b", head):
        raise CompileError(
            f"the kernel '{name[1]}' is a template, whose types nobody names here: write a "
            "kernel that calls a __device__ function template",
            line,
        )
    inside = head[last + 1 : head.rindex(")")]
    described = [_parameter(p) for p in split(inside) if p.strip() != "void"]
    words, names = [p[0] for p in described], [p[1] for p in described]
    return Kernel(name[1], function.scope, tuple(words), tuple(names), line)


# ---- shared arrays ----

_ATTRIBUTE = re.compile(r"\b(?:__align__|alignas|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)")
_DECLARATOR = re.compile(r"^(.*[\s*>])([A-Za-z_]\w*)\s*((?:\[.*\])?)\s*$", re.S)


@dataclass(frozen=True)
class _Array:
    type: str
    name: str
    size: str  # "[32][33]", "" for a single variable
    dynamic: bool

    @property
    def alias(self) -> str:
        return f"{self.name}_gpo_shared"

    @property
    def typedef(self) -> str:
        return f"typedef {self.type} {self.alias}{'' if self.dynamic else self.size};"

    def declared(self, key: str = "") -> str:
        """The variable, in a function."""
        if self.dynamic:
            return f"{self.alias} *const {self.name} = GPO_LAB_DYNAMIC({self.alias});"
        call = (
            f"GPO_LAB_SHARED_OF(&{key}, {self.alias})"
            if key
            else f"GPO_LAB_SHARED({self.alias})"
        )
        return f"{self.alias} &{self.name} = {call};"


def _arrays(declaration: str, line: int) -> list[_Array]:
    """The shared arrays of one declaration, without its semicolon."""
    words = _ATTRIBUTE.sub(" ", declaration)
    dynamic = bool(re.search(r"\bextern\b", words))
    words = re.sub(r"\b(?:__shared__|extern|static)\b", " ", words)
    if "=" in words:
        raise CompileError(
            "a __shared__ variable has no initial value: let a thread store it, then call "
            "__syncthreads()",
            line,
        )
    arrays: list[_Array] = []
    for part in split(words):
        whole = part if not arrays else f"{arrays[0].type} {part}"
        found = _DECLARATOR.match(whole.strip())
        if not found:
            raise CompileError("the declaration after __shared__ is not understood", line)
        kind = " ".join(found[1].split())
        size = " ".join(found[3].split())
        if dynamic and not re.fullmatch(r"\[\s*\]", size):
            raise CompileError("an extern __shared__ array has no size: write []", line)
        if not dynamic and re.match(r"\[\s*\]", size):
            raise CompileError(
                "a __shared__ array has a size; with extern before it, the launch gives it "
                "(shared_bytes=)",
                line,
            )
        arrays.append(_Array(kind, found[2], size, dynamic))
    return arrays


# ---- the source ----

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"][^\n]*", re.M)
_OWN = re.compile(
    r"cuda(_runtime|_fp16|_bf16|_runtime_api)?\.h(pp)?$|device_launch_parameters\.h$"
)


class Source:
    """One source: `text`, its `kernels`, and `rewritten` for the simulator's compiler."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").rstrip() + "\n"
        self.lines = self.text.split("\n")
        code = mask(self.text)
        self._refuse(code)
        self._functions = functions(code)
        kernels = [_kernel(code, f) for f in self._functions]
        self.kernels = [k for k in kernels if k is not None]
        if not self.kernels:
            raise CompileError("the source has no __global__ function with a body")
        names = [k.name for k in self.kernels]
        for kernel in self.kernels:
            if names.count(kernel.name) > 1:
                raise self.error(f"there are two kernels '{kernel.name}'", kernel.line)
        self._refuse_device_variables(code)
        self._edits: list[tuple[int, int, str]] = []
        self._includes: list[str] = []
        try:
            self._rewrite_shared(code)
        except CompileError as error:
            raise self.error(error.sentence, error.line) from None
        self._mark_loops(code)
        self._move_includes()

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def error(self, sentence: str, line: int, output: str = "") -> CompileError:
        return CompileError(sentence, line, self.line(line), output)

    def _refuse(self, code: str) -> None:
        """What compiles on a GPU alone, or belongs to Python."""
        refused = {
            r"<<<": "the launch belongs to Python: kernel[grid, block](...)",
            r"\b(?:asm|__asm__|__asm)\b": "inline PTX: the simulator runs C++ alone",
        }
        for pattern, sentence in refused.items():
            found = re.search(pattern, code)
            if found:
                raise self.error(sentence, code.count("\n", 0, found.start()) + 1)
        opened: list[int] = []
        for found in re.finditer(r"[{}]", code):
            line = code.count("\n", 0, found.start()) + 1
            if found[0] == "{":
                opened.append(line)
            elif not opened:
                raise self.error("this } closes nothing", line)
            else:
                opened.pop()
        if opened:
            raise self.error("this { is never closed", opened[-1])

    def _refuse_device_variables(self, code: str) -> None:
        """They would keep values from launch to launch, and nothing checks them."""
        for found in re.finditer(
            r"\b__device__\b([^;{(=]*)[;{=]", _ATTRIBUTE.sub(_blank, code)
        ):
            inside = any(f.open < found.start() < f.close for f in self._functions)
            if not inside and not re.search(r"\b(?:const|constexpr|struct)\b", found[1]):
                line = code.count("\n", 0, found.start()) + 1
                raise self.error(
                    "a __device__ variable: pass an array to the kernel, so that its accesses "
                    "are checked and every launch begins with the same values",
                    line,
                )

    def _replace(self, start: int, end: int, text: str) -> None:
        """Puts `text`, which is one line, in place of code; its lines stay."""
        self._edits.append((start, end, text + "\n" * self.text.count("\n", start, end)))

    def _rewrite_shared(self, code: str) -> None:
        for found in re.finditer(r"\b__shared__\b", code):
            at = found.start()
            start = max(code.rfind(c, 0, at) for c in ";{}") + 1
            start += len(code[start:at]) - len(code[start:at].lstrip())
            end = code.find(";", at)
            line = code.count("\n", 0, at) + 1
            if end < 0:
                raise CompileError("the declaration after __shared__ has no semicolon", line)
            arrays = _arrays(code[start:end], line)
            within = [f for f in self._functions if f.open < at < f.close]
            if within:
                texts = [f"{a.typedef} {a.declared()}" for a in arrays]
                self._replace(start, end + 1, " ".join(texts))
                continue
            keys = [f"static const char {a.name}_gpo_key = 0;" for a in arrays]
            self._replace(start, end + 1, " ".join([*keys, *(a.typedef for a in arrays)]))
            for array in arrays:
                self._declare_in_functions(code, array)

    def _declare_in_functions(self, code: str, array: _Array) -> None:
        """A shared array outside of functions becomes one of each that names it."""
        for f in self._functions:
            if re.search(rf"\b{array.name}\b", code[f.open : f.close]):
                text = array.declared(f"{array.name}_gpo_key")
                self._edits.append((f.open + 1, f.open + 1, " " + text))

    def _mark_loops(self, code: str) -> None:
        """A loop's condition becomes GPO_LAB_LOOP(condition): see kernel_sim.h."""
        for found in re.finditer(r"\bgoto\b", code):
            self._edits.append((found.start(), found.start(), "GPO_LAB_GOTO "))
        for found in re.finditer(r"\b(for|while)\s*(?=\()", code):
            start = found.end() + 1
            end = _closing(code, found.end())
            if found[1] == "for":
                inner = code[start:end].split(";")
                if len(inner) != 3:
                    continue  # over a range
                start += len(inner[0]) + 1
                end = start + len(inner[1])
            condition = code[start:end]
            if re.match(r"\s*(?:[A-Za-z_][\w:]*[\s*&]+)+[A-Za-z_]\w*\s*=[^=]", condition):
                continue  # a declaration
            self._edits.append((start, start, "GPO_LAB_LOOP("))
            self._edits.append((end, end, ")" if condition.strip() else "true)"))

    def _move_includes(self) -> None:
        """The source is put into a namespace, includes before it."""
        visible = re.sub(r"//[^\n]*|/\*.*?\*/", _blank, self.text, flags=re.S)
        for found in _INCLUDE.finditer(visible):
            line = visible.count("\n", 0, found.start()) + 1
            if found[1].startswith(("cooperative_groups", "cub/", "thrust/", "mma.h")):
                raise self.error(f"the simulator has no {found[1]}", line)
            if not _OWN.match(found[1]):
                self._includes += [f'#line {line} "{FILE}"', found[0].strip()]
            self._replace(found.start(), found.end(), "")
        for found in re.finditer(r'\bextern\s+"C"(?=\s+[^{\s])', visible):
            self._replace(found.start(), found.end(), "")

    @property
    def rewritten(self) -> str:
        """The translation unit for the simulator."""
        text, last = "", 0
        for start, end, new in sorted(self._edits):
            text += self.text[last:start] + new
            last = end
        text += self.text[last:]
        return "\n".join([*self._unit_head(), text, *self._unit_tail()]) + "\n"

    def _unit_head(self) -> Iterator[str]:
        yield from self._includes
        yield '#line 1 "head_sim.h"'
        yield "#define GPO_LAB_SOURCE"
        yield '#include "kernel_sim.h"'
        yield "namespace gpo_user {"
        yield f'#line 1 "{FILE}"'

    def _unit_tail(self) -> Iterator[str]:
        yield '#line 1 "tail_sim.h"'
        yield "}"
        yield 'extern "C" const gpo_lab::Kernel gpo_lab_kernels[] = {'
        for k in self.kernels:
            yield f'GPO_LAB_KERNEL("{k.name}", gpo_user::{k.scope}{k.name}),'
        yield "};"
        yield f'extern "C" const int gpo_lab_nkernels = {len(self.kernels)};'

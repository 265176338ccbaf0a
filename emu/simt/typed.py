"""Kernels with numba's arithmetic in place of Python's: the same source, whose operators, calls and stores go through functions.

`typed` parses a kernel's source again and compiles it with `a + b` as a call of what `emu.simt.operators` has for it, `f(x)` as one of what
`emu.simt.functions` has for f, and the value of `x[i] = v` in x's type. Files and lines stay, so that reports and breakpoints do. A
function without its source (made by exec, typed at a prompt, changed since) stays as it is.
"""

from __future__ import annotations

import ast
import copy
import functools
import linecache
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from emu.simt.functions import FUNCTIONS, field, integer, stored
from emu.simt.memory import dtype_of
from emu.simt.operators import HIGH, OPERATORS
from emu.simt.state import S

_LITERAL = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
_EXACT = 2048  # integers up to here are exact in every floating type, so that comparisons with them need no conversion


def typed(fn: Any) -> Any:
    """`fn` with numba's arithmetic, made once; `fn` itself where there is no source."""
    if not isinstance(fn, FunctionType):
        return fn
    of, found = fn.__dict__.get("__typed__", (None, None))
    if of is not fn:  # functools.wraps copies what a function holds
        code = _compiled(fn.__code__, "".join(linecache.getlines(fn.__code__.co_filename, fn.__globals__)))
        found = fn
        if code is not None:
            cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
            closure = tuple(cells[name] if name in cells else CellType(_HELPERS[name]) for name in code.co_freevars)
            found = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
            found.__kwdefaults__ = fn.__kwdefaults__
        fn.__dict__["__typed__"] = fn, found
    return found


def casts(types: Any) -> list[Callable[[Any], Any] | None]:
    """What turns arguments into those of a signature: a cast for a number, None for anything else."""
    return [CALLS[t] if _number(t) else None for t in types]


def _number(x: Any) -> bool:
    """Whether x is numba's type of a number, of either package."""
    return any(c.__name__ == "Number" for c in type(x).__mro__)


class Declared:
    """A device function with a signature, whose arguments and result are cast to its types."""

    def __init__(self, fn: Any, signature: Any) -> None:
        functools.update_wrapper(self, fn)
        self.py_func = fn
        self.overloads = {signature.args: SimpleNamespace(signature=signature)}  # numba.vectorize asks for it
        self._arguments = casts(signature.args)
        (self._result,) = casts([signature.return_type])

    def __call__(self, *args: Any) -> Any:
        if S.options.operators == "python":
            return self.py_func(*args)
        given = [cast(a) if cast else a for cast, a in zip(self._arguments, args, strict=True)]
        result = typed(self.py_func)(*given)
        return self._result(result) if self._result else result


class _Calls(dict[Any, Any]):
    """What is called -> what runs in its place: a cast for a numba type, a typed function for one that numba compiles."""

    def __missing__(self, called: Any) -> Any:
        result = called
        if _number(called):
            dtype = dtype_of(called)
            result = integer(dtype) if dtype.kind in "iu" else dtype.type
        elif isinstance(called, Declared):
            pass
        elif isinstance(called, (MethodType, BuiltinFunctionType)) and not isinstance(called.__self__, ModuleType):
            return called  # of an object that need not be kept
        else:  # `fn` of the simulator's device functions; `py_func` of ours and of numba.njit's
            function = getattr(called, "fn" if getattr(called, "_device", False) else "py_func", None)
            if function is not None:
                result = typed(function)
        self[called] = result
        return result


CALLS = _Calls(FUNCTIONS)
# Names that no source can contain: free variables of the compiled function.
_HELPERS = {f"numba.{name}": f for name, f in OPERATORS.items()}
_HELPERS |= {"numba.call": CALLS, "numba.stored": stored, "numba.field": field, "numba.uint64": np.uint64}


Place = tuple[str, int]  # a function's name and first line, decorators included


@functools.cache
def _functions(source: str) -> tuple[dict[Place, list[tuple[ast.AST, str | None]]], dict[Place, CodeType]]:
    """The functions of a file: their trees, each with the class around it, and what Python makes of them."""
    found: dict[Place, list[tuple[ast.AST, str | None]]] = {}
    tree = ast.parse(source)
    for node, inside in _within(tree):
        if isinstance(node, ast.FunctionDef):
            found.setdefault((node.name, min(n.lineno for n in (node, *node.decorator_list))), []).append((node, inside))
        elif isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append((node, inside))
    return found, {_place(code): code for code in _codes(compile(tree, "", "exec", dont_inherit=True))}


def _within(tree: ast.AST, inside: str | None = None) -> Iterator[tuple[ast.AST, str | None]]:
    """All that a tree holds, each with the class around it."""
    for node in ast.iter_child_nodes(tree):
        yield node, inside
        yield from _within(node, node.name if isinstance(node, ast.ClassDef) else inside)


@functools.cache
def _compiled(code: CodeType, source: str) -> CodeType | None:
    """The code of a function with numba's arithmetic, or None where `source` is not what it was made of, or holds two on its line."""
    try:
        found, codes = _functions(source)
    except SyntaxError:  # of something that is no Python file
        return None
    if len(found.get(_place(code), [])) != 1 or codes[_place(code)] != code:
        return None
    ((node, inside),) = found[_place(code)]
    node = _Typing().visit(copy.deepcopy(node))
    function = ast.Expr(node) if isinstance(node, ast.Lambda) else node
    if inside:  # whose name Python puts before names that begin with two underscores
        around = ast.parse(f"class {inside}: pass").body[0]
        around.body, function = [function], around
    free = [ast.Name(name, ast.Store()) for name in (*code.co_freevars, *_HELPERS)]
    body = [ast.Assign(free, ast.Constant(None)), function]
    if code.co_name.isidentifier() and code.co_name not in code.co_freevars:
        body.insert(0, ast.Global([code.co_name]))  # a function that calls itself finds itself where it did
    outer = ast.parse("def outer(): pass")  # never called: decorators and defaults stay where they were
    outer.body[0].body = body
    compiled = compile(ast.fix_missing_locations(outer), code.co_filename, "exec", dont_inherit=True)
    return next(c for c in _codes(compiled) if _place(c) == _place(code))


def _place(code: CodeType) -> Place:
    return code.co_name, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class _Typing(ast.NodeTransformer):
    """Puts the helpers' calls into a function's tree."""

    def __init__(self) -> None:
        self.temporaries = 0

    @staticmethod
    def _helper(name: str, *args: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Call(_load(f"numba.{name}"), list(args), []), args[0])

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"numba.{self.temporaries}"

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Literals beyond int64 are uint64."""
        return self._helper("uint64", node) if type(node.value) is int and node.value > HIGH else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """f(x)."""
        self.generic_visit(node)
        node.func = ast.copy_location(ast.Subscript(_load("numba.call"), node.func, ast.Load()), node.func)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """a + b. Of literals alone it is computed here, where Python's compiler does so, before numba sees it."""
        if all(isinstance(n, _LITERAL) for n in ast.walk(node)):
            with suppress(ArithmeticError, TypeError, ValueError):
                value = eval(compile(ast.Expression(node), "", "eval"))
                return self.visit_Constant(ast.copy_location(ast.Constant(value), node))
        self.generic_visit(node)
        name = type(node.op).__name__
        return ast.copy_location(self._helper(name, node.left, node.right), node) if name in OPERATORS else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """-a and ~a; a negative literal stays."""
        self.generic_visit(node)
        name = type(node.op).__name__
        return self._helper(name, node.operand) if name in OPERATORS and not isinstance(node.operand, ast.Constant) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """a < b < c, which is a < b and b < c with b evaluated once."""
        self.generic_visit(node)
        tests: list[ast.expr] = []
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if right is not node.comparators[-1]:
                name = self._temporary()
                right = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), right), right)
            exact = any(isinstance(x, ast.Constant) and type(x.value) is int and x.value <= _EXACT for x in (left, right))
            name = type(op).__name__
            test = ast.Compare(left, [op], [right]) if exact or name not in OPERATORS else self._helper(name, left, right)
            tests.append(ast.copy_location(test, node))
            left = _load(right.target.id) if isinstance(right, ast.NamedExpr) else right
        return tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), tests), node)

    # --- statements ---

    def _once(self, node: ast.expr, before: list[ast.stmt]) -> ast.expr:
        """An expression that can be written twice: names and literals, else a temporary set `before`."""
        if isinstance(node, (ast.Name, ast.Constant)):
            return node
        if isinstance(node, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._once(e, before) for e in node.elts], ast.Load()), node)
        name = self._temporary()
        before.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], node), node))
        return _load(name)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        """x += v, x[i] += v and x.f += v."""
        self.generic_visit(node)
        name, target = type(node.op).__name__, node.target
        if name not in OPERATORS or any(isinstance(n, (ast.Slice, ast.Starred)) for n in ast.walk(target)):
            return node
        before: list[ast.stmt] = []
        if isinstance(target, ast.Name):
            now: ast.expr = _load(target.id)
        elif isinstance(target, ast.Attribute):
            target.value = self._once(target.value, before)
            now = ast.Attribute(target.value, target.attr, ast.Load())
        else:
            target.value, target.slice = self._once(target.value, before), self._once(target.slice, before)
            now = ast.Subscript(target.value, target.slice, ast.Load())
        value = self._helper(name, ast.copy_location(now, target), node.value)
        return [*before, ast.copy_location(ast.Assign([target], self._into(target, value)), node)]

    def visit_Assign(self, node: ast.Assign) -> Any:
        """x[i] = v and x.f = v, also within tuples, also several in a row: x[i] = y = v."""
        self.generic_visit(node)
        if len(node.targets) == 1:
            return self._assign(node.targets[0], node.value, node)
        name = self._temporary()
        statements = [ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], node.value), node)]
        for target in node.targets:
            statements += self._assign(target, _load(name), node)
        return statements

    def _assign(self, target: ast.expr, value: ast.expr, node: ast.Assign) -> list[ast.stmt]:
        """target = value. The parts of a tuple become temporaries first, unless all are names or one is starred."""
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else []
        if all(isinstance(e, ast.Name) for e in parts) or any(isinstance(e, ast.Starred) for e in parts):
            return [ast.copy_location(ast.Assign([target], self._into(target, value)), node)]
        names = [self._temporary() for _ in parts]
        first = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        statements: list[ast.stmt] = [ast.copy_location(ast.Assign([first], value), node)]
        for part, name in zip(parts, names, strict=True):
            statements += self._assign(part, _load(name), node)
        return statements

    def _into(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """The value that is stored in a target: an element of an array, or a field of a record."""
        if not isinstance(target, (ast.Subscript, ast.Attribute)):
            return value
        owner = target.value
        if not isinstance(owner, ast.Name):
            name = self._temporary()
            owner, target.value = ast.copy_location(ast.NamedExpr(ast.Name(name, ast.Store()), owner), owner), _load(name)
        if isinstance(target, ast.Attribute):
            return self._helper("field", owner, value, ast.Constant(target.attr))
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            return self._helper("field", owner, value, target.slice)
        return self._helper("stored", owner, value)


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())

"""einsum: sums of products by labels, contracted two operands at a time as batched matrix products.

Labels are characters; dimensions under an ellipsis get labels of their own, counted from the right. Dimensions of size 1 broadcast.
"""
from __future__ import annotations

import math
from typing import Any

from ._C import Tensor


def _sublists(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    """The form einsum(op, [0, 1], op, [1, 2], [0, 2]) as an equation."""

    def text(labels: Any) -> str:
        return "".join("..." if n is Ellipsis else chr(ord("A") + n if n < 26 else ord("a") + n - 26) for n in labels)

    pairs = len(args) // 2
    equation = ",".join(text(args[2 * k + 1]) for k in range(pairs))
    return equation + ("->" + text(args[-1]) if len(args) % 2 else ""), list(args[:2 * pairs:2])


def _terms(equation: str, operands: list[Tensor]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand, and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        few = "fewer" if len(terms) > len(operands) else "more"
        raise RuntimeError(f"einsum(): {few} operands were provided than specified in the equation")
    labels, deepest = [], 0
    for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
        head, dots, tail = term.partition("...")
        for c in head + tail:
            if not c.isascii() or not c.isalpha():
                raise RuntimeError(f"einsum(): invalid subscript given at index {equation.find(c)} in the equation string, subscripts "
                                   f"must be in "
                                   "[a-zA-Z]")
        inner = x.dim() - len(head) - len(tail)
        if inner < 0 or (inner and not dots):
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({len(head + tail)}) "
                               + ("is more than the number of dimensions" if inner < 0 else "does not match the number of dimensions")
                               + f" ({x.dim()}) for operand {k}" + ("" if inner < 0 else " and no ellipsis was given"))
        deepest = max(deepest, inner)
        labels.append([*head, *(f".{inner - 1 - j}" for j in range(inner)), *tail])
    dots_out = [f".{deepest - 1 - j}" for j in range(deepest)]
    if not arrow:
        flat = [c for term in labels for c in term if len(c) == 1]
        return labels, dots_out + sorted(c for c in set(flat) if flat.count(c) == 1)
    head, dots, tail = right.partition("...")
    out = [*head, *(dots_out if dots else []), *tail]
    for c in out:
        if out.count(c) > 1:
            raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
        if len(c) == 1 and not any(c in term for term in labels):
            raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")
    return labels, out


def _sizes(labels: list[list[str]], operands: list[Tensor]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for k, (term, x) in enumerate(zip(labels, operands, strict=True)):
        for d, c in enumerate(term):
            have = sizes.setdefault(c, x.shape[d])
            if have == 1:
                sizes[c] = x.shape[d]
            elif x.shape[d] not in (1, have):
                raise RuntimeError(f"einsum(): subscript {c} has size {x.shape[d]} for operand {k} which does not broadcast with "
                                   f"previously seen "
                                   f"size {have}")
    return sizes


def _diagonals(x: Tensor, term: list[str]) -> tuple[Tensor, list[str]]:
    """A label that stands twice takes the diagonal of its two dimensions."""
    term = list(term)
    for c in sorted(set(term), key=term.index):
        while term.count(c) > 1:
            a = term.index(c)
            b = term.index(c, a + 1)
            if x.shape[a] != x.shape[b]:
                raise RuntimeError(f"einsum(): subscript {c} is repeated for operand but the sizes don't match, {x.shape[a]} != "
                                   f"{x.shape[b]}")
            x = x.diagonal(0, a, b)
            term = [t for j, t in enumerate(term) if j not in (a, b)] + [c]
    return x, term


def _sum_out(x: Tensor, term: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    gone = [d for d, c in enumerate(term) if c not in needed]
    return (x.sum(gone), [c for c in term if c in needed]) if gone else (x, term)


def _arrange(x: Tensor, term: list[str], groups: list[list[str]], sizes: dict[str, int]) -> Tensor:
    """x with its labels in the order of the groups, one dimension a group."""
    x = x.permute([term.index(c) for group in groups for c in group])
    wanted = [sizes[c] for group in groups for c in group]
    return x.expand(wanted).reshape([math.prod(sizes[c] for c in group) for group in groups])


_Term = tuple[Tensor, list[str]]


def _contract(a: _Term, b: _Term, needed: set[str], sizes: dict[str, int]) -> _Term:
    (x, tx), (y, ty) = a, b
    both = [c for c in tx if c in ty]
    batch, summed = [c for c in both if c in needed], [c for c in both if c not in needed]
    left, right = [c for c in tx if c not in both], [c for c in ty if c not in both]
    own = dict(sizes)
    for c in both:  # labels of size 1 on both sides so far: a later operand widens them
        p, q = x.shape[tx.index(c)], y.shape[ty.index(c)]
        own[c] = q if p == 1 else p
    for t, term, only in ((x, tx, left), (y, ty, right)):
        own.update({c: t.shape[term.index(c)] for c in only})
    groups = [batch] if batch else []
    product = _arrange(x, tx, [*groups, left, summed], own) @ _arrange(y, ty, [*groups, summed, right], own)
    labels = batch + left + right
    return product.reshape([own[c] for c in labels]), labels


def einsum(*args: Any) -> Tensor:
    """einsum("ij,jk->ik", a, b): products summed over the labels that the result lacks. Also einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    if not args:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                         "subscripts list")
    equation, operands = (args[0], list(args[1:])) if isinstance(args[0], str) else _sublists(args)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    labels, out = _terms(equation, operands)
    sizes = _sizes(labels, operands)
    terms = [_diagonals(x, term) for x, term in zip(operands, labels, strict=True)]
    for k in range(len(terms)):
        others = {c for j, (_, term) in enumerate(terms) if j != k for c in term}
        terms[k] = _sum_out(*terms[k], others | set(out))
    while len(terms) > 1:
        needed = set(out).union(*(term for _, term in terms[2:]))
        terms[:2] = [_contract(terms[0], terms[1], needed, sizes)]
    x, term = _sum_out(*terms[0], set(out))
    missing = [c for c in out if c not in term]  # an ellipsis that no operand fills
    if missing:
        raise RuntimeError(f"einsum(): output subscript {missing[0]} does not appear in the equation for any input operand")
    return x.permute([term.index(c) for c in out])

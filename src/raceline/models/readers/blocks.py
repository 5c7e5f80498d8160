"""From ops with the path of their module to blocks: equal layers become one block that repeats."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from raceline.models.graph import AnyOp, Block, Tensor

_INDEX = re.compile(r"(?<![^./_])\d+(?![^./_])")
_NUMBER = re.compile(r"(\d+)")


class Placed(NamedTuple):
    """An op, the path of the module that runs it (``layers.3.mlp.up``), and the tensors it makes."""

    path: str
    op: AnyOp
    tensors: tuple[Tensor, ...] = ()


def split_path(path: str) -> tuple[str, str]:
    """(block, name inside): ``a.layers.3.mlp.up`` stands in ``a.layers.3`` as ``mlp.up``."""
    found = _INDEX.search(path)
    if found is None:
        block, _, name = path.partition(".")
        return block, name or path
    return path[: found.end()], path[found.end() :].lstrip("./_") or path[: found.start()].rstrip("./_")


def natural(path: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts ``layers.10`` after ``layers.9``."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in _NUMBER.split(path[:1000]) if part
    )


def blocks_of(placed: Iterable[Placed]) -> tuple[Block, ...]:
    """Blocks in the order in which their first op stands; equal neighbours are one that repeats."""
    gathered: dict[str, list[Placed]] = {}
    for item in placed:
        gathered.setdefault(split_path(item.path)[0], []).append(item)
    blocks: list[Block] = []
    for path, items in gathered.items():
        made = _block(path, items)
        last = blocks[-1] if blocks else None
        if last is not None and (last.ops, last.tensors, last.name) == (made.ops, made.tensors, made.name):
            blocks[-1] = msgspec.structs.replace(last, repeat=last.repeat + 1)
        else:
            blocks.append(made)
    return _with_roles(blocks)


def _block(path: str, items: list[Placed]) -> Block:
    """One block: names lose the block's own path, and equal ops of one name (experts) are counted."""
    counted: dict[AnyOp, int] = {}
    tensors: dict[Tensor, None] = {}
    renamed: dict[str, str] = {}
    for item in items:
        for tensor in item.tensors:
            name = renamed.setdefault(tensor.name, f"t{len(renamed)}")
            tensors[msgspec.structs.replace(tensor, name=name)] = None
    for item in items:
        op = msgspec.structs.replace(
            item.op,
            name=_INDEX.sub("*", split_path(item.path)[1]),
            keeps=tuple(renamed[name] for name in item.op.keeps if name in renamed),
            keeps_for_weight=tuple(renamed[name] for name in item.op.keeps_for_weight if name in renamed),
        )
        counted[op] = counted.get(op, 0) + item.op.count
    ops = tuple(msgspec.structs.replace(op, count=number) for op, number in counted.items())
    return Block(name=_block_name(path), ops=ops, tensors=tuple(tensors))


def _block_name(path: str) -> str:
    return _INDEX.sub("", path).strip("./_") or "model"


def _with_roles(blocks: list[Block]) -> tuple[Block, ...]:
    """What stands before the first repeated block is input, what stands after the last is output."""
    repeated = [index for index, block in enumerate(blocks) if block.repeat > 1]
    if not repeated:
        return tuple(blocks)
    return tuple(
        msgspec.structs.replace(
            block, role="input" if index < repeated[0] else "output" if index > repeated[-1] else "body"
        )
        for index, block in enumerate(blocks)
    )

"""A function as basic blocks, with what lives from block to block.

A block begins at a label, behind a branch, at an instruction that waits for other threads, and behind one. A guarded instruction that is
no branch becomes a block that is jumped over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from .faults import Unknown
from .parser import Address, Function, Group, Instruction, Label, Negated, Operand, Register, Symbol

Line: TypeAlias = "tuple[int, Instruction]"
WAITING = ("shfl", "vote", "match", "redux", "bar", "barrier", "activemask", "elect")
LEAVING = ("bra", "brx", "ret", "exit", "trap")
_NO_RESULT = ("st", "red", "bra", "brx", "bar", "barrier", "membar", "fence", "ret", "exit", "trap", "nanosleep", "prefetch", "prefetchu")


@dataclass
class Block:
    """Straight-line code. `last` leaves it (a branch, an exit), or is None where it runs on into the next block. `waits`: its first
    instruction is one that waits for others."""

    instructions: list[Instruction]
    last: Instruction | None
    waits: bool
    targets: tuple[int, ...] = ()  # of `last`: where it goes if its guard holds
    skips: Register | Negated | None = None  # runs nothing where this does not hold
    falls: bool = True  # may go on into the next block
    live_out: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()  # registers that may be read here before they were written


@dataclass
class Program:
    function: Function
    blocks: list[Block] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)  # those that live from block to block: bytes
    read: frozenset[str] = frozenset()  # registers that anything reads


def compiled(function: Function) -> Program:
    """The function's blocks, with their targets and what is alive behind each."""
    blocks, labels = _split(function)
    for at, block in enumerate(blocks):
        block.targets = _targets(block, labels, function)
        block.falls = block.last is None or (block.last.guard is not None)
        if block.falls and at + 1 == len(blocks):
            raise Unknown(f"{function.name} ends without ret")
    program = Program(function, blocks)
    _live(program)
    _undefined(program)
    return program


def _split(function: Function) -> tuple[list[Block], dict[str, int]]:
    blocks: list[Block] = [Block([], None, False)]
    labels: dict[str, int] = {}

    def fresh() -> Block:
        """An empty block at the end."""
        if blocks[-1].instructions or blocks[-1].last is not None or blocks[-1].skips is not None:
            blocks.append(Block([], None, False))
        return blocks[-1]

    for line in function.body:
        if isinstance(line, Label):
            fresh()
            labels[line.name] = len(blocks) - 1
        elif line.opcode in LEAVING:
            blocks[-1].last = line
            blocks.append(Block([], None, False))
        elif line.opcode in WAITING or line.guard is not None:
            block = fresh()
            block.waits, block.skips = line.opcode in WAITING, line.guard
            block.instructions.append(line)
            blocks.append(Block([], None, False))
        else:
            blocks[-1].instructions.append(line)
    ends = {len(blocks) - 1} - set(labels.values())
    if ends and not blocks[-1].instructions and blocks[-1].last is None and len(blocks) > 1:
        blocks.pop()
    return blocks, labels


def _targets(block: Block, labels: dict[str, int], function: Function) -> tuple[int, ...]:
    if block.last is None or block.last.opcode not in ("bra", "brx"):
        return ()
    target = block.last.operands[-1]
    if not isinstance(target, Symbol):
        raise Unknown(block.last.text)
    names = function.tables[target.name] if block.last.opcode == "brx" else (target.name,)
    return tuple(labels[name] for name in names)


# --- what instructions read and write ------------------------------------------------------------------------------------------------


def registers_of(operand: Operand) -> list[Register]:
    """The registers that an operand names."""
    match operand:
        case Register():
            return [operand]
        case Negated(register):
            return [register]
        case Address(base=Register() as base):
            return [base]
        case Group(parts):
            return [r for part in parts for r in registers_of(part)]
    return []


def has_result(instruction: Instruction) -> bool:
    return instruction.opcode not in _NO_RESULT or "red" in instruction.modifiers  # bar.red has one


def written(instruction: Instruction) -> list[Register]:
    if not has_result(instruction) or instruction.opcode == "call":
        return []
    return registers_of(instruction.operands[0])


def reads(instruction: Instruction) -> list[Register]:
    sources = instruction.operands[1:] if has_result(instruction) and instruction.opcode != "call" else instruction.operands
    guard = registers_of(instruction.guard)
    return [r for operand in sources for r in registers_of(operand)] + guard


def _live(program: Program) -> None:
    """Which registers are read behind each block, before they are written again."""
    blocks = program.blocks
    used, made = zip(*map(_uses, blocks), strict=True)
    alive: list[frozenset[str]] = [frozenset()] * len(blocks)
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(blocks))):
            after = frozenset().union(*(alive[n] for n in successors(program, at)))
            now = used[at] | (after - made[at])
            changed = changed or now != alive[at]
            alive[at], blocks[at].live_out = now, after
    sizes = {r.name: r.size for b in blocks for i in _all(b) for r in (*reads(i), *written(i))}
    across = frozenset().union(*alive)
    program.registers = {name: size for name, size in sizes.items() if name in across}
    program.read = frozenset(r.name for b in blocks for i in _all(b) for r in reads(i))


def _all(block: Block) -> list[Instruction]:
    return [*block.instructions, *([block.last] if block.last is not None else [])]


def _uses(block: Block) -> tuple[frozenset[str], frozenset[str]]:
    """What a block reads of what was there before, and what it surely writes."""
    used: set[str] = set()
    made: set[str] = set()
    for instruction in _all(block):
        used |= {r.name for r in reads(instruction)} - made
        made |= {r.name for r in written(instruction)}
    return frozenset(used), frozenset() if block.skips is not None else frozenset(made)


def successors(program: Program, at: int) -> tuple[int, ...]:
    block = program.blocks[at]
    return (*block.targets, *([at + 1] if block.falls else []))


def _undefined(program: Program) -> None:
    """Which registers may come to a block unwritten and be read in it: these are watched lane by lane."""
    blocks = program.blocks
    everything = frozenset(program.registers)
    defined = [frozenset[str]()] + [everything] * (len(blocks) - 1)
    work = list(range(len(blocks)))
    while work:
        at = work.pop(0)
        after = defined[at] | _uses(blocks[at])[1]
        for n in successors(program, at):
            if n and not defined[n] <= after:
                defined[n] &= after
                work.append(n)
    for at, block in enumerate(blocks):
        block.undefined = _uses(block)[0] - defined[at]

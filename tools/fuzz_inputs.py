"""Broken inputs by rule: changes to bytes, to arrays, to trees of plain values. Input n of a target is a function of n alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63), 10**20, 10**400)
FLOATS = (0.0, -0.0, 0.5, 1e-320, 1e38, 1e39, 1e308, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "", " ", "0", "-1", "nan", "inf", "1e400", "[/weight]", "[red]", "<script>", "\\input{x}", "a" * 3000, "é", "\u202e", "\x00",
    "forward", "__class__", "settings", "../../x", "none", "all", "train", "true", "9" * 50, "Ⅷ", "💥", ",", '"', "\n",
)  # fmt: skip
DTYPES = (
    "i1",
    "u1",
    "i2",
    "u2",
    "i4",
    "u4",
    "i8",
    "u8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "b1",
    "U3",
    "S2",
    "M8[s]",
    "m8[s]",
    ">i4",
    "V4",
)


def broken_bytes(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, cut, doubled, or a number written over them."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at, kind = rng.randrange(len(data) + 1), rng.randrange(7)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 64, len(data)))]
        elif kind == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 16))))
        elif kind == 4:
            data[at:at] = data[at : at + rng.choice((1, 8, 128))]
        elif kind == 5:
            size = rng.choice((2, 4, 8))
            data[at : at + size] = (rng.choice(NUMBERS) % (1 << (8 * size))).to_bytes(
                size, rng.choice(("little", "big"))
            )
        else:
            other = rng.randrange(len(data) + 1)
            data[at : at + 16] = data[other : other + 16]
    return bytes(data)


def broken_text(text: str, rng: random.Random) -> str:
    """Cells, lines and marks of a table changed."""
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = 0 if rng.random() < 0.3 else rng.randrange(len(lines))
        cells = lines[at].split(",")
        kind, k = rng.randrange(8), rng.randrange(len(cells))
        if kind < 3:
            cells[k] = any_word(rng)
        elif kind == 3:
            del cells[k]
        elif kind == 4:
            cells.insert(k, cells[k])
        elif kind == 5:
            rng.shuffle(cells)
        elif kind == 6:
            lines.insert(at, lines[at])
        else:
            cells = [rng.choice(("", '"', "a,b", "\x00", ";")).join(cells)]
        lines[at] = ",".join(cells)
    return "\n".join(lines)


def any_word(rng: random.Random) -> str:
    return rng.choice((*WORDS, *map(str, NUMBERS), *map(str, FLOATS)))


def broken_array(values: np.ndarray, rng: random.Random) -> np.ndarray:
    """An entry, the type, the shape or the length changed."""
    values, kind = values.copy(), rng.randrange(9)
    if kind < 4 and values.size and values.dtype.kind in "fiub":
        flat = values.reshape(-1)
        at = rng.randrange(flat.size)
        try:
            flat[at] = (
                rng.choice(FLOATS) if flat.dtype.kind == "f" else rng.choice((*NUMBERS, flat.size, flat.size + 1))
            )
        except (OverflowError, ValueError, TypeError):
            wide = values.astype(rng.choice(("i8", "f8")))
            wide.reshape(-1)[at] = rng.choice((2**31, 2**40, -1, 2**62))
            return wide
        return values
    try:
        if kind == 4:
            return values.astype(rng.choice(DTYPES))
        if kind == 5:
            return values.reshape(rng.choice(((-1,), (1, -1), (-1, 1), (1, 1, -1), (2, -1))))
    except (ValueError, TypeError):
        return values.reshape(-1)[:0]
    if kind == 6:
        return values[: rng.randrange(len(values) + 1)] if values.ndim else values
    if kind == 7 and values.ndim:
        return np.concatenate([values, values[: rng.randrange(len(values) + 1)]])
    return np.zeros(rng.choice(((), (0,), (1,), (3, 3), (1000,), (0, 5), (2, 0))), rng.choice(DTYPES))


def broken_tree(value: Any, rng: random.Random) -> Any:
    """A copy of plain values with one to three places changed."""
    value = copied(value)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        holder, key = rng.choice(places) if places else (None, None)
        kind = rng.randrange(7)
        if holder is None:
            return any_value(rng)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[any_word(rng)] = holder[key]
        elif kind == 2:
            other, name = rng.choice(places)
            try:
                holder[key] = copied(other[name])
            except (KeyError, IndexError):
                continue
        else:
            holder[key] = any_value(rng)
    return value


def any_value(rng: random.Random, depth: int = 0) -> Any:
    kinds: list[Any] = [
        lambda: rng.choice(NUMBERS), lambda: rng.choice(FLOATS), lambda: rng.choice(WORDS), lambda: rng.choice((True, False)),
        list, dict,
    ]  # fmt: skip
    if depth < 2:
        kinds += [
            lambda: [any_value(rng, depth + 1) for _ in range(rng.randrange(4))],
            lambda: {any_word(rng): any_value(rng, 2)},
        ]
    return rng.choice(kinds)()


def _places(value: Any) -> Any:
    """Every (container, key) of a tree."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    return [copied(inner) for inner in value] if isinstance(value, list | tuple) else value


def toml_of(value: Any, prefix: str = "") -> str:
    """TOML text of a table of plain values; keys and texts as JSON strings, which TOML reads alike."""
    import json

    def key(name: str) -> str:
        return json.dumps(str(name))

    def inline(one: Any) -> str:
        if isinstance(one, bool):
            return str(one).lower()
        if isinstance(one, float):
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(str(one), repr(one))
        if isinstance(one, int):
            return str(one)
        if isinstance(one, dict):
            return "{" + ", ".join(f"{key(k)} = {inline(v)}" for k, v in one.items() if v is not None) + "}"
        if isinstance(one, list | tuple):
            return "[" + ", ".join(inline(v) for v in one if v is not None) + "]"
        return json.dumps(str(one)).replace("\\u007f", "")

    return (
        "\n".join(f"{key(k)} = {inline(v)}" for k, v in value.items() if v is not None) + "\n"
        if isinstance(value, dict)
        else inline(value)
    )

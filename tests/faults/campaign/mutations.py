"""Ways to spoil a file: blind ones, and ones that know text, JSON and the headers of safetensors and numpy."""

import json
import random
import re
from pathlib import Path
from typing import Any

from campaign.crafted import binary
from isosent.io import checksum

_SEAL = re.compile(rb"xxh3:[0-9a-f]{32}")
_BYTES = (
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\t",
    b'"',
    b"\xed\xa0\x80",
    b"\xc3",
    b",",
    b"\x1b[2J",
    b"\x85",
)
_TEXTS = (
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1",
    "0",
    "9" * 400,
    "1e308",
    "",
    " ",
    "\u2028",
    "\U0010ffff",
    "\uff2e\uff21\uff2e",
    "١٢",
    "0x10",
    "1_0",
    "../../x",
    "None",
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2**31,
        2**63,
        2**64,
        10**30,
        -(2**63),
        1e308,
        -1e308,
        0.5,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        "x",
        "\0",
        "\ud800",
        "../../../etc/passwd",
        "/",
        "-1",
        "nan",
        "a" * 100_000,
        "\n",
        "\x1b[31m",
        "float64",
        "BF16",
    ),
    *([], {}, [[]], [None], {"": None}, [0] * 1000, ["x"] * 3, [-1, -1], [2**62, 2**62], [0, 2**40]),
)
_SHAPES = (
    *(
        "(60, 8)",
        "(60,)",
        "()",
        "60",
        "(60, 0)",
        "(0, 8)",
        "(60, 8, 1)",
        "(-1, 8)",
        "(60, -8)",
        "(True, 8)",
        "(1.5, 8)",
    ),
    *("(2**40, 8)", "(1099511627776, 8)", "(9223372036854775808, 8)"),
)


def mutated(name: str, content: bytes, chosen: random.Random) -> bytes:
    """Spoil the content of a file; most of the time in a way that its ending suggests."""
    path = Path(name)
    ways = [_blind]
    if path.suffix in (".json", ".jsonl"):
        ways += [_json, _json, _json]
    if path.suffix in (".safetensors",) or path.name == "kept":
        ways += [_header, _header]
    if path.suffix == ".npy":
        ways += [_npy, _npy]
    if path.suffix == ".faiss":
        ways += [binary] * 9
    if path.suffix in (".parquet", ".safetensors"):
        ways += [binary]
    if path.name == "tokenizer.json":
        ways += [_tokenizer]
    if path.suffix == ".yaml":
        ways += [_yaml, _yaml]
    if path.suffix not in (".npy", ".fvecs", ".safetensors", ".parquet", ".bin", ".gz", ".faiss"):
        ways += [_text, _text]
    changed = chosen.choice(ways)(content, chosen)
    return resealed(changed) if chosen.random() < 0.7 else changed


def resealed(content: bytes) -> bytes:
    """Give a file that holds its own checksum the right one again, so that what follows that check is reached."""
    seals = set(_SEAL.findall(content))
    if len(seals) != 1:
        return content
    unsealed = content.replace(seals.pop(), checksum.UNSEALED.encode())
    return checksum.sealed(unsealed) if unsealed.count(checksum.UNSEALED.encode()) == 1 else content


def _blind(content: bytes, chosen: random.Random) -> bytes:
    size = len(content)
    start, stop = sorted(chosen.randrange(size + 1) for _ in range(2))
    stop = min(stop, start + 2 ** chosen.randrange(12))
    match chosen.randrange(9):
        case 0:
            return content[:start]
        case 1:
            return content[:start] + content[stop:]
        case 2:
            return content[:start] + chosen.randbytes(stop - start) + content[stop:]
        case 3:
            return content[:start] + chosen.choice(_BYTES) * chosen.choice((1, 1, 3, 5000)) + content[start:]
        case 4:
            return content[:start] + content[start:stop] * 2 + content[stop:]
        case 5:
            return content + chosen.randbytes(chosen.choice((1, 8, 1000)))
        case 6:
            flipped = bytearray(content)
            for _ in range(chosen.choice((1, 1, 4, 50))):
                if flipped:
                    flipped[chosen.randrange(size)] ^= 1 << chosen.randrange(8)
            return bytes(flipped)
        case 7:
            return content[:start] + bytes(stop - start) + content[stop:]
        case _:
            return chosen.choice(
                (b"", b"\0", b"\0" * 1000, b"[" * 100_000, b"{", b"\x93NUMPY", b"PAR1", b"\n", chosen.randbytes(300))
            )


def _text(content: bytes, chosen: random.Random) -> bytes:
    text = content.decode("utf-8", "replace")
    match chosen.randrange(8):
        case 0:
            return text.encode(chosen.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le")))
        case 1:
            return text.encode(chosen.choice(("latin-1", "cp949", "cp1251")), "replace")
        case 2:
            return text.replace("\n", chosen.choice(("\r\n", "\r", "\n\n", "\u2028", " "))).encode()
        case 3:  # a field or number becomes another one
            return re.sub(r"(?<![^\s,>\"])[^\s,<>\"]+", lambda found: _at(chosen, found[0]), text).encode()
        case 4:
            lines = text.splitlines(keepends=True) or [""]
            lines[chosen.randrange(len(lines))] = chosen.choice(
                ("\n", "\t\n", "\t" * 1000 + "\n", "x\n", "a" * 300_000 + "\n", '"\n')
            )
            return "".join(lines).encode()
        case 5:
            lines = text.splitlines(keepends=True)
            chosen.shuffle(lines)
            return "".join(lines[: chosen.randrange(len(lines) + 1)]).encode()
        case 6:
            lines = text.splitlines(keepends=True)
            return "".join(line for line in lines for _ in range(chosen.choice((1, 1, 1, 0, 2)))).encode()
        case _:
            return _blind(content, chosen)


def _at(chosen: random.Random, field: str) -> str:
    return chosen.choice(_TEXTS) if chosen.random() < 0.03 else field


def _json(content: bytes, chosen: random.Random) -> bytes:
    lines = [content]
    number = 0
    try:
        document = json.loads(content)
    except ValueError:
        lines = content.splitlines(keepends=True) or [b"{}"]
        number = chosen.randrange(len(lines))
        try:
            document = json.loads(lines[number])
        except ValueError:
            return _blind(content, chosen)
    for _ in range(chosen.choice((1, 1, 1, 2))):
        document = _changed(document, chosen)
    spelt = json.dumps(document, indent=chosen.choice((None, 2)) if len(lines) == 1 else None)
    if chosen.random() < 0.05:
        spelt = spelt.replace("[", "[" * 50_000, 1) if "[" in spelt else "[" * 100_000
    if chosen.random() < 0.05:
        spelt = spelt.replace("{", '{"checksum": 1, ', 1)
    lines[number] = spelt.encode("utf-8", "surrogatepass") + b"\n"
    return b"".join(lines)


def _changed(value: Any, chosen: random.Random) -> Any:
    """Change one place of a document: any value, name or length of a list."""
    places = list(_places(value))
    if not places:
        return chosen.choice(_VALUES)
    owner, key = chosen.choice(places)
    match chosen.randrange(6):
        case 0:
            del owner[key]
        case 1 if isinstance(owner, dict):
            owner[chosen.choice(("", "x", "__class__", "\0", f"{key} "))] = owner.pop(key)
        case 2 if isinstance(owner[key], int | float) and not isinstance(owner[key], bool):
            owner[key] = chosen.choice(
                (-owner[key], owner[key] * 1000, owner[key] + 1, owner[key] - 1, str(owner[key]), float(owner[key]))
            )
        case 3 if isinstance(owner[key], list) and owner[key]:
            owner[key] = chosen.choice((owner[key] * 2, owner[key][:-1], owner[key][::-1]))
        case 4:
            owner[key] = owner[chosen.choice(list(owner))] if isinstance(owner, dict) else owner[0]
        case _:
            owner[key] = chosen.choice(_VALUES)
    return value


def _places(value: Any) -> Any:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys)[:200]:
        yield value, key
        yield from _places(value[key])


def _tokenizer(content: bytes, chosen: random.Random) -> bytes:
    """A step makes texts longer, or a limit is taken away."""
    try:
        document = json.loads(content)
    except ValueError:
        return _blind(content, chosen)
    longer = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * chosen.choice((2, 10, 1000))}
    between = {"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * chosen.choice((1, 20))}
    sequence = {"id": "A", "type_id": 0}
    document |= chosen.choice(
        (
            {"normalizer": {"type": "Sequence", "normalizers": [chosen.choice((longer, between))] * 20}},
            {"normalizer": {"type": "Prepend", "prepend": "a " * chosen.choice((1, 1_000_000))}},
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{"Sequence": sequence}] * chosen.choice((1, 20_000)),
                    "pair": [{"Sequence": sequence}],
                    "special_tokens": {},
                }
            },
            {
                "pre_tokenizer": {
                    "type": "Metaspace",
                    "replacement": "_",
                    "prepend_scheme": chosen.choice(("always", "never", "x")),
                    "split": True,
                }
            },
            {"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9}},
            {"padding": {"strategy": {"Fixed": 1 << 40}, "direction": "Left", "pad_id": 0, "pad_type_id": 0}},
        )
    )
    return json.dumps(document).encode()


def _yaml(content: bytes, chosen: random.Random) -> bytes:
    """A value becomes one that YAML alone can spell."""
    lines = content.decode("utf-8", "replace").splitlines()
    number = chosen.randrange(len(lines) or 1)
    if not lines or ":" not in lines[number]:
        return _blind(content, chosen)
    aliases = ["&a0 [x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20))]
    value = chosen.choice(
        (
            *(f"[{', '.join(aliases)}]", "&a [*a]", "&a {b: *a}", "1:" * 9000 + "1", "[" * 9000),
            *("!!python/object/apply:os.getcwd []", "!!binary =", "0o777", ".inf", "2001-99-99", "!!set {a, b}"),
            *("<<: *a", "? [a]\n: b", "~", "|"),
        )
    )
    lines[number] = f"{lines[number].partition(':')[0]}: {value}"
    return "\n".join(lines).encode()


def _header(content: bytes, chosen: random.Random) -> bytes:
    """The JSON header of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    if chosen.random() < 0.15:
        size = chosen.choice((0, 1, 2**63, 2**64 - 1, size + 1, size - 1, 10**8))
        return size.to_bytes(8, "little") + content[8:]
    changed = _json(header, chosen).strip()
    changed += b" " * (-len(changed) % 8)
    return len(changed).to_bytes(8, "little") + changed + content[8 + size :]


def _npy(content: bytes, chosen: random.Random) -> bytes:
    """The header of an array."""
    size = int.from_bytes(content[8:10], "little")
    descr = chosen.choice(
        ("<f4", "<f8", "|b1", "<U8", "|O", "<c8", ">f4", "<i8", "|u1", "|S4", "<M8[s]", "|V4", "<f2", "<f16")
    )
    shape = chosen.choice(_SHAPES)
    order = chosen.choice(("False", "True", "1", "None"))
    more = chosen.choice(("", "", "", "'x': 1, ", "'descr': __import__('os'), "))
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, {more}}}".encode()
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    version = chosen.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\x09\0"))
    return content[:6] + version + len(header).to_bytes(2, "little") + header + content[10 + size :]

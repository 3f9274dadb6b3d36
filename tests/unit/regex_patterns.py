"""Every pattern of the code base, and texts that make patterns slow."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from docs.tables import PACKAGES

ROOT = Path(__file__).parents[1]
REPEATED_UNITS = (
    ".", "…", "。", "A-", "111 ", "1,", "1.", "a.", "aaaa@", "a@a.", "1",
    "Mr. ", "x. ", "x.  ", "x.\t\t\t\t", " ", "\n", "\n\n", "\n \n", "- ", "[", "]", "[]", "[](",
    "(", "{", '"', "'", "`", "```\n", "a,", ",", "<", "<a ", "<!--", "</", "&", "&#", "a", "A",
    "é", "a\u0301", "\u0301", "*", "_", "#", "# ", "|", "| ", "|-", "-", "--", "\\",
    "/", ":", ";", "$", "$$", "%", "§", "A.", "A. ", "A'",
    "a-", "a b ", "A b ", "Ab Cd ", "Ab of ", "R$ 1", "1 de ", "in ", "II ", "http://", "1/", "1-",
    "漢", "한", "🏳", "\u200d", "\u202e", "\u2028", "\t", "\r\n", "\x00", "0A", "A1/",
    "a\n", "1\n", "1) ",
)  # fmt: skip
"""The part that a hostile text repeats."""
MATCH_METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")


def import_modules() -> Iterator[Any]:
    for package in PACKAGES:
        root = importlib.import_module(package)
        if root.__file__:  # else a folder of packages
            yield root
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


@dataclass(frozen=True)
class PatternUse:
    """A pattern and the methods that the code calls on it."""

    name: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]

    def __call__(self, text: str) -> None:
        subject: Any = text.encode() if isinstance(self.pattern.pattern, bytes) else text
        for method in self.methods:
            match method:
                case "match" | "fullmatch":
                    getattr(self.pattern, method)(subject)
                case _:
                    deque(self.pattern.finditer(subject), maxlen=0)


def list_pattern_uses() -> list[PatternUse]:
    """List compiled patterns of modules and classes, and patterns written at their call.

    A pattern whose calls are not visible is tried with all methods.
    """
    found: dict[re.Pattern[Any], PatternUse] = {}
    all_modules = list(import_modules())
    sources = {module.__name__: Path(str(module.__file__)).read_text() for module in all_modules}
    called: dict[tuple[str, str], set[str]] = {}
    for module_name, source in sources.items():
        for name, method in re.findall(rf"\b(\w+)\.({'|'.join(MATCH_METHODS)})\b", source):
            called.setdefault((module_name if name.startswith("_") else "", name), set()).add(
                method
            )
    for module in all_modules:
        for name, value in vars(module).items():
            for pattern in _find_patterns(value, module.__name__):
                methods = frozenset(
                    called.get((module.__name__ if name.startswith("_") else "", name), ())
                    if value is pattern
                    else ()
                ) or frozenset({"finditer", "fullmatch", "match"})
                known_use = found.get(
                    pattern, PatternUse(f"{module.__name__}.{name}", pattern, frozenset())
                )
                found[pattern] = replace(known_use, methods=known_use.methods | methods)
        for method, pattern in _find_inline_patterns(sources[module.__name__]):
            known_use = found.get(
                pattern, PatternUse(f"{module.__name__} {pattern.pattern!r}", pattern, frozenset())
            )
            found[pattern] = replace(known_use, methods=known_use.methods | {method})
    return list(found.values())


def _find_patterns(value: object, module: str, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    match value:
        case re.Pattern():
            yield value
        case dict() if depth < 3:
            yield from (
                pattern
                for item in [*value.keys(), *value.values()]
                for pattern in _find_patterns(item, module, depth + 1)
            )
        case list() | tuple() | set() | frozenset() if depth < 3:
            yield from (
                pattern for item in value for pattern in _find_patterns(item, module, depth + 1)
            )
        case type() if value.__module__ == module:
            yield from (
                pattern
                for item in vars(value).values()
                for pattern in _find_patterns(item, module, 3)
            )


def _find_inline_patterns(source: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if not re.search(rf"\bre\.({'|'.join(MATCH_METHODS)})\(", source):
        return
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in MATCH_METHODS
            and ast.unparse(node.func.value) == "re"
        ):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str | bytes):
                yield node.func.attr, re.compile(first.value)


def generate_prefixes(pattern: re.Pattern[Any]) -> set[str]:
    """Generate prefixes of texts that match the first and last choices of the pattern."""
    source = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    tree = _parser.parse(source, pattern.flags & ~re.UNICODE)
    found: set[str] = set()
    for choice in range(4):
        whole = _generate_match(tree, choice)
        found |= {
            whole[:end]
            for end in {1, 2, len(whole) // 2, len(whole) - 1, len(whole)}
            if end > 0 and whole[:end]
        }
    return found


def _generate_match(tree: Any, choice: int) -> str:
    spelled = ""
    for kind, argument in tree:
        match kind:
            case op.LITERAL:
                spelled += chr(argument)
            case op.NOT_LITERAL:
                spelled += "a" if argument != ord("a") else "b"
            case op.ANY:
                spelled += "a"
            case op.IN:
                spelled += _pick_character(argument, choice)
            case op.BRANCH:
                spelled += _generate_match(argument[1][choice % len(argument[1])], choice)
            case op.SUBPATTERN:
                spelled += _generate_match(argument[3], choice)
            case op.ATOMIC_GROUP:
                spelled += _generate_match(argument, choice)
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                spelled += _generate_match(argument[2], choice) * max(
                    argument[0], min(argument[1], choice % 3)
                )
    return spelled


def _pick_character(items: Any, choice: int) -> str:
    if items[0][0] is op.NEGATE:
        return next(
            (
                letter
                for letter in "a1 .x\x01é"
                if not any(_class_contains(item, letter) for item in items[1:])
            ),
            "",
        )
    kind, argument = items[choice % len(items)]
    match kind:
        case op.LITERAL:
            return chr(argument)
        case op.RANGE:
            return chr(argument[0])
    return {
        op.CATEGORY_DIGIT: "1",
        op.CATEGORY_SPACE: " ",
        op.CATEGORY_WORD: "a",
        op.CATEGORY_NOT_WORD: ".",
        op.CATEGORY_NOT_DIGIT: "a",
        op.CATEGORY_NOT_SPACE: "a",
    }[argument]


def _class_contains(item: Any, letter: str) -> bool:
    kind, argument = item
    match kind:
        case op.LITERAL:
            return bool(chr(argument) == letter)
        case op.RANGE:
            return bool(argument[0] <= ord(letter) <= argument[1])
    test = {
        op.CATEGORY_DIGIT: r"\d",
        op.CATEGORY_SPACE: r"\s",
        op.CATEGORY_WORD: r"\w",
        op.CATEGORY_NOT_WORD: r"\W",
        op.CATEGORY_NOT_DIGIT: r"\D",
        op.CATEGORY_NOT_SPACE: r"\S",
    }[argument]
    return re.match(test, letter) is not None


def find_superlinear_growth(
    work: Callable[[str], object],
    unit: str,
    sizes: tuple[int, ...],
    floor_s: float,
    max_factor: float,
) -> str | None:
    """Describe the first size whose time is over `max_factor` times that of the previous size.

    Times under `floor_s` are noise.
    """
    previous_s = floor_s / max_factor
    for size in sizes:
        text = unit * (size // len(unit))
        elapsed_s = min(_measure_s(work, text) for _ in range(1))
        if (
            elapsed_s > floor_s
            and elapsed_s > max_factor * previous_s
            and (elapsed_s := min(_measure_s(work, text) for _ in range(2)))
            > max_factor * max(previous_s, _measure_s(work, unit * (size // 4 // len(unit))))
        ):
            return (
                f"{unit!r} × {size}: {elapsed_s:.3f} s, "
                f"{elapsed_s / previous_s:.0f} times that of a quarter"
            )
        # Even cubic growth would stay within the noise.
        if elapsed_s * (sizes[-1] / size) ** 3 < floor_s:
            break
        previous_s = max(elapsed_s, floor_s / max_factor)
    return None


def _measure_s(work: Callable[[str], object], text: str) -> float:
    started = time.thread_time()
    work(text)
    return time.thread_time() - started

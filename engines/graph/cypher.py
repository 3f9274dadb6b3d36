"""Check Cypher before a graph server runs it, and bind it to a tenant.

The accepted language is a read-only subset of openCypher: `MATCH`, `OPTIONAL MATCH`, `WHERE`,
`WITH`, `UNWIND`, and one `RETURN` at the end. The text is parsed and written again from its tokens,
so that what runs is only what the parser has understood:

- Values are parameters. There are no strings, comments, escapes or quoted names to hide text in.
- Each node and each relationship of a pattern gets the property `tenant: $tenant`. Expressions
  have no binary minus and no braces, so no pattern without it, and no subquery, can stand in one.
- Functions are those of a list that neither reads files nor makes large values, and there is no
  `CALL`. Values cannot be joined by `+` or nested in lists: both would double with each `WITH`.
- The `LIMIT` of the result is added or lowered, and paths of variable length have an upper bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from schemas.errors import InvalidRequest

TENANT_PARAMETER = "tenant"
LABELS = frozenset({"Entity", "Document", "Chunk"})
RELATIONSHIPS = frozenset({"RELATED", "MENTIONS", "PART_OF"})
_FUNCTION_NAMES = (
    "abs avg ceil coalesce count endnode floor head labels last left length max min nodes "
    "properties relationships right round size startnode sum tofloat tointeger tolower tostring "
    "toupper trim type"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
MAX_TOKENS, MAX_DEPTH, MAX_PATTERNS, MAX_HOPS = 1_000, 32, 8, 4
_OPERATORS = frozenset({"=", "<>", "<", ">", "<=", ">=", "*", "%"})
_WORD_OPERATORS = frozenset({"AND", "OR", "XOR", "IN", "CONTAINS"})
_RESERVED_WORDS = (
    "ALL AND ANY AS ASC ASCENDING BY CALL CASE CONTAINS CREATE DELETE DESC DESCENDING DETACH "
    "DISTINCT DROP ELSE END ENDS EXISTS FALSE FOREACH FROM IN IS LIMIT LOAD MATCH MERGE NONE NOT "
    "NULL ON OPTIONAL OR ORDER REDUCE REMOVE RETURN SET SHOW SINGLE SKIP STARTS TERMINATE THEN "
    "TRUE UNION UNWIND USE USING WHEN WHERE WITH XOR YIELD"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>[0-9]+(?:\.[0-9]+)?(?![A-Za-z0-9_]))"
    r"|(?P<parameter>\$[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>\.\.|<>|<=|>=|[()\[\]{},.:|=<>*%-])"
)


@dataclass(frozen=True, slots=True)
class CheckedCypher:
    """A query that is safe to run with parameter `tenant`, and the parameters that it reads."""

    text: str
    parameters: frozenset[str]
    limit: int


def check_cypher(text: str, *, max_rows: int) -> CheckedCypher:
    """Return the query, bound to parameter `tenant`, with a LIMIT of at most `max_rows`.

    Raises InvalidRequest with the position of what is not accepted.
    """
    return _Parser(list(_tokenize(text)), len(text), max_rows).parse()


def check_parameters(checked: CheckedCypher, names: Collection[str]) -> None:
    """Raise InvalidRequest unless `names` are exactly the parameters of the query."""
    missing = sorted(checked.parameters.difference(names))
    unused = sorted(set(names) - checked.parameters)
    for wrong_names, problem in ((missing, "has no value for"), (unused, "does not use")):
        if wrong_names:
            raise InvalidRequest(
                f"The graph query {problem} {', '.join(f'${name}' for name in wrong_names)}.",
                code="CYPHER_PARAMETERS",
                remedy="Give `parameters` exactly the names that the query has.",
            )


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind == "name" else ""


def _tokenize(text: str) -> Iterator[_Token]:
    position = count = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _reject(f"character {text[position]!a}", position)
        count += match.lastgroup != "space"
        if count > MAX_TOKENS:
            raise _reject(f"a query of more than {MAX_TOKENS:,} words", position)
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match.group(), position)
        position = match.end()


def _reject(what: str, position: int) -> InvalidRequest:
    return InvalidRequest(
        f"The graph query has {what} at character {position + 1}, which is not accepted.",
        code="CYPHER_NOT_ALLOWED",
        remedy=(
            "Use MATCH, OPTIONAL MATCH, WHERE, WITH, UNWIND and RETURN, and pass values as "
            "parameters ($name). docs/how-to/query-the-graph.md has the accepted language."
        ),
    )


class _Parser:
    """Recursive descent over the tokens. Each method appends what it accepts to `_output`."""

    def __init__(self, tokens: list[_Token], end: int, max_rows: int) -> None:
        self._tokens = [*tokens, _Token("end", "", end)]
        self._next = 0
        self._depth = 0
        self._patterns = 0
        self._max_rows = max_rows
        self._output: list[str] = []
        self._parameters: set[str] = set()

    def parse(self) -> CheckedCypher:
        while not self._is_keyword("RETURN"):
            if self._accept_keyword("OPTIONAL"):
                self._expect_keyword("MATCH")
                self._parse_match()
            elif self._accept_keyword("MATCH"):
                self._parse_match()
            elif self._accept_keyword("WITH"):
                self._parse_projection()
                self._parse_where()
            elif self._accept_keyword("UNWIND"):
                self._parse_expression()
                self._expect_keyword("AS")
                self._parse_name()
            else:
                raise self._reject_next()
        self._expect_keyword("RETURN")
        limit = self._parse_projection()
        if self._peek().kind != "end":
            raise self._reject_next()
        if limit is None:
            limit = self._max_rows
            self._output += ["LIMIT", str(limit)]
        return CheckedCypher(" ".join(self._output), frozenset(self._parameters), limit)

    def _parse_match(self) -> None:
        self._parse_items(self._parse_pattern)
        self._parse_where()

    def _parse_pattern(self) -> None:
        self._patterns += 1
        if self._patterns > MAX_PATTERNS:
            raise _reject(f"more than {MAX_PATTERNS} patterns", self._peek().position)
        if self._peek().kind == "name":
            self._parse_name()
            self._expect("=")
        self._parse_node()
        while self._is_symbol("-", "<"):
            self._parse_relationship()
            self._parse_node()

    def _parse_where(self) -> None:
        if self._accept_keyword("WHERE"):
            self._parse_expression()

    def _parse_node(self) -> None:
        self._expect("(")
        self._parse_variable_and_types(LABELS)
        self._parse_properties()
        self._expect(")")

    def _parse_relationship(self) -> None:
        is_left = self._accept("<")
        self._expect("-")
        if self._accept("["):
            self._parse_variable_and_types(RELATIONSHIPS)
            self._parse_hops()
            self._parse_properties()
            self._expect("]")
        else:
            self._output.append(f"[{{{TENANT_PARAMETER}: ${TENANT_PARAMETER}}}]")
        self._expect("-")
        if not is_left:
            self._accept(">")

    def _parse_variable_and_types(self, allowed: frozenset[str]) -> None:
        if self._peek().kind == "name":
            self._parse_name()
        if self._accept(":"):
            while True:
                if self._peek().text not in allowed:
                    raise self._reject_next()
                self._output.append(self._take().text)
                # Relationships: alternatives. A node has one label.
                if allowed is LABELS or not self._accept("|"):
                    break

    def _parse_hops(self) -> None:
        if not self._accept("*"):
            return
        start = self._peek().position
        bounds = [self._parse_integer()]
        if self._accept(".."):
            bounds.append(self._parse_integer())
        if max(bounds) > MAX_HOPS:
            raise _reject(f"a path of more than {MAX_HOPS} relationships", start)

    def _parse_properties(self) -> None:
        self._output.append(f"{{{TENANT_PARAMETER}: ${TENANT_PARAMETER}")
        if self._take_if("{"):
            while True:
                self._output.append(",")
                if self._peek().text == TENANT_PARAMETER:
                    raise self._reject_next()
                self._parse_name()
                self._expect(":")
                self._parse_value()
                if not self._take_if(","):
                    break
            if not self._take_if("}"):
                raise self._reject_next()
        self._output.append("}")

    def _parse_projection(self) -> int | None:
        """Return the limit of the projection, at most the maximum, or None if it has none."""
        self._accept_keyword("DISTINCT")
        # `*` would name columns that the reader of the query does not see.
        self._parse_items(self._parse_column)
        if self._accept_keyword("ORDER"):
            self._expect_keyword("BY")
            self._parse_items(self._parse_sort_key)
        if self._accept_keyword("SKIP"):
            self._parse_integer()
        if self._accept_keyword("LIMIT"):
            limit = min(self._parse_integer(), self._max_rows)
            self._output[-1] = str(limit)
            return limit
        return None

    def _parse_column(self) -> None:
        self._parse_expression()
        if self._accept_keyword("AS"):
            self._parse_name()

    def _parse_sort_key(self) -> None:
        self._parse_expression()
        _ = self._accept_keyword("ASC") or self._accept_keyword("DESC")

    def _parse_items(self, parse_item: Callable[[], None]) -> None:
        parse_item()
        while self._accept(","):
            parse_item()

    def _parse_expression(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _reject(f"more than {MAX_DEPTH} nested expressions", self._peek().position)
        while True:
            while self._accept_keyword("NOT"):
                pass
            self._parse_operand()
            if self._peek().text in _OPERATORS and self._peek().kind == "symbol":
                self._output.append(self._take().text)
            elif self._peek().keyword in _WORD_OPERATORS:
                self._output.append(self._take().keyword)
            elif self._is_keyword("STARTS", "ENDS"):
                self._output.append(self._take().keyword)
                self._expect_keyword("WITH")
            else:
                break
        self._depth -= 1

    def _parse_operand(self) -> None:
        token = self._peek()
        if self._accept("("):
            self._parse_expression()
            self._expect(")")
        elif self._accept("["):
            self._parse_list("]", self._parse_value)
        elif token.kind == "name" and self._tokens[self._next + 1].text == "(":
            if token.text.lower() not in FUNCTIONS:
                raise self._reject_next()
            self._output.append(self._take().text)
            self._expect("(")
            if token.text.lower() == "count" and self._accept("*"):
                self._expect(")")
            else:
                self._accept_keyword("DISTINCT")
                self._parse_list(")", self._parse_expression)
        elif token.kind == "name" and token.keyword not in _RESERVED:
            self._parse_name()
        else:
            self._parse_value()
        while self._accept("."):
            self._parse_name()
        if self._accept_keyword("IS"):
            self._accept_keyword("NOT")
            self._expect_keyword("NULL")

    def _parse_list(self, end: str, parse_item: Callable[[], None]) -> None:
        if self._accept(end):
            return
        self._parse_items(parse_item)
        self._expect(end)

    def _parse_value(self) -> None:
        token = self._peek()
        if token.kind == "parameter":
            name = token.text[1:]
            if name == TENANT_PARAMETER:
                raise self._reject_next()
            self._parameters.add(name)
            self._output.append(self._take().text)
        elif token.keyword in ("TRUE", "FALSE", "NULL") or token.kind == "number":
            self._output.append(self._take().text)
        elif self._is_symbol("-") and self._tokens[self._next + 1].kind == "number":
            # Only before a number: `(a)--(b)` in an expression would be a pattern.
            self._output.append(self._take().text + self._take().text)
        else:
            raise self._reject_next()

    def _parse_name(self) -> None:
        token = self._peek()
        if token.kind != "name" or token.keyword in _RESERVED:
            raise self._reject_next()
        self._output.append(self._take().text)

    def _parse_integer(self) -> int:
        token = self._peek()
        if token.kind != "number" or not token.text.isdigit() or len(token.text) > 9:
            raise self._reject_next()
        self._output.append(self._take().text)
        return int(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def _is_symbol(self, *texts: str) -> bool:
        return self._peek().kind == "symbol" and self._peek().text in texts

    def _is_keyword(self, *words: str) -> bool:
        return self._peek().keyword in words

    def _take_if(self, symbol: str) -> bool:
        is_next = self._is_symbol(symbol)
        self._next += is_next
        return is_next

    def _accept(self, symbol: str) -> bool:
        if self._take_if(symbol):
            self._output.append(symbol)
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._reject_next()

    def _accept_keyword(self, word: str) -> bool:
        if self._is_keyword(word):
            self._next += 1
            self._output.append(word)
            return True
        return False

    def _expect_keyword(self, word: str) -> None:
        if not self._accept_keyword(word):
            raise self._reject_next()

    def _reject_next(self) -> InvalidRequest:
        token = self._peek()
        what = "nothing more" if token.kind == "end" else f"“{token.text[:40]}”"
        return _reject(what, token.position)

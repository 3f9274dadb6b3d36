"""Personal identifiers: found by form and check digits, and nothing else is taken for one."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from engines.personal_identifiers import find_identifiers
from schemas.values import IdentifierKind
from tests.support.cpu_time import measure_cpu_s

REGIONS = ("US", "BR", "BE")
UUID_TEXT = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"


def find_texts(text: str) -> list[tuple[str, str]]:
    found = find_identifiers(text, get_args(IdentifierKind), REGIONS)
    return [(item.kind, text[item.start : item.end]) for item in found]


@pytest.mark.parametrize(
    ("kind", "identifier", "text"),
    [
        ("ssn", "123-45-6789", "Her number is 123-45-6789."),
        ("ssn", "123–45–6789", "typeset: 123–45–6789"),
        ("ssn", "123456789", "SSN: 123456789"),
        ("ssn", "123 45 6789", "social security number 123 45 6789"),
        ("email", "ana.souza+a@mail.example.com", "<ana.souza+a@mail.example.com>."),
        ("email", "joão@exemplo.com.br", "Escreva para joão@exemplo.com.br, por favor"),
        ("phone", "+351 912 345 678", "Ligue +351 912 345 678 hoje"),
        ("phone", "+4930901820", "+4930901820"),
        ("phone", "(415) 555-2671", "the office (415) 555-2671 is open"),
        ("phone", "415-555-2671", "| Ana | 415-555-2671 |"),
        ("phone", "415.555.2671", "at 415.555.2671"),
        ("phone", "4155552671", "Phone: 4155552671"),
        ("phone", "(11) 91234-5678", "celular (11) 91234-5678"),
        ("card", "4111 1111 1111 1111", "card 4111 1111 1111 1111 12/27"),
        ("card", "4111-1111-1111-1111", "4111-1111-1111-1111"),
        ("card", "4111111111111111", "4111111111111111"),
        ("card", "4111\u00a01111\u00a01111\u00a01111", "4111\u00a01111\u00a01111\u00a01111."),
        ("card", "3782 822463 10005", "Amex 3782 822463 10005"),
        ("cpf", "529.982.247-25", "CPF 529.982.247-25"),
        ("cpf", "52998224725", "o titular 52998224725"),
        ("cnpj", "11.222.333/0001-81", "CNPJ: 11.222.333/0001-81"),
        ("cnpj", "11222333000181", "11222333000181"),
        ("cnpj", "12.ABC.345/01DE-35", "CNPJ 12.ABC.345/01DE-35"),
        ("email", "ana.2024-01-02@example.com", "to ana.2024-01-02@example.com"),
        ("email", f"{UUID_TEXT}@example.com", f"to {UUID_TEXT}@example.com"),
        ("email", "d'ana@example.com", "to 'd'ana@example.com'"),
        ("email", r"ana\_souza@example.com", r"to ana\_souza@example.com"),
        (
            "email",
            "ana\u00ad.souza@exam\u00ad\u200bple.com",
            "ana\u00ad.souza@exam\u00ad\u200bple.com\u00ad",
        ),
        ("ssn", "123-\u00ad45-\u20606789", "\ufeff123-\u00ad45-\u20606789"),
        ("phone", "+351.212.345.678", "+351.212.345.678"),
        ("phone", "0470-12-34-56", "tel 0470-12-34-56"),
        ("cpf", "123 456 789 09", "CPF 123 456 789 09"),
        ("cpf", "123\u00a0456\u00a0789\u00a009", "o titular 123\u00a0456\u00a0789\u00a009."),
        ("cpf", "123 456 789-09", "a 123 456 789-09 b"),
        ("cnpj", "11 222 333 0001 81", "CNPJ 11 222 333 0001 81"),
        ("cnpj", "11 222 333/0001-81", "a 11 222 333/0001-81"),
        # A label says that the number is one, although no area has the code 555.
        ("phone", "5551234567", "tel: 5551234567"),
        ("phone", "555-0142", "Fax no. 555-0142"),
    ],
)
def test_identifier_is_found(kind: str, identifier: str, text: str) -> None:
    assert find_texts(text) == [(kind, identifier)]


@pytest.mark.parametrize(
    ("kind", "identifier", "text"),
    [
        ("cpf", "12345678909", "CPF12345678909,"),
        ("cpf", "12345678909", "nome,cpf\nAna,cpf12345678909"),
        ("cpf", "529.982.247-25", "Titular529.982.247-25Nome"),
        ("cpf", "529 982 247 25", "numero529 982 247 25 e outro"),
        ("cpf", "52998224725", "cpf_52998224725.pdf"),
        ("cpf", "52998224725", "CPF-52998224725"),
        ("cnpj", "11222333000181", "CNPJ11222333000181"),
        ("ssn", "536228714", "SSN536228714"),
        ("ssn", "536-22-8714", "ssn-536-22-8714"),
        ("card", "4111111111111111", "Number4111111111111111Expires 12/27"),
        ("card", "4111 1111 1111 1111", "cartão4111 1111 1111 1111"),
        ("card", "4111111111111111", "卡号4111111111111111有效"),
        ("phone", "5551234567", "tel5551234567"),
        ("phone", "5551234567", "TEL.5551234567"),
        ("phone", "4155552671", "Phone4155552671"),
        ("phone", "(415) 555-2671", "call(415) 555-2671now"),
        ("phone", "+1 415 555 2671", "tel+1 415 555 2671ou"),
    ],
)
def test_identifier_that_touches_a_word_is_found(kind: str, identifier: str, text: str) -> None:
    assert find_texts(text) == [(kind, identifier)]


@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        ("ssn", "123-45-\n6789"),
        ("email", "ana@\nmail.example.com"),
        ("email", "ana@mail.\nexample.com"),
        ("email", "ana@mail-\nserver.example.com"),
        ("phone", "+1 415\n555 2671"),
        ("phone", "+1 415-555-\n2671"),
        ("phone", "(415)\n555-2671"),
        ("card", "4111 1111\n1111 1111"),
        ("card", "4111-1111-\n1111-1111"),
        ("card", "3782 822463\n10005"),
        ("cpf", "529.982.\n247-25"),
        ("cpf", "529.982.247-\n25"),
        ("cpf", "529 982\n247 25"),
        ("cnpj", "11.222.333/\n0001-81"),
        ("cnpj", "11.222.333/0001-\n81"),
        ("ssn", "123-45-\r\n6789"),
        ("card", "4111 1111\r\n1111 1111"),
    ],
)
def test_identifier_is_found_across_a_line_break(kind: str, identifier: str) -> None:
    assert find_texts(f"Noted: {identifier}, today") == [(kind, identifier)]


@pytest.mark.parametrize(
    ("identifier", "next_line"),
    [
        ("+49 30 901820", "12 seats"),
        ("+1 415 555 2671", "2 seats"),
        ("ana@example.com", "see"),
        ("4111 1111 1111 1111", "12/27"),
    ],
)
def test_next_line_is_left_alone(identifier: str, next_line: str) -> None:
    assert [text for _, text in find_texts(f"{identifier}\n{next_line}")] == [identifier]


@pytest.mark.parametrize(
    "text",
    [
        "IBAN DE89 3704 0044 0532 0130 00",
        "IBAN GB82 WEST 1234 5698 7654 32 BIC ABCD",
        "PT50 0002 0123 1234 5678 9015 4",
        "FR1420041010050500013M02606",
        "on 2025-11-25 at 10:30, and 2025-11-25T10:30:00.123456",
        "25.11.2025 and 11/25/2025 and 25-11-2025",
        "order 4500012345, PO-2024-0012345 and ORD-123-45-6789",
        "tracking number 1234567890 and item 9780306406157",
        "version 10.4.21, 2.0.1-rc.3, lodash@4.17.21 and Python 3.11.9",
        "host 192.168.100.200 and 127.0.0.1:8420",
        "run 12345678-1234-5678-1234-567812345678",
        "1,234,567.89 EUR, 12 345 678 and 3.141592653589",
        "card 4111 1111 1111 1112",
        "CPF 529.982.247-26 and CNPJ 11.222.333/0001-82",
        "000-12-3456, 666-12-3456, 123-00-4567 and 123-45-0000",
        "123456789 and 123 45 6789 tonnes",
        "from 1500-1600 to 2010-2015, pages 415-555",
        "@handle, a@b and user@localhost",
        "user@localhost.\nThen",
        "529.982\n\n247-25 and 4111 1111\n\n1111 1111",
        "CPF 123 456 789 08 and CNPJ 11 222 333 0001 82",
        "123 456 789 000 and 1 234 567 890 12, total 529 982 247,25 EUR",
        "529982247 25 pieces, rows 120 350 400 12",
        "ISBN9780306406157, isbn9780306406157, ISBN 978-0-306-40615-7",
        "EAN 4006381333931, ean4006381333931, gtin4006381333931",
        "PO4111111111111111, SKU52998224725 and AB-4111111111111111",
        "IMG20240115123045, scan20240115123045.pdf, 20240115123045 and 20240115123045123",
        "order52998224726, Invoice4500012345, invoice 2024000123456",
        "hotel 5551234567, model5551234567 and motel 555-0142",
        "sha deadbeef52998224725c0ffee and commit a52998224725f",
        "trace0af7651916cd43dd8448eb211c80319c",
        "Q32024, FY2024results, page415of555 and 12345678909km",
        "batch20250131, v20250131release and chapter12section34",
    ],
)
def test_other_number_is_left_alone(text: str) -> None:
    assert find_texts(text) == []


@pytest.mark.parametrize(
    "piece",
    [
        "a'",
        "\\",
        "a.\n",
        "a-\n",
        "@a-\n",
        "4111 1111\n",
        "+1 415\n",
        "529. 982. ",
        "1-\n",
        "abc1",
        "tel1",
        "CPF1 ",
        "tel 555 ",
        "卡号1",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    def measure(length: int) -> float:
        return measure_cpu_s(lambda: find_texts(piece * (length // len(piece))))

    # Ten times the text takes a hundred times as long if the time is quadratic.
    assert measure(5_000) < 30 * max(measure(500), 0.002)


def test_only_requested_kinds_are_found() -> None:
    text = "ana@example.com, 123-45-6789"
    assert [item.kind for item in find_identifiers(text, ["ssn"], ())] == ["ssn"]
    assert find_identifiers(text, [], REGIONS) == []


def test_national_number_needs_its_region() -> None:
    assert find_identifiers("(415) 555-2671", ["phone"], ()) == []
    assert find_identifiers("+1 415 555 2671", ["phone"], ())


def test_ordinary_numbers_are_hardly_ever_masked() -> None:
    """Numbers of no meaning pass two check digits once in a hundred times."""
    rng = random.Random(7)
    texts = [
        f"Order {rng.randrange(10**10)} of {rng.randrange(1, 29)}.{rng.randrange(1, 13)}.2025, "
        f"invoice INV-{rng.randrange(10**8)}, lot{rng.randrange(10**8)}, total "
        f"{rng.randrange(1, 999)},{rng.randrange(1000):03},{rng.randrange(1000):03}.50 EUR, "
        f"{rng.randrange(1, 999)} {rng.randrange(1000):03} {rng.randrange(1000):03} units, ISBN "
        f"978-0-{rng.randrange(100, 999)}-{rng.randrange(10000, 99999)}-{rng.randrange(10)}, "
        f"coordinates {rng.uniform(-90, 90):.6f}, {rng.uniform(-180, 180):.6f}."
        for _ in range(100)
    ]
    assert [found for text in texts for found in find_texts(text)] == []
    grouped = [
        f"{rng.randrange(1000):03} {rng.randrange(1000):03} {rng.randrange(1000):03} "
        f"{rng.randrange(100):02}"
        for _ in range(2000)
    ]
    assert sum(bool(find_texts(text)) for text in grouped) < 40

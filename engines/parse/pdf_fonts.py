"""A stand-in for the Chinese, Japanese and Korean fonts that a PDF names without embedding them.

pdfium leaves out text whose letters have no outline. The stand-in draws a box for every character,
so that the text is read the same on machines with and without such fonts.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import pypdfium2.raw as c

_EAST_ASIAN = frozenset(
    {
        c.FXFONT_SHIFTJIS_CHARSET,
        c.FXFONT_GB2312_CHARSET,
        c.FXFONT_CHINESEBIG5_CHARSET,
        c.FXFONT_HANGEUL_CHARSET,
    }
)
_UNITS, _ASCENT, _DESCENT = 1000, 880, -120
_BOX = (50, -100, 950, 850)
_LAST_CHARACTER = 0xFFFF
# Handles of the system's fonts are addresses.
_STAND_IN = 1


def build_stand_in() -> bytes:
    """Return a TrueType font whose only outline, a box, stands for every character.

    See the OpenType specification for the tables.
    """
    x0, y0, x1, y1 = _BOX
    outline = struct.pack(">hhhhhHH4B", 1, *_BOX, 3, 0, 1, 1, 1, 1)
    outline += struct.pack(">8h", x0, 0, x1 - x0, 0, y0, y1 - y0, 0, y0 - y1)
    outline += b"\0" * (-len(outline) % 4)
    tables = {
        # Format 13 maps a range of characters to one glyph.
        b"cmap": struct.pack(">HHHHI", 0, 1, 3, 10, 12)
        + struct.pack(">HHIIIIII", 13, 0, 28, 0, 1, 0x20, _LAST_CHARACTER, 1),
        b"glyf": outline * 2,
        b"head": struct.pack(
            ">IIIIHHQQ4hHHhhh",
            *(0x10000, 0x10000, 0, 0x5F0F3CF5, 0, _UNITS, 0, 0),
            *_BOX,
            *(0, 8, 2, 1, 0),
        ),
        b"hhea": struct.pack(
            ">IhhhH11hH", 0x10000, _ASCENT, _DESCENT, 0, _UNITS, x0, x0, x1, 1, *[0] * 7, 2
        ),
        b"hmtx": struct.pack(">HhHh", _UNITS, x0, _UNITS, x0),
        b"loca": struct.pack(">III", 0, len(outline), 2 * len(outline)),
        b"maxp": struct.pack(">IHHH11H", 0x10000, 2, 4, 1, 0, 0, 1, *[0] * 8),
        b"post": struct.pack(">IIhh5I", 0x30000, 0, 0, 0, *[0] * 5),
    }
    header = struct.pack(">IHHHH", 0x10000, len(tables), 128, 3, 16 * len(tables) - 128)
    offset = len(header) + 16 * len(tables)
    directory = body = b""
    for tag, data in tables.items():
        directory += tag + struct.pack(">III", 0, offset + len(body), len(data))
        body += data + b"\0" * (-len(data) % 4)
    return header + directory + body


@cache
def install_stand_in() -> c.FPDF_SYSFONTINFO:
    """Let pdfium use the stand-in, and the system's fonts for every other script.

    The result must stay referenced as long as pdfium is used, which the cache sees to.
    """
    font = build_stand_in()
    system = c.FPDF_GetDefaultSystemFontInfo()
    types = dict(c.FPDF_SYSFONTINFO._fields_)

    def map_font(
        _: object, weight: int, italic: int, charset: int, pitch: int, face: object, exact: object
    ) -> int:
        if charset in _EAST_ASIAN:
            return _STAND_IN
        return int(
            system.contents.MapFont(system, weight, italic, charset, pitch, face, exact) or 0
        )

    def get_font_data(_: object, handle: int, table: int, buffer: int | None, size: int) -> int:
        if handle != _STAND_IN:
            return int(system.contents.GetFontData(system, handle, table, buffer, size) or 0)
        if table:
            return 0
        if buffer and size >= len(font):
            ctypes.memmove(buffer, font, len(font))
        return len(font)

    def get_face_name(_: object, handle: int, buffer: object, size: int) -> int:
        if handle == _STAND_IN:
            return 0
        return int(system.contents.GetFaceName(system, handle, buffer, size) or 0)

    def get_charset(_: object, handle: int) -> int:
        if handle == _STAND_IN:
            return int(c.FXFONT_DEFAULT_CHARSET)
        return int(system.contents.GetFontCharset(system, handle) or 0)

    def delete_font(_: object, handle: int) -> None:
        if handle != _STAND_IN:
            system.contents.DeleteFont(system, handle)

    info = c.FPDF_SYSFONTINFO(
        version=1,
        Release=types["Release"](lambda _: None),
        EnumFonts=types["EnumFonts"](lambda _, mapper: system.contents.EnumFonts(system, mapper)),
        MapFont=types["MapFont"](map_font),
        GetFont=types["GetFont"](lambda _, face: system.contents.GetFont(system, face) or 0),
        GetFontData=types["GetFontData"](get_font_data),
        GetFaceName=types["GetFaceName"](get_face_name),
        GetFontCharset=types["GetFontCharset"](get_charset),
        DeleteFont=types["DeleteFont"](delete_font),
    )
    c.FPDF_SetSystemFontInfo(ctypes.byref(info))
    return info

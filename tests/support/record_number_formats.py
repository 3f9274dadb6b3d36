"""Record how LibreOffice shows numbers under format codes, as the reference of a unit test.

Usage: python -m tests.support.record_number_formats (needs `soffice` on the path).
"""

from __future__ import annotations

import csv
import itertools
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import openpyxl

REFERENCE = Path(__file__).parents[1] / "unit/engines_parse/number_formats.tsv"
_NUMBERS = (0, 5, 417, 1234.5, -1234.567, 12_500_000, 0.075, -0.288)
_SERIALS = (45992.34375, 45658, 0.520833333333333, 61.75, 44197.9999884259259)
_NUMBER_CODES = r"""
General|0|0.0|0.00|0.000|#|#.#|#.##|0.0#|0.##|0.0##|00000|0000.00|000-0000|00-00-00|0 000|#,##0
#,##0.0
#,##0.00|#,##0.###|0,000|#,###|#,###.00|0,|0.0,|0.00,,|0.0,,"M"|#,##0,"k"|#,##0.0,"k"|#,##0,,"M"
0.0,,,"bn"|0%|0.0%|0.00%|#%|#,##0%|0" %"|0.00" %"|0" bps"|0.0" kg"|0.00" m²"|"KX-"0000|"KX-"0
"No. "0|\K0|0\k|"a"0"b"0"c"|$0.00|$#,##0.00|$#,##0|"$"#,##0.00|€0.00|0.00€|0.00 €|£#,##0.00|¥#,##0
#,##0\ "SEK"|"USD "#,##0.00|#,##0.00" EUR"|[$€-2] #,##0.00|[$$-409]#,##0.00|[$£-809]#,##0.00
#,##0.00\ [$€-1]|[$USD] 0.00|[$R$-416] #,##0.00|0.00;-0.00|0.00;(0.00)|#,##0;(#,##0)
#,##0.00;[Red]-#,##0.00|#,##0_);(#,##0)|#,##0.00_);[Red](#,##0.00)|0;-0;"zero"|0;-0;|0;;|;;|0;-0;-
0.00;-0.00;"-"|"+"0;"-"0;0|+0;-0;0|"up "0;"down "0;"flat"|[Red]0|[Blue]0.0|[Color10]0;[Color3]-0
[>=1000]0.0,"k";0|[>=1000000]0.0,,"M";[>=1000]0.0,"k";0|[<1]0.00;0|[<0]"neg "0;0|[=0]"none";0
[>100]"high";"low"|[>=1000]#,##0;[<0]-0.00;0.0|[<>0]0.0;"nil"|[Red][<0]0;[Green]0
0E+0|0E+00|0.0E+00|0.00E+00|0.000E+000|#0.0E+0|##0.0E+0|##0.00E+00|0.00E-00|0.0E-0
# ?/?|# ??/??|# ???/???|# ?/2|# ?/4|# ?/8|# ??/16|# ??/100|?/?|??/??|0 ?/?|0 0/0|#" "?/?
???|???0|0.??|0.0?|???.???|?,??0|? 0|#,##0.00??|0.???|??0.0?
_-* #,##0.00_-;-* #,##0.00_-;_-* "-"??_-|_(* #,##0_);_(* (#,##0);_(* "-"_)|_(0_)|_ 0.0|* 0|0* |0_)
0;0|0.0;0.0|0;"minus "0|-0|(0)|0!|0~|0:0|0'|<0>|{0}|=0|^0|&0|0&|0-|+0|#+#|0 "units" 0|000 000
000\.000|0\.0|#\.##0|0","0|"total: "#,##0.00" only"|0" h"|0.0" °C"|0"°"|0.00"%"|0\%|"#"0|"0"0
##|###|####|0#|#0|#00|00#|#0#|0#0|00.00|#.00|.00|.0|.##|0.|#.|#,##0.|0.00000|#.#####|0.0000000000
#0.00|##0.00|#,#|#,#0|#,#0.0|#,##0.0#|#,##0.##|00,000|000,000|0,0|0,0.0|#,##0.00,|#,##0,.00
0,.0|0,,.00
"<"0|">"0|0" of 10"|0"x"|0.0"x"|0"/100"|0" pts"|"~"0|"≈"0.0|"Lot "00|"A"000"B"|000"-"00|0000-00
00\/00
0" ""q"|@|0;0;0;@|General" units"|"x"General|General;-General|General;"neg "General|[Red]General
"""
_DATE_CODES = r"""
yyyy-mm-dd|yyyy/mm/dd|dd/mm/yyyy|d/m/yyyy|d/m/yy|mm/dd/yyyy|m/d/yy|dd.mm.yyyy|d.m.yyyy|d-mmm-yy
dd-mmm-yyyy
d mmmm yyyy|dddd, d mmmm yyyy|ddd d mmm|mmm-yy|mmmm yyyy|mmm yyyy|mmmmm|mmmm|mmm|mm|m|yyyy|yy
dddd|ddd|dd|d
h:mm|hh:mm|h:mm:ss|hh:mm:ss|h:mm AM/PM|hh:mm AM/PM|h:mm:ss AM/PM|h AM/PM|h:mm A/P|mm:ss|mm:ss.0
mm:ss.00
ss|ss.0|s|h|hh|[h]:mm|[hh]:mm|[h]:mm:ss|[h]|[mm]|[m]|[mm]:ss|[ss]|[s]|[h]"h "mm"m"|h" h "mm" min"
yyyy-mm-dd hh:mm|yyyy-mm-dd hh:mm:ss|d/m/yyyy h:mm|mm/dd/yyyy h:mm AM/PM|yyyy-mm-dd\Thh:mm:ss
yyyymmdd
hhmmss|hh"h"mm|h\hmm|"on "d mmmm|d"th of "mmmm|dd/mm|mm/yyyy|mm-dd|mmm d, yyyy|mmmm d, yyyy
mmm d|d. mmmm
"Week of "d mmm|[Red]d/m/yyyy|d/m/yyyy;@|[$-409]d-mmm-yy|[$-409]mmmm d, yyyy|[$-409]h:mm AM/PM
[$-F800]dddd
[$-816]d "de" mmmm "de" yyyy|[$-407]d. mmmm yyyy|[$-40C]d mmmm yyyy|[$-C0A]d "de" mmmm
yyyy "Q" m|h:mm:ss.000
yyyy\-mm\-dd|dd\/mm\/yyyy|yyyy"年"m"月"d"日"|d mmm yyyy hh:mm|h.mm|hh.mm.ss|[h].mm|ddmmyyyy|mmyy
yyyy mm
"""


def iter_cases() -> Iterator[tuple[str, float]]:
    for text, values in ((_NUMBER_CODES, _NUMBERS), (_DATE_CODES, _SERIALS)):
        codes = [code for line in text.strip().splitlines() for code in line.split("|")]
        yield from itertools.product(dict.fromkeys(codes), values)


def record() -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    cases = list(iter_cases())
    for row, (code, value) in enumerate(cases, 1):
        cell = sheet.cell(row, 1, value)
        cell.number_format = code
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "formats.xlsx")
        book.save(path)
        # Field separator, quote, UTF-8, first line, columns, language, no quotes, as shown.
        options = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,true"
        subprocess.run(
            ["soffice", f"-env:UserInstallation=file://{folder}/profile", "--headless",
             "--convert-to", options, "--outdir", folder, str(path)],
            check=True,
        )  # fmt: skip
        with path.with_suffix(".csv").open(encoding="utf-8", newline="") as stream:
            shown = [row[0] if row else "" for row in csv.reader(stream)]
    lines = ["code\tvalue\tshown"] + [
        f"{code}\t{value}\t{text}"
        for (code, value), text in itertools.zip_longest(cases, shown, fillvalue="")
    ]
    REFERENCE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()

import { expect, test } from 'vitest';
import { listStoredValues } from './provenance';

const cell = (char_start: number, char_end: number, raw_value: string) => ({
  char_start,
  char_end,
  raw_value,
});

test('cells of a quoted row are listed with what they store', () => {
  const quote = '| Größe 𝟙 | 12.5M | 03/04/2025 |';
  const length = [...quote].length;
  const raw_cells = [cell(112, 117, '12487300'), cell(120, 130, '2025-03-04')];
  const span = { char_start: 100, char_end: 100 + length, raw_cells };
  expect(listStoredValues({ quote, spans: [span] })).toEqual([
    '12.5M = 12487300',
    '03/04/2025 = 2025-03-04',
  ]);
  // A passage is not its row, and a quote may have no cells.
  expect(listStoredValues({ quote: 'Norte', spans: [span] })).toEqual([]);
  expect(listStoredValues({ quote, spans: [{ ...span, raw_cells: null }] })).toEqual([]);
});

import { describe, expect, it } from 'vitest';
import { columnName, parseCells, readSheets } from './sheet';

const NOTE = '<!-- Sheet Stock: 3 rows, 2 columns. -->';
const MARKDOWN = `# Stock\n\n${NOTE}\n\n| name | n |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n| c | 3 |\n\n# Other\n\n| x |\n| --- |\n| 1 |\n`;
const at = (text: string) => MARKDOWN.indexOf(text);
const span = (from: number, to: number, cells: string, sheet = 'Stock') => ({
  char_start: from,
  char_end: to,
  cells,
  sheet,
});
const noteSpan = (cells: string) => span(at('<!--'), at('-->') + 3, cells);

describe('readSheets', () => {
  it('numbers rows and columns from where the table stands in the sheet', () => {
    const [stock, other] = readSheets(MARKDOWN, [noteSpan('B3:C6')]);
    expect(stock?.name).toBe('Stock');
    expect(stock?.columns).toEqual(['B', 'C']);
    expect(stock?.rows.map((row) => row.number)).toEqual([3, 4, 5, 6]);
    expect(other?.name).toBe('Other');
    expect(other?.columns).toEqual(['A']);
  });

  it('takes the numbers of a chunk where hidden rows are left out', () => {
    const [stock] = readSheets(MARKDOWN, [
      noteSpan('A1:B9'),
      span(at('| b'), at('| c |') + 8, 'A7:B8'),
    ]);
    expect(stock?.rows.map((row) => row.number)).toEqual([null, null, 7, 8]);
  });

  it('starts at A1 without any address', () => {
    const [stock] = readSheets(MARKDOWN, []);
    expect(stock?.columns).toEqual(['A', 'B']);
    expect(stock?.rows.map((row) => row.number)).toEqual([1, 2, 3, 4]);
  });
});

it('reads and writes addresses', () => {
  expect(parseCells('AB12:AC20')).toEqual({ left: 27, top: 11, bottom: 19 });
  expect(parseCells('C4')).toEqual({ left: 2, top: 3, bottom: 3 });
  expect(parseCells('all')).toBeNull();
  expect([0, 25, 26, 51, 52, 701, 702].map(columnName)).toEqual([
    'A',
    'Z',
    'AA',
    'AZ',
    'BA',
    'ZZ',
    'AAA',
  ]);
});

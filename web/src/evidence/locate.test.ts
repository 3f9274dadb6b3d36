import { describe, expect, it } from 'vitest';
import { type Box, cover, locateQuote, type TextItem } from './locate';

/** A line of ten characters' width each, at `y`. */
const line = (text: string, y: number, x0 = 0, x1 = 1): TextItem => ({
  text,
  box: [x0, y, x1, y + 0.02],
  advance: (index) => index / text.length,
});

describe('locateQuote', () => {
  it('boxes the sentence and not its paragraph', () => {
    const items = [line('First one. The lamp burned ', 0.1), line('all night. Last one.', 0.13)];
    const { boxes, carry } = locateQuote(items, 'The lamp burned all night.', null);
    expect(carry).toBe('');
    expect(boxes).toHaveLength(2);
    expect(boxes[0]?.[0]).toBeCloseTo(11 / 27);
    expect(boxes[1]?.[0]).toBe(0);
    // With the full stop.
    expect(boxes[1]?.[2]).toBeCloseTo(10 / 20);
  });

  it('finds words that the page hyphenates, spaces and ligates in its own way', () => {
    const items = [
      line('The oﬃ-', 0.1),
      line('cials  ins\u00adpected naı\u0308ve', 0.13),
      line('lamps', 0.16),
    ];
    const { boxes } = locateQuote(items, 'The **officials** inspected naıve lamps', null);
    expect(boxes).toHaveLength(3);
  });

  it('joins the runs of one line to one box', () => {
    const items = [
      line('The ', 0.1, 0, 0.2),
      line('lamp', 0.1, 0.2, 0.4),
      line(' burns', 0.1, 0.4, 0.7),
    ];
    const { boxes } = locateQuote(items, 'The lamp burns', null);
    expect(boxes).toHaveLength(1);
    expect(boxes[0]?.[2]).toBe(0.7);
  });

  it('chooses the equal sentence that is in the paragraph of the span', () => {
    const items = [line('Noted.', 0.1), line('Noted.', 0.5), line('Noted.', 0.9)];
    const near: Box = [0, 0.48, 1, 0.55];
    expect(cover(locateQuote(items, 'Noted.', near).boxes)[1]).toBe(0.5);
  });

  it('gives the words that continue on the next page', () => {
    const page = [line('The keeper reported that the northern', 0.9), line('Page 3', 0.97)];
    const first = locateQuote(page, 'The keeper reported that the northern lamp burned.', null);
    expect(first.boxes).toHaveLength(1);
    expect(first.carry).toBe('lamp burned.');
    const next = [line('4', 0.02), line('lamp burned. Then', 0.1)];
    const second = locateQuote(next, first.carry, null);
    expect(second.boxes[0]?.[1]).toBe(0.1);
    expect(second.carry).toBe('');
  });

  it('allows for letters that the parser read otherwise', () => {
    const items = [line('The old lamp burned for 9 7 nights and nobody put it out. Next', 0.1)];
    const quote = 'The old lamp burned for 97 nights and n0body put it out.';
    expect(locateQuote(items, quote, null).boxes).toHaveLength(1);
  });

  it('boxes nothing for words that are not on the page', () => {
    const { boxes, carry } = locateQuote([line('Something else', 0.1)], 'Some day', null);
    expect(boxes).toEqual([]);
    expect(carry).toBe('Some day');
    expect(locateQuote([], 'x', null).boxes).toEqual([]);
    expect(locateQuote([line('a', 0)], '…', null).boxes).toEqual([]);
  });
});

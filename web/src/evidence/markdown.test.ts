import { describe, expect, it } from 'vitest';
import { type Block, type Inline, parseBlocks, parseInlines, safeHref, toUnits } from './markdown';

const texts = (source: string, inlines: readonly Inline[]): string =>
  inlines
    .map((one) =>
      'children' in one ? texts(source, one.children) : source.slice(one.start, one.end),
    )
    .join('');

describe('parseBlocks', () => {
  it('reads what the server writes', () => {
    const source = [
      '# Title',
      '',
      'One **bold** line',
      'and its next.',
      '',
      '- first',
      '  - second',
      '3. third',
      '',
      '> said',
      '',
      '| a | b \\| c |',
      '| --- | --- |',
      '| 1 |  |',
      '',
      '<!-- 2 rows -->',
      '',
      '```py',
      'x = 1',
      '',
      'y = 2',
      '```',
      '',
      '---',
    ].join('\n');
    const blocks = parseBlocks(source);
    expect(blocks.map((block) => block.type)).toEqual([
      'heading',
      'paragraph',
      'item',
      'item',
      'item',
      'quote',
      'table',
      'note',
      'code',
      'rule',
    ]);
    const of = <T extends Block['type']>(type: T) =>
      blocks.find((block): block is Block & { type: T } => block.type === type);
    expect(texts(source, of('paragraph')?.inlines ?? [])).toBe('One bold line\nand its next.');
    const table = of('table');
    expect(table?.header?.cells.map((cell) => texts(source, cell.inlines))).toEqual(['a', 'b | c']);
    expect(table?.rows[0]?.cells).toHaveLength(2);
    expect(texts(source, of('note')?.inlines ?? [])).toBe('2 rows');
    const code = of('code');
    expect(code && source.slice(code.text.start, code.text.end)).toBe('x = 1\n\ny = 2');
  });

  it('keeps every offset inside its block', () => {
    const source = 'a\n\n```\nunclosed\n\n|x|\n<!-- open\n# h';
    for (const block of parseBlocks(source)) {
      expect(block.start).toBeGreaterThanOrEqual(0);
      expect(block.end).toBeLessThanOrEqual(source.length);
    }
    expect(parseBlocks('')).toEqual([]);
    expect(parseBlocks('```')[0]?.type).toBe('code');
    expect(parseBlocks('<!--')[0]?.type).toBe('note');
  });

  it('has no token for HTML, which stays text', () => {
    const source =
      '<script>alert(1)</script>\n\n<svg onload=alert(1)>\n\n<style>*{display:none}</style>';
    for (const block of parseBlocks(source)) {
      expect(block.type).toBe('paragraph');
      expect(texts(source, (block as Block & { type: 'paragraph' }).inlines)).toBe(
        source.slice(block.start, block.end),
      );
    }
  });

  it('takes time in proportion to hostile marks', () => {
    const source = `${'[*`_~'.repeat(40_000)}\n\n${'|'.repeat(50_000)}\n\n${'> '.repeat(20_000)}`;
    const started = performance.now();
    parseBlocks(source);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});

describe('links', () => {
  it('are followed only to the web and to mail, and name their host', () => {
    expect(safeHref('https://example.org/a?b=1')).toEqual({
      href: 'https://example.org/a?b=1',
      host: 'example.org',
    });
    expect(safeHref('mailto:ada@example.org')?.host).toBe('ada@example.org');
    expect(safeHref('https://example.org@evil.example/')?.host).toBe('evil.example');
    for (const hostile of [
      'javascript:alert(1)',
      'JaVaScRiPt:alert(1)',
      ' javascript:alert(1)',
      'java\tscript:alert(1)',
      'data:text/html,<script>1</script>',
      'vbscript:x',
      'file:///etc/passwd',
      'blob:https://example.org/1',
      '//evil.example',
      '/v1/keys',
      'http://',
      '',
    ]) {
      expect(safeHref(hostile), hostile).toBeNull();
    }
  });

  it('are parsed with their text', () => {
    const source = 'see [**the** register](https://example.org) now';
    const link = parseInlines(source, 0, source.length).find((one) => one.type === 'link');
    expect(link?.type === 'link' && link.href).toBe('https://example.org');
  });
});

it('converts offsets of code points to those of JavaScript', () => {
  // A treble clef is one code point and two UTF-16 units.
  expect(toUnits('a𝄞bc', [0, 1, 2, 3, 4, 99])).toEqual([0, 1, 3, 4, 5, 5]);
  expect(toUnits('a𝄞bc', [3, 1])).toEqual([4, 1]);
});

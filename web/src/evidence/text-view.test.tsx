import { MantineProvider } from '@mantine/core';
import { cleanup, render, screen } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Hit } from './context';
import { TextView } from './text-view';

const HOSTILE = [
  '# Title <img src=x onerror="window.pwned=1">',
  '<script>window.pwned=2</script>',
  '<svg onload="window.pwned=3"><style>body{display:none}</style></svg>',
  'Press [here](javascript:window.pwned=4) or <a href="javascript:window.pwned=5">there</a>.',
  'See [the register](https://example.org/a "t") and ![picture](https://evil.example/pixel.png).',
  '| <b>name</b> | [x](data:text/html,1) |\n| --- | --- |\n| <script>1</script> | `<iframe>` |',
  '```html\n<script>window.pwned=7</script>\n```',
].join('\n\n');

const hit = (markdown: string, quote: string, shift = 0): Hit => {
  const start = [...markdown.slice(0, markdown.indexOf(quote))].length + shift;
  return {
    documentId: 'd',
    revision: 1,
    title: null,
    quote,
    spans: [{ char_start: start, char_end: start + [...quote].length }],
  };
};
const show = (markdown: string, shown?: Hit) =>
  render(
    <MantineProvider env="test">
      <TextView markdown={markdown} hit={shown} />
    </MantineProvider>,
  ).container;
const marked = (container: HTMLElement) =>
  [...container.querySelectorAll('mark')].map((mark) => mark.textContent).join('');

beforeEach(() => {
  vi.stubGlobal('matchMedia', () => ({
    matches: false,
    addEventListener() {},
    removeEventListener() {},
  }));
  Element.prototype.scrollIntoView = () => {};
});
afterEach(cleanup);

describe('hostile Markdown', () => {
  it('becomes text and no element of its own', () => {
    const article = show(HOSTILE).querySelector('article');
    for (const tag of ['script', 'svg', 'style', 'img', 'iframe', 'b', 'object', 'form']) {
      expect(article?.querySelector(tag), tag).toBeNull();
    }
    expect(article?.textContent).toContain('<script>window.pwned=2</script>');
    expect(article?.textContent).toContain('<img src=x onerror="window.pwned=1">');
    expect('pwned' in window).toBe(false);
  });

  it('links to nothing but the web and mail, in a tab without an opener', () => {
    show(HOSTILE);
    const links = screen.getAllByRole('link');
    expect(links.map((link) => link.getAttribute('href'))).toEqual([
      'https://example.org/a',
      'https://evil.example/pixel.png',
    ]);
    for (const link of links) expect(link.getAttribute('rel')).toBe('noopener noreferrer');
    expect(document.body.textContent).toContain('(example.org)');
    expect(document.body.textContent).toContain('[here](javascript:window.pwned=4)');
  });
});

describe('the passage', () => {
  it('is marked by its characters, also after characters of two units', () => {
    const text = 'Clef 𝄞 here. The lamp **burned** all night. More.';
    const quote = 'The lamp **burned** all night.';
    expect(marked(show(text, hit(text, quote)))).toBe('The lamp burned all night.');
  });

  it('is found by its words where the offsets belong to another text', () => {
    const text = 'Some new words first. The lamp burned all night.';
    expect(marked(show(text, hit(text, 'The lamp burned all night.', -15)))).toBe(
      'The lamp burned all night.',
    );
  });

  it('says so where its words are not in the text', () => {
    const container = show('Something else.', {
      ...hit('Something else.', 'Something'),
      quote: 'The lamp burned',
    });
    expect(marked(container)).toBe('');
    expect(container.textContent).toContain('not marked');
  });
});

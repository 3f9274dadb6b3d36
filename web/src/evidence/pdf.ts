import { GlobalWorkerOptions, getDocument, type PDFDocumentProxy, Util, version } from 'pdfjs-dist';
import workerUrl from 'pdfjs-dist/build/pdf.worker.min.mjs?url';
import type { TextItem as PdfTextItem, TextContent } from 'pdfjs-dist/types/src/display/api';
import { API_ROOT, requestHeaders } from '@/shared/api/client';
import type { Place } from './context';
import { type Box, type Located, locateQuote, type TextItem, toBox } from './locate';

GlobalWorkerOptions.workerSrc = workerUrl;

/** Open a PDF; only the ranges that the shown pages need are fetched. No script of it runs. */
export function openPdf(path: string) {
  return getDocument({
    url: API_ROOT + path,
    httpHeaders: requestHeaders(),
    withCredentials: true,
    disableAutoFetch: true,
    disableStream: true,
    enableXfa: false,
    stopAtErrors: false,
    // WebAssembly would need 'wasm-unsafe-eval' in the content security policy. Scans in JPEG 2000
    // and JBIG2 are decoded by JavaScript, see `decoders` in vite.config.ts.
    useWasm: false,
    wasmUrl: new URL(
      import.meta.env.DEV ? 'node_modules/pdfjs-dist/wasm/' : `assets/pdfjs-${version}/`,
      document.baseURI,
    ).href,
    verbosity: 0,
  });
}

export type PageMarks = ReadonlyMap<number, Located[]>;

/** Where the spans of a hit stand on the pages: the lines of the quote, not its paragraph. */
export async function locateOnPages(
  pdf: PDFDocumentProxy,
  pieces: readonly { page: number; words: string; box: Box | null }[],
): Promise<PageMarks> {
  const marks = new Map<number, Located[]>();
  const add = (page: number, located: Located) =>
    marks.set(page, [...(marks.get(page) ?? []), located]);
  for (const { page, words, box } of pieces) {
    if (page < 1 || page > pdf.numPages) continue;
    const here = locateQuote(await readItems(pdf, page), words, box);
    // A paragraph may run over the end of its page; what is found nowhere was not its start.
    const next =
      here.boxes.length > 0 && here.carry !== '' && page < pdf.numPages
        ? locateQuote(await readItems(pdf, page + 1), here.carry, null)
        : null;
    if (here.boxes.length > 0 && (here.carry === '' || next?.carry === '')) {
      add(page, { boxes: here.boxes, isExact: true });
      if (next !== null) add(page + 1, { boxes: next.boxes, isExact: true });
    } else if (box !== null) {
      add(page, { boxes: [box], isExact: false });
    }
  }
  return marks;
}

async function readItems(pdf: PDFDocumentProxy, number: number): Promise<TextItem[]> {
  const page = await pdf.getPage(number);
  const { width, height, transform } = page.getViewport({ scale: 1 });
  const content = await page.getTextContent();
  return content.items
    .filter((item): item is PdfTextItem => 'str' in item && item.str !== '')
    .map((item) => toItem(item, content.styles, transform, width, height));
}

function toItem(
  item: PdfTextItem,
  styles: TextContent['styles'],
  view: number[],
  width: number,
  height: number,
): TextItem {
  const [a = 0, b = 0, c = 0, d = 0, x = 0, y = 0] = Util.transform(view, item.transform);
  const size = Math.hypot(c, d);
  const style = styles[item.fontName];
  const ascent = (style?.ascent || 0.8) * size;
  const descent = Math.abs(style?.descent || 0.2) * size;
  const [ux, uy] = [a / Math.hypot(a, b) || 0, b / Math.hypot(a, b) || 0];
  const corners = [0, item.width].flatMap((along) =>
    [-ascent, descent].map((across) => [
      x + ux * along - uy * across,
      y + uy * along + ux * across,
    ]),
  );
  const xs = corners.map(([value = 0]) => value / width);
  const ys = corners.map(([, value = 0]) => value / height);
  const isLevel = Math.abs(uy) < 0.1 && ux > 0 && item.dir !== 'rtl';
  return {
    text: item.str,
    box: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)],
    // Of turned text and of text from right to left the whole run is boxed.
    advance: isLevel
      ? (index) => measureShare(item.str, index, style?.fontFamily)
      : (index) => (index > 0 ? 1 : 0),
  };
}

const pen = document.createElement('canvas').getContext('2d');

/** How far along a run its character starts, by the letters of a like font. */
function measureShare(text: string, index: number, family = 'sans-serif'): number {
  if (index <= 0) return 0;
  if (index >= text.length || pen === null) return Math.min(1, index / text.length);
  pen.font = `40px ${family}`;
  const whole = pen.measureText(text).width;
  return whole === 0 ? index / text.length : pen.measureText(text.slice(0, index)).width / whole;
}

/** The spans of a hit that have a page, with their words. */
export function toPieces(
  spans: readonly Place[],
  quote: string,
  markdown: string | undefined,
): { page: number; words: string; box: Box | null }[] {
  const placed = spans.filter((span) => typeof span.page === 'number');
  const points = [...(markdown ?? '')];
  return placed.map((span) => ({
    page: span.page ?? 1,
    words:
      placed.length === 1 ? quote : points.slice(span.char_start, span.char_end).join('') || quote,
    box: toBox(span.box),
  }));
}

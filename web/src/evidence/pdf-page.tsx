import { useElementSize } from '@mantine/hooks';
import type { PDFDocumentProxy, PDFPageProxy } from 'pdfjs-dist';
import { useEffect, useRef, useState } from 'react';
import { useWords } from '@/shared/i18n';
import classes from './evidence.module.css';
import type { Located } from './locate';
import { Overlay } from './overlay';
import { evidenceWords } from './words';

// Of A4, until the size of the page is known, so that nothing jumps.
const USUAL_RATIO = Math.SQRT2;
const MAX_PIXELS = 16_000_000;
// A full page is no easier to read when it is wider.
const MAX_FIT_PX = 880;

export function PdfPage({
  pdf,
  number,
  zoom,
  title,
  located,
  quote,
}: {
  pdf: PDFDocumentProxy;
  number: number;
  zoom: number;
  title: string;
  located: readonly Located[];
  quote: string | undefined;
}) {
  const words = useWords(evidenceWords);
  const { ref: wrap, width } = useElementSize();
  const canvas = useRef<HTMLCanvasElement>(null);
  const paper = useRef<HTMLDivElement>(null);
  const shownNumber = useRef(number);
  const [page, setPage] = useState<PDFPageProxy | null>(null);
  const [text, setText] = useState('');
  const base = page?.getViewport({ scale: 1 });
  const shownWidth = Math.min(width, MAX_FIT_PX) * zoom;
  const shownHeight = shownWidth * (base ? base.height / base.width : USUAL_RATIO);

  useEffect(() => {
    let isCurrent = true;
    const load = async () => {
      const loaded = await pdf.getPage(number);
      const content = await loaded.getTextContent();
      if (!isCurrent) return;
      setPage(loaded);
      setText(
        content.items
          .map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : ''))
          .join(''),
      );
    };
    load().catch((error: unknown) => {
      if (isCurrent) throw error;
    });
    return () => {
      isCurrent = false;
    };
  }, [pdf, number]);

  useEffect(() => {
    if (page === null || canvas.current === null || shownWidth === 0) return;
    const size = page.getViewport({ scale: 1 });
    let scale = (shownWidth / size.width) * window.devicePixelRatio;
    const pixels = size.width * size.height * scale * scale;
    if (pixels > MAX_PIXELS) scale *= Math.sqrt(MAX_PIXELS / pixels);
    const viewport = page.getViewport({ scale });
    // Drawn apart and copied when done: the old page stays until then.
    const drawn = document.createElement('canvas');
    drawn.width = Math.floor(viewport.width);
    drawn.height = Math.floor(viewport.height);
    const task = page.render({ canvas: drawn, viewport });
    const target = canvas.current;
    task.promise.then(
      () => {
        target.width = drawn.width;
        target.height = drawn.height;
        target.getContext('2d')?.drawImage(drawn, 0, 0);
      },
      (error: unknown) => {
        if (!(error instanceof Error && error.name === 'RenderingCancelledException')) throw error;
      },
    );
    return () => task.cancel();
  }, [page, shownWidth]);

  const first = located[0]?.boxes[0];
  const top = first?.[1];
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when the passage moves.
  useEffect(() => {
    const box = paper.current?.querySelector('[data-evidence-box]');
    if (box) box.scrollIntoView({ block: 'center', inline: 'nearest' });
    // Turning to a page without a passage shows its top.
    else if (shownNumber.current !== number) paper.current?.scrollIntoView({ block: 'start' });
    shownNumber.current = number;
  }, [top, number, base !== undefined, width > 0]);

  return (
    <div ref={wrap}>
      <div
        ref={paper}
        className={classes.paper}
        style={{ width: shownWidth, height: shownHeight }}
        data-page={number}
      >
        <canvas
          ref={canvas}
          role="img"
          aria-label={words.pageImage(String(number), title)}
          style={{ width: shownWidth, height: shownHeight }}
        />
        <Overlay located={located} />
        <section className={classes.hidden} aria-label={words.textOfPage(String(number))}>
          {located.length > 0 && quote && <p>{`${words.quote}: ${quote}`}</p>}
          <p>{text}</p>
        </section>
      </div>
    </div>
  );
}

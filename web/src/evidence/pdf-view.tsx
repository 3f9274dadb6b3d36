import { ActionIcon, Button, NumberInput } from '@mantine/core';
import type { PDFDocumentProxy } from 'pdfjs-dist';
import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { LoadingState } from '@/shared/ui/states';
import type { Hit } from './context';
import classes from './evidence.module.css';
import { locateOnPages, openPdf, type PageMarks, toPieces } from './pdf';
import { PdfPage } from './pdf-page';
import { evidenceWords } from './words';

const ZOOM_STEP = 1.25;
const MAX_ZOOM = 5;
const NO_MARKS: PageMarks = new Map();

export type PdfViewProps = {
  path: string;
  title: string;
  hit: Hit | undefined;
  markdown: string | undefined;
  /** The page of the address; without one the first page of the passage is shown. */
  page?: number | undefined;
  onPage?: ((page: number) => void) | undefined;
  tools?: ReactNode;
  /** Called with the file that cannot be drawn: broken, encrypted or gone. */
  onFailure: () => void;
};

/** One page of a PDF with boxes over the passage, and ways to the other pages. */
export function PdfView(props: PdfViewProps) {
  const { path, hit, markdown, onFailure } = props;
  const words = useWords(evidenceWords);
  const format = useFormat();
  const pdf = usePdf(path, onFailure);
  const marks = useMarks(pdf, hit, markdown);
  const hitPages = useMemo(() => [...marks.keys()].sort((a, b) => a - b), [marks]);
  const first = hitPages[0] ?? hit?.spans.find((span) => span.page)?.page ?? hit?.pages?.[0] ?? 1;
  const [chosen, setChosen] = useState<{ hit: Hit | undefined; page: number } | null>(null);
  const [zoom, setZoom] = useState(1);
  const count = pdf?.numPages ?? 1;
  const wanted = props.page ?? (chosen !== null && chosen.hit === hit ? chosen.page : first);
  const page = Math.max(1, Math.min(count, wanted));
  const go = (to: number) => {
    const target = Math.max(1, Math.min(count, to));
    setChosen({ hit, page: target });
    props.onPage?.(target);
  };
  const isApproximate = marks.get(page)?.some((located) => !located.isExact) ?? false;
  return (
    <>
      <div className={classes.tools}>
        {props.tools}
        <span>
          <Step label={words.previousPage} sign="‹" disabled={page <= 1} run={() => go(page - 1)} />
          <NumberInput
            aria-label={words.page}
            w={52}
            hideControls
            min={1}
            max={count}
            value={page}
            onChange={(value) => typeof value === 'number' && go(value)}
          />
          {words.pageOf(format.count(count))}
          <Step label={words.nextPage} sign="›" disabled={page >= count} run={() => go(page + 1)} />
        </span>
        <span>
          <Step
            label={words.zoomOut}
            sign="−"
            disabled={zoom <= 0.5}
            run={() => setZoom(zoom / ZOOM_STEP)}
          />
          <Button
            variant="subtle"
            size="compact-xs"
            title={words.fitWidth}
            onClick={() => setZoom(1)}
          >
            {format.percent(zoom)}
          </Button>
          <Step
            label={words.zoomIn}
            sign="+"
            disabled={zoom >= MAX_ZOOM}
            run={() => setZoom(zoom * ZOOM_STEP)}
          />
        </span>
        {hitPages.length > 0 && (
          <span>
            {words.passageOn}
            {hitPages.map((number) => (
              <Button
                key={number}
                variant={number === page ? 'light' : 'default'}
                size="compact-xs"
                aria-current={number === page ? 'page' : undefined}
                onClick={() => go(number)}
              >
                {number}
              </Button>
            ))}
          </span>
        )}
        {isApproximate && <span className="muted">{words.approximate}</span>}
      </div>
      <div className={classes.canvasArea}>
        {pdf === null ? (
          <LoadingState rows={12} height={48} />
        ) : (
          <PdfPage
            pdf={pdf}
            number={page}
            zoom={zoom}
            title={props.title}
            located={marks.get(page) ?? []}
            quote={hit?.quote}
          />
        )}
      </div>
    </>
  );
}

function Step(props: { label: string; sign: string; disabled: boolean; run: () => void }) {
  return (
    <ActionIcon
      variant="default"
      size="sm"
      aria-label={props.label}
      disabled={props.disabled}
      onClick={props.run}
    >
      {props.sign}
    </ActionIcon>
  );
}

function usePdf(path: string, onFailure: () => void): PDFDocumentProxy | null {
  const [opened, setOpened] = useState<{ path: string; pdf: PDFDocumentProxy } | null>(null);
  const fail = useRef(onFailure);
  fail.current = onFailure;
  useEffect(() => {
    const task = openPdf(path);
    let isCurrent = true;
    task.promise.then(
      (pdf) => isCurrent && setOpened({ path, pdf }),
      // Broken or encrypted: the extracted text is shown in place of it.
      () => isCurrent && fail.current(),
    );
    return () => {
      isCurrent = false;
      void task.destroy();
    };
  }, [path]);
  return opened?.path === path ? opened.pdf : null;
}

function useMarks(
  pdf: PDFDocumentProxy | null,
  hit: Hit | undefined,
  markdown: string | undefined,
): PageMarks {
  const [found, setFound] = useState<{ hit: Hit; marks: PageMarks } | null>(null);
  useEffect(() => {
    if (pdf === null || hit === undefined) return;
    let isCurrent = true;
    locateOnPages(pdf, toPieces(hit.spans, hit.quote, markdown)).then(
      (marks) => isCurrent && setFound({ hit, marks }),
      (error: unknown) => {
        // The document was closed meanwhile; anything else is a fault of this page.
        if (isCurrent) throw error;
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [pdf, hit, markdown]);
  return found !== null && found.hit === hit ? found.marks : NO_MARKS;
}

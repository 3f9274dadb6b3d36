import { SegmentedControl } from '@mantine/core';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { lazy, Suspense, useMemo, useState } from 'react';
import { useWords } from '@/shared/i18n';
import { LoadingState, QueryState } from '@/shared/ui/states';
import type { Hit } from './context';
import classes from './evidence.module.css';
import { ImageView } from './image-view';
import { SheetView } from './sheet-view';
import {
  isMissing,
  isRecording,
  sourcePath,
  useChunks,
  useDocument,
  useMarkdown,
  viewKind,
} from './source';
import { TextView } from './text-view';
import { evidenceWords } from './words';

// pdf.js is loaded with the first PDF.
const PdfView = lazy(() => import('./pdf-view').then((m) => ({ default: m.PdfView })));

export type EvidencePagesProps = {
  documentId: string;
  /** null for the revision that queries see. */
  revision: number | null;
  mediaType: string | null;
  title?: string | null;
  /** Passages to mark. Without them the address says `?page=` or `?chunk=`. */
  hits?: Hit[];
  index?: number;
};

/** A document as people know it: pages, picture, sheet or text, with the passage marked. */
export function EvidencePages(props: EvidencePagesProps) {
  if (props.hits !== undefined) return <Pages {...props} hit={props.hits[props.index ?? 0]} />;
  return <AddressedPages {...props} />;
}

/** The same with page, passage and view from the address. */
function AddressedPages(props: EvidencePagesProps) {
  const search = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const set = (changed: Record<string, string | undefined>) =>
    void navigate({ to: '.', search: { ...search, ...changed }, replace: true });
  const chunks = useChunks(props.documentId, search.chunk !== undefined);
  const chunk = chunks.data?.items.find((item) => item.chunk_id === search.chunk);
  const hit = useMemo<Hit | undefined>(
    () =>
      chunk && {
        documentId: props.documentId,
        revision: props.revision ?? 0,
        spans: chunk.spans,
        title: props.title ?? null,
        quote: chunk.text,
        chunkId: chunk.chunk_id,
        section: chunk.section,
      },
    [chunk, props.documentId, props.revision, props.title],
  );
  const page = Number(search.page);
  return (
    <Pages
      {...props}
      hit={hit}
      {...(page >= 1 ? { page } : {})}
      onPage={(to) => set({ page: String(to) })}
      isText={search.view === 'text'}
      onText={(isText) => set({ view: isText ? 'text' : undefined })}
    />
  );
}

type PagesProps = EvidencePagesProps & {
  hit: Hit | undefined;
  page?: number;
  onPage?: (page: number) => void;
  isText?: boolean;
  onText?: (isText: boolean) => void;
};

function Pages(props: PagesProps) {
  const { documentId, hit } = props;
  const words = useWords(evidenceWords);
  const kind = viewKind(props.mediaType);
  const [failed, setFailed] = useState<string | null>(null);
  const [chosenText, setChosenText] = useState(false);
  const document = useDocument(documentId);
  const visible = document.data?.visible_revision ?? null;
  const revision = props.revision ?? visible;
  // Without a revision the server sends the latest file and the visible text.
  const fileRevision = revision === document.data?.revision ? null : revision;
  const textRevision = revision === visible ? null : revision;
  const markdown = useMarkdown(documentId, textRevision, props.mediaType, document.isSuccess);
  // Of a revision that queries see, a missing text is an error.
  const missing = textRevision !== null && isMissing(markdown.error) ? markdown.error : null;
  const hasPlaces = kind === 'sheet' || isRecording(props.mediaType);
  const chunks = useChunks(documentId, hasPlaces && document.isSuccess && textRevision === null);
  const places = useMemo(() => chunks.data?.items.flatMap((chunk) => chunk.spans), [chunks.data]);
  const path = sourcePath(documentId, 'file', fileRevision);
  const isFailed = failed === path;
  const isText = kind === 'text' || isFailed || (props.isText ?? chosenText);
  const title = props.title ?? words.untitled;
  const tools = kind !== 'text' && !isFailed && (
    <SegmentedControl
      aria-label={words.view}
      value={isText ? 'text' : 'original'}
      onChange={(value) => (props.onText ?? setChosenText)(value === 'text')}
      data={[
        { value: 'original', label: words.original },
        { value: 'text', label: words.text },
      ]}
    />
  );
  const onFailure = () => setFailed(path);
  if (!document.isSuccess) return <QueryState query={document}>{() => null}</QueryState>;
  return (
    <div className={classes.view}>
      {isText && tools && <div className={classes.tools}>{tools}</div>}
      {isFailed && <div className={classes.notice}>{words.wholeText}</div>}
      {missing && (isText || kind === 'sheet') ? (
        <QuoteOnly quote={hit?.quote} reason={missing.problem.detail} />
      ) : isText ? (
        <QueryState query={markdown} rows={12}>
          {(text) => <TextView markdown={text} hit={hit} places={places} />}
        </QueryState>
      ) : kind === 'sheet' ? (
        <QueryState query={markdown} rows={12}>
          {(text) => <SheetView markdown={text} places={places} hit={hit} tools={tools} />}
        </QueryState>
      ) : kind === 'image' ? (
        <ImageView path={path} title={title} hit={hit} tools={tools} onFailure={onFailure} />
      ) : (
        <Suspense fallback={<LoadingState rows={12} height={48} />}>
          <PdfView
            path={path}
            title={title}
            hit={hit}
            markdown={markdown.data}
            page={props.page}
            onPage={props.onPage}
            tools={tools}
            onFailure={onFailure}
          />
        </Suspense>
      )}
    </div>
  );
}

/** All that is left of a passage whose text neither tables nor log hold, and why. */
function QuoteOnly({ quote, reason }: { quote: string | undefined; reason: string }) {
  const words = useWords(evidenceWords);
  return (
    <>
      <div className={classes.notice} role="status">
        {words.textGone} <span className="foreign">{reason}</span>
      </div>
      {quote && (
        <blockquote className={`${classes.text} foreign`}>
          <p>{words.quoted}</p>
          <mark>{quote}</mark>
        </blockquote>
      )}
    </>
  );
}

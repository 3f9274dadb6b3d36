import { ActionIcon, Button, CloseButton, CopyButton, FocusTrap } from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { Link } from '@tanstack/react-router';
import { useEffect, useRef } from 'react';
import type { Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { useKeys } from '@/shared/keys';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import { sharedWords } from '@/shared/words';
import type { Hit, OpenEvidence } from './context';
import classes from './evidence.module.css';
import { EvidencePages } from './pages';
import { Provenance } from './provenance';
import { useDocument, useRevision } from './source';
import { evidenceWords } from './words';

/**
 * The passage in its document, beside the page that cites it: the answer stays readable and
 * another citation can be chosen. Below 900 pixels it covers the page.
 */
export function EvidenceDrawer({
  evidence,
  onMove,
  onClose,
}: {
  evidence: OpenEvidence;
  onMove: (evidence: OpenEvidence) => void;
  onClose: () => void;
}) {
  const words = useWords(evidenceWords);
  const shared = useWords(sharedWords);
  const format = useFormat();
  const isSheet = useMediaQuery('(max-width: 900px)', false, { getInitialValueInEffect: false });
  const title = useRef<HTMLHeadingElement>(null);
  const { hits, index } = evidence;
  const hit = hits[index];
  const move = (by: number) => {
    const to = index + by;
    if (to >= 0 && to < hits.length) onMove({ hits, index: to });
  };
  useKeys([
    { keys: 'n', label: words.nextHit, run: () => move(1) },
    { keys: 'p', label: words.previousHit, run: () => move(-1) },
    { keys: 'escape', label: shared.close, run: onClose },
  ]);
  useEffect(() => {
    // Screens that can give way make room for the drawer.
    document.documentElement.dataset.evidence = '';
    const frame = requestAnimationFrame(() => title.current?.focus({ preventScroll: true }));
    return () => {
      cancelAnimationFrame(frame);
      delete document.documentElement.dataset.evidence;
    };
  }, []);
  if (hit === undefined) return null;
  return (
    <FocusTrap active={isSheet}>
      <aside
        className={classes.panel}
        role="dialog"
        aria-modal={isSheet}
        aria-label={words.evidence}
        tabIndex={-1}
        onKeyDown={(event) => {
          // Also from its inputs, where keyboard shortcuts do not apply.
          if (event.key === 'Escape' && !event.defaultPrevented) onClose();
        }}
      >
        <header className={classes.head}>
          <div>
            <h2 ref={title} className={`${classes.title} foreign`} tabIndex={-1} data-autofocus>
              {hit.title ?? words.untitled}
            </h2>
            <Provenance hit={hit} />
          </div>
          {hits.length > 1 && (
            <div style={{ display: 'flex', alignItems: 'center', gap: 4, whiteSpace: 'nowrap' }}>
              <ActionIcon
                variant="default"
                aria-label={words.previousHit}
                disabled={index === 0}
                onClick={() => move(-1)}
              >
                ‹
              </ActionIcon>
              <span aria-live="polite">
                {words.hit(format.count(index + 1), format.count(hits.length))}
              </span>
              <ActionIcon
                variant="default"
                aria-label={words.nextHit}
                disabled={index === hits.length - 1}
                onClick={() => move(1)}
              >
                ›
              </ActionIcon>
            </div>
          )}
          <CloseButton aria-label={shared.close} onClick={onClose} />
        </header>
        <div className={classes.body}>
          <HitPages key={`${hit.documentId} ${hit.revision}`} evidence={evidence} hit={hit} />
        </div>
        <footer className={classes.foot}>
          <CopyButton value={hit.quote}>
            {({ copied, copy }) => (
              <Button variant="default" onClick={copy}>
                {copied ? words.copied : words.copyQuote}
              </Button>
            )}
          </CopyButton>
          <OpenDocument hit={hit} onOpen={onClose} />
        </footer>
      </aside>
    </FocusTrap>
  );
}

/** A link to the passage; of a superseded revision, whose pages are no longer shown, to its row. */
function OpenDocument({ hit, onOpen }: { hit: Hit; onOpen: () => void }) {
  const words = useWords(evidenceWords);
  const isOld = supersedingRevision(useDocument(hit.documentId).data, hit) !== null;
  return (
    <Button
      variant="default"
      renderRoot={(props) => (
        <Link
          {...props}
          to="/documents/$document/$tab"
          onClick={onOpen}
          params={{ document: hit.documentId, tab: isOld ? 'revisions' : 'pages' }}
          search={isOld ? {} : { page: firstPage(hit)?.toString(), chunk: hit.chunkId }}
        />
      )}
    >
      {words.openDocument}
    </Button>
  );
}

function supersedingRevision(
  document: Schemas['DocumentStatus'] | undefined,
  hit: Hit,
): number | null {
  const visible = document?.visible_revision ?? null;
  return visible !== null && visible > hit.revision ? visible : null;
}

function firstPage(hit: Hit): number | undefined {
  return hit.spans.find((span) => span.page)?.page ?? hit.pages?.[0];
}

function HitPages({ evidence, hit }: { evidence: OpenEvidence; hit: Hit }) {
  const words = useWords(evidenceWords);
  const document = useDocument(hit.documentId);
  const revision = useRevision(hit.documentId, hit.revision);
  if (document.isError) return <ErrorState error={document.error} onRetry={document.refetch} />;
  if (document.data === undefined || revision.isPending) {
    return (
      <div style={{ padding: 16 }}>
        <LoadingState rows={12} height={48} />
      </div>
    );
  }
  const newer = supersedingRevision(document.data, hit);
  return (
    <>
      {newer !== null && (
        <div className={classes.notice} role="status">
          {words.superseded(String(hit.revision), String(newer))}
        </div>
      )}
      {document.data.state === 'withdrawn' && (
        <div className={classes.notice} role="status">
          {words.withdrawn}
        </div>
      )}
      <EvidencePages
        documentId={hit.documentId}
        revision={hit.revision}
        mediaType={revision.data?.media_type ?? document.data.media_type}
        title={hit.title ?? document.data.title}
        hits={evidence.hits}
        index={evidence.index}
      />
    </>
  );
}

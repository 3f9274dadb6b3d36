import { Link } from '@tanstack/react-router';
import { useWords } from '@/shared/i18n';
import { Id } from '@/shared/ui/bits';
import { clock } from './clock';
import { type Hit, useEvidence } from './context';
import classes from './evidence.module.css';
import { useRevision } from './source';
import { evidenceWords } from './words';

/** What the cells of a quoted row store where they show it otherwise: `12.5M = 12487300`. */
export function listStoredValues({ quote, spans }: Pick<Hit, 'quote' | 'spans'>): string[] {
  const characters = [...quote];
  const quoted = spans.filter((span) => span.char_end - span.char_start === characters.length);
  return quoted.flatMap((span) =>
    (span.raw_cells ?? []).map((cell) => {
      const [start, end] = [cell.char_start - span.char_start, cell.char_end - span.char_start];
      return `${characters.slice(start, end).join('')} = ${cell.raw_value}`;
    }),
  );
}

/** Where a passage is from: section, page or cells, revision, hash of the file, lineage. */
export function Provenance({ hit }: { hit: Hit }) {
  const words = useWords(evidenceWords);
  // The drawer would cover the page that it leads to.
  const { close } = useEvidence();
  const revision = useRevision(hit.documentId, hit.revision);
  const pages = [
    ...new Set([
      ...hit.spans.flatMap((span) => (span.page ? [span.page] : [])),
      ...(hit.pages ?? []),
    ]),
  ].sort((a, b) => a - b);
  const cells = hit.spans.flatMap((span) =>
    span.cells ? [span.sheet ? `${span.sheet}!${span.cells}` : span.cells] : [],
  );
  const stored = listStoredValues(hit);
  const start = hit.spans.find((span) => typeof span.start_s === 'number')?.start_s;
  const end = hit.spans.findLast((span) => typeof span.end_s === 'number')?.end_s;
  // The title stands above.
  const section = (hit.section ?? '')
    .split(' > ')
    .filter((part) => part !== hit.title)
    .join(' › ');
  const hash = revision.data?.content_sha256;
  return (
    <div className={classes.provenance}>
      {section && <span className="foreign">{section}</span>}
      {pages.length > 0 && <span>{words.pages(pages.join(', '))}</span>}
      {cells.length > 0 && <span className="foreign">{cells.join(', ')}</span>}
      {stored.length > 0 && (
        <span>
          {words.stored} <span className="foreign">{stored.join('; ')}</span>
        </span>
      )}
      {typeof start === 'number' && (
        <span>
          {clock(start)}
          {typeof end === 'number' && `–${clock(end)}`}
        </span>
      )}
      <span>
        {words.revision} {hit.revision}
      </span>
      {hash && (
        <span>
          {words.hash} <Id id={hash} />
        </span>
      )}
      <Link
        to="/documents/$document/$tab"
        params={{ document: hit.documentId, tab: 'lineage' }}
        onClick={close}
      >
        {words.lineage}
      </Link>
    </div>
  );
}

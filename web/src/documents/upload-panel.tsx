import { Button, Progress, Tooltip } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { sharedWords } from '@/shared/words';
import classes from './documents.module.css';
import { type Upload, uploads, useUploads } from './uploads';
import { documentsWords } from './words';

const MAX_SHOWN = 200;
const ORDER = { failed: 0, sending: 1, queued: 2, accepted: 3 } as const;

/** Every file that is sent: how far it is, or why the server refused it and what to do. */
export function UploadPanel() {
  const words = useWords(documentsWords).uploads;
  const format = useFormat();
  const list = useUploads();
  const [isOpen, setOpen] = useState(true);
  const count = (state: Upload['state']) => list.filter((one) => one.state === state).length;
  const isBusy = count('queued') + count('sending') > 0;
  useEffect(() => {
    if (!isBusy) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('beforeunload', warn);
    return () => window.removeEventListener('beforeunload', warn);
  }, [isBusy]);
  if (list.length === 0) return null;
  const failed = count('failed');
  const sorted = list.toSorted((one, other) => ORDER[one.state] - ORDER[other.state]);
  return (
    <div className="panel">
      <div className={classes.bar}>
        <strong>{words.title}</strong>
        <span role="status">
          {words.summary(format.count(count('accepted')), format.count(list.length))}
        </span>
        {failed > 0 && <State tone="bad" label={words.failed(format.count(failed))} />}
        <span style={{ flex: 1 }} />
        {!isBusy && (
          <Button variant="subtle" size="compact-xs" onClick={() => uploads.clear()}>
            {words.clear}
          </Button>
        )}
        <Button
          variant="subtle"
          size="compact-xs"
          onClick={() => setOpen(!isOpen)}
          aria-expanded={isOpen}
        >
          {isOpen ? words.hide : words.show}
        </Button>
      </div>
      {isOpen && (
        <section className={classes.uploads} tabIndex={0} aria-label={words.title}>
          <ul>
            {sorted.slice(0, MAX_SHOWN).map((upload) => (
              <UploadLine key={upload.id} upload={upload} />
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function UploadLine({ upload }: { upload: Upload }) {
  const words = useWords(documentsWords).uploads;
  const shared = useWords(sharedWords);
  const format = useFormat();
  const { state, progress, receipt, problem } = upload;
  return (
    <li>
      <span dir="auto" className="truncate foreign" title={upload.name}>
        {receipt ? (
          <Link to="/documents/$document" params={{ document: receipt.document_id }}>
            {upload.name}
          </Link>
        ) : (
          upload.name
        )}{' '}
        {upload.bytes !== null && <span className="muted">{format.bytes(upload.bytes)}</span>}
      </span>
      <Progress
        size="sm"
        value={progress * 100}
        aria-label={upload.name}
        color={
          state === 'failed' ? 'var(--bad)' : state === 'accepted' ? 'var(--ok)' : 'var(--accent)'
        }
      />
      {state === 'failed' && problem ? (
        <Tooltip label={`${problem.detail} ${problem.remedy}`} multiline maw={420}>
          <span dir="auto" className="truncate foreign">
            <State tone="bad" label={`${problem.detail} ${problem.remedy}`} />
          </span>
        </Tooltip>
      ) : (
        <span className="muted truncate">{sayState()}</span>
      )}
      {state === 'failed' ? (
        <Button variant="default" size="compact-xs" onClick={() => uploads.retry(upload.id)}>
          {shared.retry}
        </Button>
      ) : (
        <span />
      )}
    </li>
  );

  function sayState(): string {
    if (state === 'queued') return words.queued;
    if (state === 'sending')
      return upload.bytes === null ? words.fetching : words.sending(format.percent(progress));
    return receipt?.duplicate ? words.duplicate : words.accepted;
  }
}

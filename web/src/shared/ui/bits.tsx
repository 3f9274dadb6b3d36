import { CopyButton, Tooltip, UnstyledButton } from '@mantine/core';
import { useEffect, useState } from 'react';
import { useFormat } from '../format';
import { useWords } from '../i18n';
import { sharedWords } from '../words';

/** A time relative to now, with the exact one on hover and for readers of the page. */
export function Ago({ time }: { time: string | null | undefined }) {
  const format = useFormat();
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 10_000);
    return () => clearInterval(timer);
  }, []);
  if (!time) return <span className="muted">—</span>;
  return (
    <time dateTime={time} title={format.exact(time)}>
      {format.ago(time, Math.max(now, new Date(time).getTime()))}
    </time>
  );
}

/** The first eight characters of an id; a click copies all of it. */
export function Id({ id }: { id: string }) {
  const words = useWords(sharedWords);
  return (
    <CopyButton value={id}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? words.copied : `${words.copy} ${id}`}>
          <UnstyledButton
            className="mono muted"
            fz="xs"
            onClick={(event) => {
              event.stopPropagation();
              copy();
            }}
          >
            {id.slice(0, 8)}
          </UnstyledButton>
        </Tooltip>
      )}
    </CopyButton>
  );
}

export type Tone = 'ok' | 'warn' | 'bad' | 'busy' | 'idle';
const SHAPES: Record<Tone, string> = { ok: '●', warn: '◆', bad: '▲', busy: '◐', idle: '○' };

/** A state in words, with a shape that differs without color. */
export function State({
  tone,
  label,
  isLong = false,
}: {
  tone: Tone;
  label: string;
  /** A sentence, which may break. */
  isLong?: boolean;
}) {
  const color = tone === 'busy' || tone === 'idle' ? 'muted' : tone;
  return (
    <span className={color} style={isLong ? undefined : { whiteSpace: 'nowrap' }}>
      <span aria-hidden="true">{SHAPES[tone]}</span> {label}
    </span>
  );
}

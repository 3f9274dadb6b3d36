import { SegmentedControl } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { type KeyboardEvent, type PointerEvent, useRef } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import classes from './events.module.css';
import { type Bucket, formatSpan } from './histogram-data';
import { PERIODS, type Period } from './use-counts';
import { eventWords } from './words';

const HEIGHT = 64;
const PAGE_STEP = 10;

/**
 * Events by time, with a handle that moves the list to a moment. Arrow keys move it by a bar, page
 * keys by ten; beyond the last bar the list is live again.
 */
export function Histogram({
  buckets,
  span,
  at,
  onScrub,
  period,
  onPeriod,
}: {
  buckets: Bucket[];
  span: number;
  at: number | null;
  onScrub: (at: number | null) => void;
  /** Given where the server counts; else the bars are those of the loaded events. */
  period?: Period;
  onPeriod?: (period: string) => void;
}) {
  const words = useWords(eventWords);
  const format = useFormat();
  const { ref, width } = useElementSize<HTMLDivElement>();
  const isDragging = useRef(false);
  const most = buckets.reduce((max, bucket) => Math.max(max, bucket.count), 1);
  const step = width / Math.max(buckets.length, 1);
  const last = buckets.length;
  const found = at === null ? last : buckets.findIndex((b) => b.start <= at && at < b.start + span);
  const index = found === -1 ? 0 : found;
  const moveTo = (target: number) => {
    const bucket = buckets[Math.max(0, target)];
    onScrub(bucket === undefined ? null : bucket.start);
  };
  const onKey = (event: KeyboardEvent) => {
    const moves: Record<string, number> = {
      ArrowLeft: index - 1,
      ArrowDown: index - 1,
      ArrowRight: index + 1,
      ArrowUp: index + 1,
      PageDown: index - PAGE_STEP,
      PageUp: index + PAGE_STEP,
      Home: 0,
      End: last,
      Escape: last,
    };
    const target = moves[event.key];
    if (target === undefined) return;
    event.preventDefault();
    moveTo(target);
  };
  const onPointer = (event: PointerEvent<HTMLElement>) => {
    if (event.type === 'pointerdown') {
      isDragging.current = true;
      event.currentTarget.setPointerCapture(event.pointerId);
    }
    if (!isDragging.current) return;
    const { left } = event.currentTarget.getBoundingClientRect();
    moveTo(Math.floor((event.clientX - left) / step));
  };
  const label = (bucket: Bucket) =>
    words.bucket(format.exact(new Date(bucket.start)), format.count(bucket.count));
  const current = buckets[index];
  const ticks = tickIndexes(buckets.length, width < 500 ? 3 : 5);
  const isLong = buckets.length * span > 24 * 3_600_000;
  return (
    <section className={`panel ${classes.histogram}`} aria-label={words.histogram}>
      <div className={classes.scale}>
        <span>{words.perSpan(formatSpan(span, format))}</span>
        {period && onPeriod ? (
          <SegmentedControl
            size="xs"
            aria-label={words.period}
            data={(Object.keys(PERIODS) as Period[]).map((value) => ({
              value,
              label: words.periods[value],
            }))}
            value={period}
            onChange={onPeriod}
          />
        ) : (
          <span>{words.loadedOnly}</span>
        )}
        <span>{words.atMost(format.count(most))}</span>
      </div>
      <div
        ref={ref}
        className={classes.bars}
        style={{ height: HEIGHT }}
        onPointerDown={onPointer}
        onPointerMove={onPointer}
        onPointerUp={() => {
          isDragging.current = false;
        }}
      >
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {buckets.map((bucket, position) => {
            const height = bucket.count === 0 ? 0 : Math.max(2, (bucket.count / most) * HEIGHT);
            const failed = bucket.failed === 0 ? 0 : Math.max(2, (bucket.failed / most) * HEIGHT);
            const x = position * step;
            const bar = Math.min(24, Math.max(1, step - (step > 4 ? 2 : 0.5)));
            return (
              <g key={bucket.start} opacity={at === null || position === index ? 1 : 0.45}>
                <rect
                  x={x + (step - bar) / 2}
                  y={HEIGHT - height}
                  width={bar}
                  height={height}
                  fill={position === index ? 'var(--accent)' : 'var(--line-strong)'}
                >
                  <title>{label(bucket)}</title>
                </rect>
                <rect
                  x={x + (step - bar) / 2}
                  y={HEIGHT - failed}
                  width={bar}
                  height={failed}
                  fill="var(--bad)"
                />
              </g>
            );
          })}
        </svg>
        <div
          className={classes.handle}
          role="slider"
          tabIndex={0}
          aria-label={words.scrub}
          aria-valuemin={0}
          aria-valuemax={last}
          aria-valuenow={index}
          aria-valuetext={current ? label(current) : words.now}
          style={{ left: Math.min(width - 1, current ? (index + 0.5) * step : width - 1) }}
          onKeyDown={onKey}
        />
      </div>
      <div className={classes.ticks}>
        {ticks.map((position) => {
          const time = new Date((buckets[position] as Bucket).start);
          return <span key={position}>{isLong ? format.day(time) : format.minute(time)}</span>;
        })}
      </div>
      <details className={classes.twin}>
        <summary>{words.asTable}</summary>
        <table>
          <thead>
            <tr>
              <th scope="col">{words.from}</th>
              <th scope="col">{words.events}</th>
              <th scope="col">{words.failures}</th>
            </tr>
          </thead>
          <tbody>
            {buckets
              .filter((bucket) => bucket.count > 0)
              .map((bucket) => (
                <tr key={bucket.start}>
                  <td>{format.exact(new Date(bucket.start))}</td>
                  <td className="num">{format.count(bucket.count)}</td>
                  <td className="num">{format.count(bucket.failed)}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}

/** The first, the last and some between at equal distances. */
function tickIndexes(length: number, count: number): number[] {
  if (length <= count) return Array.from({ length }, (_, index) => index);
  return Array.from({ length: count }, (_, tick) =>
    Math.round((tick * (length - 1)) / (count - 1)),
  );
}

import { useElementSize } from '@mantine/hooks';
import classes from './generations.module.css';

export type Interval = {
  key: string;
  label: string;
  difference: number;
  low: number;
  high: number;
  /** Whether more is better, less is, or neither. */
  better: 1 | -1 | 0;
  format: (value: number) => string;
};

const ROW = 28;
const PAD = 12;

/** A difference with its interval by row, each on a scale of its own around zero. */
export function IntervalPlot({ intervals, label }: { intervals: Interval[]; label: string }) {
  const { ref, width } = useElementSize<HTMLDivElement>();
  return (
    <div className={classes.plot} role="img" aria-label={label}>
      <div>
        {intervals.map((interval) => (
          <div key={interval.key} className={classes.plotLabel} style={{ height: ROW }}>
            {interval.label}
          </div>
        ))}
      </div>
      <div ref={ref} style={{ minWidth: 0 }}>
        <svg width={width} height={intervals.length * ROW} aria-hidden="true">
          <line
            x1={width / 2}
            x2={width / 2}
            y1={0}
            y2={intervals.length * ROW}
            stroke="var(--line-strong)"
            strokeDasharray="2 3"
          />
          {intervals.map((interval, index) => (
            <Whisker
              key={interval.key}
              interval={interval}
              y={index * ROW + ROW / 2}
              width={width}
            />
          ))}
        </svg>
      </div>
      <div>
        {intervals.map(({ key, difference, low, high, format }) => (
          <div key={key} className={classes.plotValue} style={{ height: ROW }}>
            {format(difference)}{' '}
            <span className="muted">
              [{format(low)}, {format(high)}]
            </span>
          </div>
        ))}
      </div>
    </div>
  );
}

function Whisker({ interval, y, width }: { interval: Interval; y: number; width: number }) {
  const { low, high, difference } = interval;
  const most = Math.max(Math.abs(low), Math.abs(high), Number.EPSILON);
  const x = (value: number) => width / 2 + (value / most) * (width / 2 - PAD);
  const color = `var(--${toneOf(interval)})`;
  return (
    <g stroke={color} fill={color}>
      <line x1={x(low)} x2={x(high)} y1={y} y2={y} strokeWidth={2} />
      <line x1={x(low)} x2={x(low)} y1={y - 5} y2={y + 5} />
      <line x1={x(high)} x2={x(high)} y1={y - 5} y2={y + 5} />
      <circle cx={x(difference)} cy={y} r={4} stroke="none" />
    </g>
  );
}

/** An interval that holds zero shows no difference. */
export function toneOf({ low, high, better }: Interval): 'ok' | 'bad' | 'muted' {
  if (better === 0 || (low <= 0 && high >= 0)) return 'muted';
  return Math.sign(low) === better ? 'ok' : 'bad';
}

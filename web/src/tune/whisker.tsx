import { useFormat } from '@/shared/format';
import type { Difference, Share } from './stats';
import classes from './whisker.module.css';

const WIDTH = 120;
const HEIGHT = 18;

/** A share with its interval on an axis from 0 to 1, and the numbers beside it. */
export function ShareWhisker({
  share,
  label,
  width = WIDTH,
}: {
  share: Share;
  /** The head of its column, which a narrow screen does not show. */
  label?: string;
  width?: number;
}) {
  const format = useFormat();
  if (share.value === null) return <span className="muted">—</span>;
  const low = share.low ?? share.value;
  const high = share.high ?? share.value;
  return (
    <span className={classes.cell}>
      {label && <span className={classes.label}>{label}</span>}
      <Plot value={share.value} low={low} high={high} from={0} to={1} width={width} />
      <span className={classes.text}>
        {format.percent(share.value)}{' '}
        <span className="muted">
          {format.decimal(low * 100, 0)}–{format.decimal(high * 100, 0)}
        </span>
      </span>
    </span>
  );
}

/** A difference in points with its interval; the middle of the axis is no difference. */
export function DifferenceWhisker({ difference, low, high }: Difference) {
  const format = useFormat();
  const points = (value: number) =>
    `${value > 0 ? '+' : ''}${format.decimal(value * 100, 0).replace('-', '−')}`;
  const reach = Math.min(1, Math.max(0.25, Math.ceil(Math.max(-low, high) * 4) / 4));
  return (
    <span className={classes.cell}>
      <Plot value={difference} low={low} high={high} from={-reach} to={reach} middle />
      <span className={classes.text}>
        {points(difference)}{' '}
        <span className="muted">
          {points(low)} … {points(high)}
        </span>
      </span>
    </span>
  );
}

function Plot({
  value,
  low,
  high,
  from,
  to,
  width = WIDTH,
  middle = false,
}: {
  value: number;
  low: number;
  high: number;
  from: number;
  to: number;
  width?: number;
  middle?: boolean;
}) {
  const x = (at: number) => 4 + ((at - from) / (to - from)) * (width - 8);
  const y = HEIGHT / 2;
  // The numbers stand beside it.
  return (
    <svg width={width} height={HEIGHT} aria-hidden="true" className={classes.plot}>
      <line x1={x(from)} x2={x(to)} y1={y} y2={y} className={classes.axis} />
      {middle && <line x1={x(0)} x2={x(0)} y1={1} y2={HEIGHT - 1} className={classes.zero} />}
      <line x1={x(low)} x2={x(high)} y1={y} y2={y} className={classes.whisker} />
      {[low, high].map((end, index) => (
        <line
          key={index === 0 ? 'low' : 'high'}
          x1={x(end)}
          x2={x(end)}
          y1={y - 4}
          y2={y + 4}
          className={classes.whisker}
        />
      ))}
      <circle cx={x(value)} cy={y} r={3.5} className={classes.dot} />
    </svg>
  );
}

import 'uplot/dist/uPlot.min.css';
import { useComputedColorScheme } from '@mantine/core';
import { useEffect, useRef } from 'react';
import UPlot from 'uplot';
import { useLanguage } from '@/shared/i18n';

const HEIGHT = 96;

/** A small line from zero with its own axes, in the colors of the theme. Its table is elsewhere. */
export function TimeSeries({
  times,
  values,
  formatTick,
}: {
  /** Milliseconds. */
  times: number[];
  values: (number | null)[];
  formatTick: (value: number) => string;
}) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | null>(null);
  const format = useRef(formatTick);
  format.current = formatTick;
  const data = useRef<UPlot.AlignedData>([[], []]);
  data.current = [times.map((time) => time / 1000), values];
  const scheme = useComputedColorScheme('light');
  const { language } = useLanguage();
  // biome-ignore lint/correctness/useExhaustiveDependencies: redrawn in the colors of a theme.
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const style = getComputedStyle(element);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const clock = new Intl.DateTimeFormat(language, { hour: 'numeric', minute: '2-digit' });
    const axis: UPlot.Axis = {
      stroke: color('--muted'),
      font: '11px system-ui, sans-serif',
      ticks: { show: false },
    };
    const chart = new UPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        padding: [8, 8, 0, 0],
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          {
            ...axis,
            size: 24,
            gap: 6,
            grid: { show: false },
            space: 90,
            values: (_, splits) => splits.map((second) => clock.format(second * 1000)),
          },
          {
            ...axis,
            size: 58,
            gap: 4,
            space: 34,
            grid: { stroke: color('--line'), width: 1 },
            values: (_, splits) => splits.map((value) => format.current(value)),
          },
        ],
        series: [
          {},
          { stroke: color('--accent'), width: 1.5, points: { show: false }, spanGaps: false },
        ],
      },
      data.current,
      element,
    );
    plot.current = chart;
    const observer = new ResizeObserver(() =>
      chart.setSize({ width: element.clientWidth, height: HEIGHT }),
    );
    observer.observe(element);
    return () => {
      observer.disconnect();
      chart.destroy();
      plot.current = null;
    };
  }, [scheme, language]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `data` is of these.
  useEffect(() => plot.current?.setData(data.current), [times, values]);
  return <div ref={host} style={{ height: HEIGHT }} aria-hidden="true" />;
}

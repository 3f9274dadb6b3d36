import classes from './evidence.module.css';
import type { Located } from './locate';

/** Boxes over a page or an image, in shares of its size: filled over lines, dashed around less. */
export function Overlay({ located }: { located: readonly Located[] }) {
  return [true, false].map((isExact) => {
    const boxes = located.filter((one) => one.isExact === isExact).flatMap((one) => one.boxes);
    return (
      <div
        key={String(isExact)}
        className={isExact ? classes.marks : classes.frames}
        aria-hidden="true"
      >
        {boxes.map(([x0, y0, x1, y1]) => (
          <div
            key={`${x0} ${y0} ${x1} ${y1}`}
            data-evidence-box={isExact ? 'lines' : 'paragraph'}
            style={{
              left: `${x0 * 100}%`,
              top: `${y0 * 100}%`,
              width: `${(x1 - x0) * 100}%`,
              height: `${(y1 - y0) * 100}%`,
            }}
          />
        ))}
      </div>
    );
  });
}

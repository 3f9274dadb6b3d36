import classes from './graph.module.css';
import { typeColor } from './model';

export function TypeDot({ type }: { type: string }) {
  return (
    <span
      aria-hidden="true"
      className={classes.dot}
      style={{ background: `var(${typeColor(type)})`, display: 'inline-block' }}
    />
  );
}

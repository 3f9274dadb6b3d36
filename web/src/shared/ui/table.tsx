import { useVirtualizer } from '@tanstack/react-virtual';
import { type ReactNode, useEffect, useRef, useState } from 'react';
import { useKeys } from '../keys';
import classes from './table.module.css';

export type Column<Row> = {
  key: string;
  label: string;
  cell: (row: Row) => ReactNode;
  isNumber?: boolean;
  width?: string;
};

const ROW_PX = 33;
const NARROW_ROW_PX = 64;
// Below it all rows are in the page, where the browser's own search finds them.
const VIRTUAL_FROM = 200;

/**
 * A table of any length: only the rows in view are in the page. On narrow screens each row is a
 * card. `j` and `k` move, `enter` opens.
 */
export function DataTable<Row>({
  label,
  rows,
  columns,
  rowKey,
  onOpen,
  isSelected,
  maxHeight = 'calc(100vh - 260px)',
  onEnd,
  isFixed = false,
}: {
  label: string;
  rows: readonly Row[];
  columns: Column<Row>[];
  rowKey: (row: Row) => string;
  onOpen?: (row: Row) => void;
  isSelected?: (row: Row) => boolean;
  maxHeight?: string;
  /** Called when the last rows come into view, to load more. */
  onEnd?: (() => void) | undefined;
  /** Columns keep their widths whatever rows are in view; one without a width takes the rest. */
  isFixed?: boolean;
}) {
  const wrap = useRef<HTMLDivElement>(null);
  const isVirtual = rows.length > VIRTUAL_FROM;
  const isNarrow = typeof matchMedia === 'function' && matchMedia('(max-width: 700px)').matches;
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => wrap.current,
    estimateSize: () => (isNarrow ? NARROW_ROW_PX : ROW_PX),
    overscan: 12,
    getItemKey: (index) => rowKey(rows[index] as Row),
  });
  const items = virtualizer.getVirtualItems();
  const first = items[0]?.start ?? 0;
  const end = items.at(-1)?.end ?? 0;
  const visible = isVirtual ? items.map((item) => item.index) : rows.map((_, index) => index);
  const [current, setCurrent] = useState(-1);
  const focusRow = (index: number) => {
    const target = Math.max(0, Math.min(rows.length - 1, index));
    setCurrent(target);
    if (isVirtual) virtualizer.scrollToIndex(target);
    // After the row is in the page.
    requestAnimationFrame(() =>
      wrap.current?.querySelector<HTMLElement>(`tr[data-index="${target}"]`)?.focus(),
    );
  };
  useKeys(
    onOpen
      ? [
          { keys: 'j', label: `${label}: ↓`, run: () => focusRow(current + 1) },
          { keys: 'k', label: `${label}: ↑`, run: () => focusRow(current - 1) },
        ]
      : [],
  );
  const lastVisible = visible.at(-1) ?? -1;
  useEffect(() => {
    if (onEnd && lastVisible >= rows.length - 20) onEnd();
  }, [onEnd, lastVisible, rows.length]);
  return (
    <section
      ref={wrap}
      className={`panel ${classes.wrap}`}
      style={{ maxHeight }}
      aria-label={label}
      tabIndex={0}
    >
      <table
        className={`${classes.table} ${isFixed ? classes.fixed : ''}`}
        aria-rowcount={rows.length + 1}
      >
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                className={column.isNumber ? classes.num : undefined}
                style={{ width: column.width }}
              >
                {column.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {isVirtual && first > 0 && <Spacer height={first} columns={columns.length} />}
          {visible.map((index) => {
            const row = rows[index] as Row;
            return (
              <tr
                key={rowKey(row)}
                data-index={index}
                aria-rowindex={index + 2}
                aria-selected={isSelected ? isSelected(row) : undefined}
                tabIndex={onOpen ? 0 : undefined}
                className={onOpen ? classes.clickable : undefined}
                onClick={onOpen ? () => onOpen(row) : undefined}
                onFocus={onOpen ? () => setCurrent(index) : undefined}
                onKeyDown={
                  onOpen
                    ? (event) => {
                        // Enter on a link or button in the row is theirs.
                        if (event.key === 'Enter' && event.target === event.currentTarget)
                          onOpen(row);
                      }
                    : undefined
                }
              >
                {columns.map((column) => (
                  <td key={column.key} className={column.isNumber ? classes.num : undefined}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
          {isVirtual && (
            <Spacer height={virtualizer.getTotalSize() - end} columns={columns.length} />
          )}
        </tbody>
      </table>
    </section>
  );
}

function Spacer({ height, columns }: { height: number; columns: number }) {
  return (
    <tr className={classes.spacer}>
      <td colSpan={columns} style={{ height, padding: 0 }} />
    </tr>
  );
}

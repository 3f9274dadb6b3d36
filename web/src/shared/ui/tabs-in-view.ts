import { type RefObject, useEffect, useRef } from 'react';

/** A ref for a list of tabs, which on a phone is wider than the page: scrolls to the active one. */
export function useActiveTabInView(tab: string | undefined): RefObject<HTMLDivElement | null> {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (tab === undefined) return;
    // After the router, which restores scroll positions when a new address is drawn.
    const frame = requestAnimationFrame(() =>
      list.current
        ?.querySelector('[aria-selected=true]')
        ?.scrollIntoView({ inline: 'center', block: 'nearest' }),
    );
    return () => cancelAnimationFrame(frame);
  }, [tab]);
  return list;
}

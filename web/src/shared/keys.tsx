import { createContext, type ReactNode, useContext, useEffect, useMemo, useRef } from 'react';

/** Keyboard shortcuts: `/`, `g d`, `j`, `esc`. Each says in words what it does, and `?` lists them. */
export type KeyWay = { keys: string; label: string; run: () => void };

const SEQUENCE_MS = 1000;
type Registry = { ways: Map<symbol, KeyWay[]>; list: () => KeyWay[] };
const KeysContext = createContext<Registry | null>(null);

export function KeysProvider({ children }: { children: ReactNode }) {
  const registry = useMemo<Registry>(() => {
    const ways = new Map<symbol, KeyWay[]>();
    // The newest first: a screen's own keys win over those of the shell.
    return { ways, list: () => [...ways.values()].reverse().flat() };
  }, []);
  const prefix = useRef({ key: '', at: 0 });
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const key = event.key.length === 1 ? event.key : event.key.toLowerCase();
      const isSequence = event.timeStamp - prefix.current.at < SEQUENCE_MS;
      const sequence = isSequence ? `${prefix.current.key} ${key}` : key;
      const ways = registry.list();
      const way = ways.find((w) => w.keys === sequence) ?? ways.find((w) => w.keys === key);
      prefix.current = { key, at: event.timeStamp };
      if (way === undefined) return;
      event.preventDefault();
      prefix.current.at = Number.NEGATIVE_INFINITY;
      way.run();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [registry]);
  return <KeysContext value={registry}>{children}</KeysContext>;
}

/** Offer keyboard shortcuts while the component is shown. */
export function useKeys(ways: KeyWay[]): void {
  const registry = useContext(KeysContext);
  const id = useRef(Symbol('keys'));
  useEffect(() => {
    registry?.ways.set(id.current, ways);
  });
  useEffect(() => {
    const key = id.current;
    return () => {
      registry?.ways.delete(key);
    };
  }, [registry]);
}

export function useKeyList(): () => KeyWay[] {
  const registry = useContext(KeysContext);
  return () => registry?.list() ?? [];
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target.matches('input:not([type=checkbox],[type=radio],[type=range]), textarea, select') ||
      // Keys belong to an open dialog.
      target.closest('[role=dialog] [role=listbox], [role=menu]') !== null)
  );
}

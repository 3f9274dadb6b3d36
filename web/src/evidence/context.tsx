import {
  createContext,
  lazy,
  type ReactNode,
  Suspense,
  useContext,
  useMemo,
  useRef,
  useState,
} from 'react';
import type { Schemas } from '@/shared/api/client';

/** A span of a citation, of a search result or of a chunk. */
export type Place = Omit<Schemas['Span'], 'box'> & { box?: readonly number[] | null | undefined };

/** One place in one revision of a document: a quote, a passage or a chunk. */
export type Hit = {
  documentId: string;
  revision: number;
  /** Where it stands: boxes on pages, cells, seconds, or characters of the Markdown. */
  spans: readonly Place[];
  title: string | null;
  /** The verbatim text, to be found and marked in the passage. */
  quote: string;
  pages?: number[];
  chunkId?: string;
  section?: string | null;
};

export type OpenEvidence = { hits: Hit[]; index: number };
type Evidence = { open: (hits: Hit[], index?: number) => void; close: () => void };

const EvidenceContext = createContext<Evidence>({ open: () => {}, close: () => {} });
// pdf.js is loaded with the first evidence, not with the page.
const Drawer = lazy(() => import('./evidence-drawer').then((m) => ({ default: m.EvidenceDrawer })));

export function EvidenceProvider({ children }: { children: ReactNode }) {
  const [current, setCurrent] = useState<OpenEvidence | null>(null);
  const opener = useRef<HTMLElement | null>(null);
  const evidence = useMemo<Evidence>(
    () => ({
      open: (hits, index = 0) => {
        if (document.activeElement instanceof HTMLElement) opener.current = document.activeElement;
        setCurrent({ hits, index });
      },
      close: () => {
        setCurrent(null);
        // Back to the citation, once the drawer has left the page.
        requestAnimationFrame(() => opener.current?.focus());
      },
    }),
    [],
  );
  return (
    <EvidenceContext value={evidence}>
      {children}
      {current && (
        <Suspense>
          <Drawer evidence={current} onMove={setCurrent} onClose={evidence.close} />
        </Suspense>
      )}
    </EvidenceContext>
  );
}

/** Open the evidence drawer from anywhere: `useEvidence().open(hits, index)`. */
export function useEvidence(): Evidence {
  return useContext(EvidenceContext);
}

import { useElementSize } from '@mantine/hooks';
import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { fetchRaw } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import type { Hit } from './context';
import classes from './evidence.module.css';
import { type Located, toBox } from './locate';
import { Overlay } from './overlay';
import { evidenceWords } from './words';

const MAX_FIT_PX = 880;

/** A picture or scan with boxes over the passage. Decoded to pixels, so that nothing of it runs. */
export function ImageView({
  path,
  title,
  hit,
  tools,
  onFailure,
}: {
  path: string;
  title: string;
  hit: Hit | undefined;
  tools?: ReactNode;
  onFailure: () => void;
}) {
  const words = useWords(evidenceWords);
  const { ref: wrap, width: room } = useElementSize();
  const width = Math.min(room, MAX_FIT_PX);
  const canvas = useRef<HTMLCanvasElement>(null);
  const paper = useRef<HTMLDivElement>(null);
  const [ratio, setRatio] = useState(1);
  const fail = useRef(onFailure);
  fail.current = onFailure;
  useEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      const response = await fetchRaw(path, { signal: abort.signal });
      const bitmap = await createImageBitmap(await response.blob());
      const target = canvas.current;
      if (abort.signal.aborted || target === null) return;
      target.width = bitmap.width;
      target.height = bitmap.height;
      setRatio(bitmap.height / bitmap.width);
      target.getContext('2d')?.drawImage(bitmap, 0, 0);
      bitmap.close();
    };
    load().catch(() => {
      if (!abort.signal.aborted) fail.current();
    });
    return () => abort.abort();
  }, [path]);
  const located = useMemo<Located[]>(() => {
    const boxes = (hit?.spans ?? []).map((span) => toBox(span.box)).filter((box) => box !== null);
    return boxes.length > 0 ? [{ boxes, isExact: true }] : [];
  }, [hit]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: scrolls when the passage moves.
  useEffect(() => {
    paper.current?.querySelector('[data-evidence-box]')?.scrollIntoView({ block: 'center' });
  }, [located, ratio, width > 0]);
  return (
    <>
      {tools && <div className={classes.tools}>{tools}</div>}
      <div className={classes.canvasArea}>
        <div ref={wrap}>
          <div ref={paper} className={classes.paper} style={{ width, height: width * ratio }}>
            <canvas
              ref={canvas}
              role="img"
              aria-label={words.imageOf(title)}
              style={{ width, height: width * ratio }}
            />
            <Overlay located={located} />
            {hit?.quote && <p className={classes.hidden}>{`${words.quote}: ${hit.quote}`}</p>}
          </div>
        </div>
      </div>
    </>
  );
}

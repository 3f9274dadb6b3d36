import { useEffect, useState } from 'react';
import { useWords } from '@/shared/i18n';
import classes from './documents.module.css';
import { filesOf, urlOf } from './dropped';
import { type UploadTarget, uploads } from './uploads';
import { documentsWords } from './words';

/** Files and folders that are dropped or pasted anywhere on the page. */
export function DropArea({
  target,
  onUrl,
}: {
  target: UploadTarget;
  /** A pasted address, which the reader confirms first. */
  onUrl: (url: string) => void;
}) {
  const words = useWords(documentsWords);
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes('Files') ?? false;
    const onDragOver = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const onDragLeave = (event: DragEvent) => {
      // Leaving one element for another within the page is not leaving.
      if (event.relatedTarget === null) setOver(false);
    };
    const onDrop = (event: DragEvent) => {
      setOver(false);
      if (!hasFiles(event) || event.dataTransfer === null) return;
      event.preventDefault();
      void filesOf(event.dataTransfer).then((files) => uploads.add(files, target));
    };
    const onPaste = (event: ClipboardEvent) => {
      if (event.clipboardData === null || isField(event.target)) return;
      const url = urlOf(event.clipboardData.getData('text/plain'));
      if (url !== null) onUrl(url);
      else void filesOf(event.clipboardData).then((files) => uploads.add(files, target));
    };
    window.addEventListener('dragover', onDragOver);
    window.addEventListener('dragleave', onDragLeave);
    window.addEventListener('drop', onDrop);
    window.addEventListener('paste', onPaste);
    return () => {
      window.removeEventListener('dragover', onDragOver);
      window.removeEventListener('dragleave', onDragLeave);
      window.removeEventListener('drop', onDrop);
      window.removeEventListener('paste', onPaste);
    };
  }, [target, onUrl]);
  if (!isOver) return null;
  return (
    <div className={classes.drop}>
      <strong style={{ fontSize: 18 }}>{words.drop}</strong>
      {target.collection && (
        <span className="muted foreign">{words.dropTo(target.collection)}</span>
      )}
    </div>
  );
}

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input, textarea, [contenteditable]');
}

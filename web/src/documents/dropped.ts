/** The files of a drop or a paste, those in folders included. */
export async function filesOf(data: DataTransfer): Promise<File[]> {
  // The entries are gone after the event, so they are taken before anything is awaited.
  const entries = [...data.items].flatMap((item) => item.webkitGetAsEntry?.() ?? []);
  if (entries.length === 0) return [...data.files];
  return (await Promise.all(entries.map(readEntry))).flat().filter(isWanted);
}

async function readEntry(entry: FileSystemEntry): Promise<File[]> {
  if (entry.isFile) {
    return [
      await new Promise<File>((resolve, reject) =>
        (entry as FileSystemFileEntry).file(resolve, reject),
      ),
    ];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: File[] = [];
  // A reader returns at most 100 entries at a time.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) =>
      reader.readEntries(resolve, reject),
    );
    if (some.length === 0) return files;
    for (const child of some) files.push(...(await readEntry(child)));
  }
}

/** Folders hold files that the system puts there, such as .DS_Store. */
export function isWanted(file: File): boolean {
  return !file.name.startsWith('.') && file.name !== 'Thumbs.db';
}

/** The address in a pasted text, if it is nothing else. */
export function urlOf(text: string): string | null {
  const trimmed = text.trim();
  return /^https?:\/\/\S+$/.test(trimmed) && URL.canParse(trimmed) ? trimmed : null;
}

import { CopyButton, Menu } from '@mantine/core';
import { useWords } from '../i18n';
import { sharedWords } from '../words';

/** An entry of a menu that copies a text and says so. */
export function CopyItem({ label, text }: { label: string; text: string }) {
  const words = useWords(sharedWords);
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Menu.Item closeMenuOnClick={false} onClick={copy}>
          {copied ? words.copied : label}
        </Menu.Item>
      )}
    </CopyButton>
  );
}

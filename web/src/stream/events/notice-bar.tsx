import { Button, Group } from '@mantine/core';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import type { Notice } from './event-log';
import { eventWords } from './words';

/** What the stream says about itself: it skipped events, restarted or waits for the log. */
export function NoticeBar({
  notice,
  onReload,
  onDismiss,
}: {
  notice: Notice;
  onReload: () => void;
  onDismiss: () => void;
}) {
  const words = useWords(eventWords);
  const format = useFormat();
  return (
    <Group className="panel" role="alert" gap="sm" px="sm" py={6} wrap="nowrap">
      <span className="warn foreign" style={{ flex: 1 }}>
        <span aria-hidden="true">◆ </span>
        {notice.kind === 'dropped'
          ? words.dropped(format.count(notice.missed), notice.isLowerBound)
          : notice.kind === 'reset'
            ? words.reset
            : `${notice.detail} ${notice.remedy}`}
      </span>
      <Button
        variant="default"
        onClick={() => {
          onDismiss();
          onReload();
        }}
      >
        {words.reload}
      </Button>
      <Button variant="subtle" onClick={onDismiss}>
        {words.dismiss}
      </Button>
    </Group>
  );
}

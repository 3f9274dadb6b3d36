import { Button, Code, Drawer, Group, Stack, Text, Title } from '@mantine/core';
import { useMediaQuery } from '@mantine/hooks';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { sharedWords } from '@/shared/words';
import classes from '../stream.module.css';
import { stageLabel, streamWords } from '../words';
import type { Act } from './act-dialog';
import { type DeadLetter, nameOf } from './selection';
import { deadLetterWords } from './words';

/** One dead letter: what happened, what to do, where it is in the log. */
export function LetterDrawer({
  letter,
  onAct,
  onClose,
}: {
  letter: DeadLetter | undefined;
  onAct: (act: Act) => void;
  onClose: () => void;
}) {
  const shared = useWords(sharedWords);
  const isNarrow = useMediaQuery('(max-width: 900px)');
  return (
    <Drawer
      opened={letter !== undefined}
      onClose={onClose}
      position="right"
      size={isNarrow ? '100%' : '44%'}
      title={<span className="foreign">{letter && nameOf(letter)}</span>}
      closeButtonProps={{ 'aria-label': shared.close }}
      overlayProps={{ backgroundOpacity: 0.1 }}
      transitionProps={{ duration: 120 }}
    >
      {letter && <Letter letter={letter} onAct={onAct} />}
    </Drawer>
  );
}

function Letter({ letter, onAct }: { letter: DeadLetter; onAct: (act: Act) => void }) {
  const words = useWords(deadLetterWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const selection = { event_ids: [letter.event_id] };
  const values: Record<keyof typeof words.fields, ReactNode> = {
    stage: stageLabel(stream, letter.stage),
    generation: letter.generation,
    original_type: <span className="mono foreign">{letter.original_type}</span>,
    position: (
      <span className="mono">
        {letter.topic} {letter.partition}:{letter.offset}
      </span>
    ),
    attempts: format.count(letter.attempts),
    dead_lettered_at: format.exact(letter.dead_lettered_at),
    title: letter.title,
    filename: letter.filename,
    external_id: letter.external_id,
    source_uri: letter.source_uri,
    event_id: <span className="mono">{letter.event_id}</span>,
    producer_event_id: letter.producer_event_id && (
      <span className="mono">{letter.producer_event_id}</span>
    ),
    producer_source: letter.producer_source && (
      <span className="mono">{letter.producer_source}</span>
    ),
  };
  return (
    <Stack gap="md">
      <div>
        <Text fw={600} className="bad foreign">
          {letter.detail}
        </Text>
        <Text className="foreign">{letter.remedy}</Text>
        <Code>{letter.code}</Code>
      </div>
      <Group gap="xs">
        <Button onClick={() => onAct({ kind: 'redrive', selection })}>{words.redrive('1')}</Button>
        <Button variant="default" onClick={() => onAct({ kind: 'discard', selection })}>
          {words.discard('1')}
        </Button>
        {letter.document_id && (
          <>
            <Button
              component={Link}
              variant="default"
              to="/documents/$document"
              params={{ document: letter.document_id } as never}
            >
              {words.openDocument}
            </Button>
            <Button
              component={Link}
              variant="default"
              to="/events"
              search={{ key: letter.document_id } as never}
            >
              {words.openEvents}
            </Button>
          </>
        )}
      </Group>
      <dl className={classes.fields}>
        {Object.entries(values)
          .filter(([, value]) => value)
          .map(([name, value]) => (
            <div key={name}>
              <dt>{words.fields[name as keyof typeof words.fields]}</dt>
              <dd className="foreign">{value}</dd>
            </div>
          ))}
      </dl>
      {letter.traceback && (
        <Stack gap={4}>
          <Title order={2}>{words.traceback}</Title>
          <pre className={`panel mono foreign ${classes.payload}`}>{letter.traceback}</pre>
        </Stack>
      )}
    </Stack>
  );
}

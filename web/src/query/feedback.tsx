import { Button, Group, Popover, Stack, Text, Textarea, Tooltip } from '@mantine/core';
import { useMutation } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useCan } from '@/shared/api/identity';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { ErrorState } from '@/shared/ui/states';
import type { Answer } from './run-data';
import { queryWords } from './words';

type Feedback = Schemas['FeedbackRequest'];
// Contains the answer.
const BEST_GRADE = 3;

/** Say whether the answer is right; each statement becomes an event. */
export function FeedbackRow({ answer }: { answer: Answer }) {
  const words = useWords(queryWords).feedback;
  const canPin = useCan('writer');
  const send = useMutation({
    mutationFn: (body: Partial<Feedback> & { done?: string }) => {
      const { done: _, ...feedback } = body;
      return call(
        api.POST('/v1/feedback', { body: { run_id: answer.run_id, ...feedback } as Feedback }),
      );
    },
  });
  const cited = [...new Set(answer.citations.map((citation) => citation.chunk_id))];
  if (send.isSuccess) return <State tone="ok" label={send.variables.done ?? words.sent} />;
  return (
    <Stack gap={8}>
      <Group gap={6} role="group" aria-label={words.label}>
        {cited.length > 0 && (
          <>
            <Button
              variant="default"
              size="compact-xs"
              loading={send.isPending}
              onClick={() => send.mutate({ useful: true, chunk_ids: cited })}
            >
              {words.useful}
            </Button>
            <WrongPassage answer={answer} onSend={send.mutate} />
          </>
        )}
        <TextFeedback
          label={words.missing}
          hint={words.whatMissing}
          onSend={(note) => send.mutate({ useful: false, note })}
        />
        <TextFeedback
          label={words.correct}
          hint={words.correction}
          initial={answer.answer ?? ''}
          onSend={(corrected_answer) => send.mutate({ useful: false, corrected_answer })}
        />
        {canPin && cited.length > 0 && (
          <Tooltip label={words.pinHint}>
            <Button
              variant="default"
              size="compact-xs"
              onClick={() =>
                send.mutate({
                  useful: true,
                  grades: Object.fromEntries(cited.map((id) => [id, BEST_GRADE])),
                  done: words.pinned,
                })
              }
            >
              {words.pin}
            </Button>
          </Tooltip>
        )}
      </Group>
      {send.isError && <ErrorState error={send.error} />}
    </Stack>
  );
}

function WrongPassage({
  answer,
  onSend,
}: {
  answer: Answer;
  onSend: (feedback: Partial<Feedback>) => void;
}) {
  const words = useWords(queryWords).feedback;
  return (
    <PopoverButton label={words.wrong}>
      {(close) => (
        <Stack gap={4}>
          <Text size="sm">{words.whichWrong}</Text>
          {answer.citations.map((citation) => (
            <Button
              key={citation.n}
              variant="subtle"
              justify="flex-start"
              onClick={() => {
                close();
                onSend({ useful: false, chunk_ids: [citation.chunk_id], note: citation.quote });
              }}
            >
              <span dir="auto" className="truncate foreign">
                {citation.n} · {citation.quote}
              </span>
            </Button>
          ))}
        </Stack>
      )}
    </PopoverButton>
  );
}

function TextFeedback({
  label,
  hint,
  initial = '',
  onSend,
}: {
  label: string;
  hint: string;
  initial?: string;
  onSend: (text: string) => void;
}) {
  const words = useWords(queryWords).feedback;
  const [text, setText] = useState(initial);
  return (
    <PopoverButton label={label}>
      {(close) => (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            close();
            onSend(text);
          }}
        >
          <Stack gap={8} align="flex-start">
            <Textarea
              w="100%"
              label={hint}
              autosize
              minRows={3}
              maxRows={10}
              maxLength={20_000}
              value={text}
              onChange={(event) => setText(event.currentTarget.value)}
              data-autofocus
            />
            <Button type="submit" disabled={text.trim() === '' || text === initial}>
              {words.send}
            </Button>
          </Stack>
        </form>
      )}
    </PopoverButton>
  );
}

function PopoverButton({
  label,
  children,
}: {
  label: string;
  children: (close: () => void) => ReactNode;
}) {
  const [opened, setOpened] = useState(false);
  return (
    <Popover
      opened={opened}
      onChange={setOpened}
      width={380}
      position="bottom-start"
      shadow="md"
      trapFocus
      returnFocus
    >
      <Popover.Target>
        <Button variant="default" size="compact-xs" onClick={() => setOpened(!opened)}>
          {label}
        </Button>
      </Popover.Target>
      <Popover.Dropdown aria-label={label}>{children(() => setOpened(false))}</Popover.Dropdown>
    </Popover>
  );
}

import { Anchor, NumberInput, Text, TextInput } from '@mantine/core';
import { notifications } from '@mantine/notifications';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, call } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import { QueryState } from '@/shared/ui/states';
import { stageLabel, streamWords } from '../words';
import type { Selection } from './selection';
import { deadLetterWords } from './words';

export type Act = { kind: 'redrive' | 'discard'; selection: Selection };

const redrive = (body: Selection & { dry_run: boolean; per_second: number | null }) =>
  call(api.POST('/v1/dead-letters/redrive', { body: { all: false, ...body } }));
const discard = (body: Selection & { dry_run: boolean; reason: string }) =>
  call(api.POST('/v1/dead-letters/discard', { body: { all: false, ...body } }));

/** What the act would do, by a dry run, then the act itself. */
export function ActDialog({ act, onClose }: { act: Act | null; onClose: () => void }) {
  // Without an act nothing is mounted, so that each starts with empty fields.
  if (act === null) return null;
  return act.kind === 'redrive' ? (
    <RedriveDialog selection={act.selection} onClose={onClose} />
  ) : (
    <DiscardDialog selection={act.selection} onClose={onClose} />
  );
}

type DialogProps = { selection: Selection; onClose: () => void };

function RedriveDialog({ selection, onClose }: DialogProps) {
  const words = useWords(deadLetterWords);
  const stream = useWords(streamWords);
  const format = useFormat();
  const client = useQueryClient();
  const [perSecond, setPerSecond] = useState<number | null>(null);
  const plan = useQuery({
    queryKey: ['dead-letters', 'plan', 'redrive', selection],
    queryFn: () => redrive({ ...selection, dry_run: true, per_second: null }),
    staleTime: 0,
  });
  const confirm = async () => {
    const receipt = await redrive({ ...selection, dry_run: false, per_second: perSecond });
    await client.invalidateQueries({ queryKey: ['dead-letters'] });
    notifications.show({
      message: (
        <>
          {words.redriven(format.count(receipt.events))}{' '}
          <Anchor component={Link} to="/replays" size="sm">
            {words.follow}
          </Anchor>
        </>
      ),
    });
  };
  return (
    <Confirm
      opened
      onClose={onClose}
      action={words.redriveTitle(plan.data ? format.count(plan.data.events) : '…')}
      onConfirm={confirm}
      disabled={!plan.data?.events}
    >
      <Text size="sm">{words.redriveHint}</Text>
      <QueryState query={plan} rows={2}>
        {({ events, stages, skipped }) => (
          <div>
            <Text size="sm" fw={600}>
              {words.plan(
                format.count(events),
                Object.entries(stages)
                  .map(([stage, count]) => `${stageLabel(stream, stage)} ${format.count(count)}`)
                  .join(', ') || '—',
              )}
            </Text>
            {skipped > 0 && (
              <Text size="sm" className="warn">
                {words.skipped(format.count(skipped))}
              </Text>
            )}
          </div>
        )}
      </QueryState>
      <NumberInput
        label={words.perSecond}
        placeholder={words.noLimit}
        min={0.1}
        value={perSecond ?? ''}
        onChange={(value) => setPerSecond(typeof value === 'number' ? value : null)}
      />
    </Confirm>
  );
}

function DiscardDialog({ selection, onClose }: DialogProps) {
  const words = useWords(deadLetterWords);
  const format = useFormat();
  const client = useQueryClient();
  const [reason, setReason] = useState('');
  const plan = useQuery({
    queryKey: ['dead-letters', 'plan', 'discard', selection],
    // A dry run stores no reason, but the API wants one.
    queryFn: () => discard({ ...selection, dry_run: true, reason: 'dry run' }),
    staleTime: 0,
  });
  const confirm = async () => {
    const receipt = await discard({ ...selection, dry_run: false, reason: reason.trim() });
    await client.invalidateQueries({ queryKey: ['dead-letters'] });
    notifications.show({ message: words.discarded(format.count(receipt.events)) });
  };
  return (
    <Confirm
      opened
      danger
      onClose={onClose}
      action={words.discardTitle(plan.data ? format.count(plan.data.events) : '…')}
      onConfirm={confirm}
      disabled={!plan.data?.events || reason.trim() === ''}
    >
      <Text size="sm">{words.discardHint}</Text>
      <QueryState query={plan} rows={1}>
        {({ events }) => (
          <Text size="sm" fw={600}>
            {words.planDiscard(format.count(events))}
          </Text>
        )}
      </QueryState>
      <TextInput
        label={words.reason}
        description={words.reasonHint}
        required
        maxLength={500}
        value={reason}
        onChange={(event) => setReason(event.currentTarget.value)}
        data-autofocus
      />
    </Confirm>
  );
}

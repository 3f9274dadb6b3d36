import { Checkbox, NumberInput, Select, SimpleGrid, Stack, Text } from '@mantine/core';
import { useState } from 'react';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { Confirm } from '@/shared/ui/confirm';
import { useDone } from './acts';
import type { Generation } from './config-diff';
import { BOUNDS, GATE } from './gate';
import { PeriodSelect, sinceOf } from './period';
import { generationWords } from './words';

export type Refusal = { name: string; result: Schemas['PromotionResponse'] };

/** Promote, by default only if a comparison with the live generation meets every bound. */
export function PromoteDialog({
  generation,
  live,
  onClose,
  onRefused,
}: {
  generation: Generation;
  live: Generation | undefined;
  onClose: () => void;
  onRefused: (refusal: Refusal) => void;
}) {
  const words = useWords(generationWords);
  const done = useDone();
  const [hasGate, setHasGate] = useState(true);
  const [isForced, setForced] = useState(false);
  const [gain, setGain] = useState('none');
  const [bounds, setBounds] = useState(GATE);
  const [period, setPeriod] = useState('30');
  const { name } = generation;
  const promote = async () => {
    const gate = {
      ...bounds,
      gain: gain === 'none' ? null : { metric: gain as 'ndcg@10' | 'mrr@10', above: 0 },
    };
    const body = {
      force: isForced,
      gate: hasGate ? gate : null,
      comparison: { queries: 200, answers: false, golden: [], since: sinceOf(period) },
    };
    const result = await call(
      api.POST('/v1/generations/{name}/promote', {
        params: { path: { name } },
        body: body as Schemas['PromotionRequest'],
      }),
    );
    if (result.promoted) await done(words.promoted(name));
    else onRefused({ name, result });
  };
  return (
    <Confirm opened onClose={onClose} action={words.promote(name)} onConfirm={promote}>
      <Text size="sm">{words.promoteHint(live?.name ?? '')}</Text>
      <Checkbox
        label={words.gate}
        description={hasGate ? undefined : words.noGate}
        checked={hasGate}
        onChange={(event) => setHasGate(event.currentTarget.checked)}
      />
      {hasGate && (
        <Stack gap="xs" pl="lg">
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="xs">
            <PeriodSelect value={period} onChange={setPeriod} />
            <Select
              label={words.gain}
              data={Object.entries(words.gains).map(([value, label]) => ({ value, label }))}
              value={gain}
              allowDeselect={false}
              onChange={(value) => setGain(value ?? 'none')}
            />
            {BOUNDS.map((bound) => (
              <NumberInput
                key={bound}
                label={words.bounds[bound]}
                min={0}
                step={GATE[bound] >= 10 ? 1 : 0.05}
                value={bounds[bound]}
                onChange={(value) => setBounds({ ...bounds, [bound]: Number(value) })}
              />
            ))}
          </SimpleGrid>
        </Stack>
      )}
      <Checkbox
        label={words.force}
        checked={isForced}
        onChange={(event) => setForced(event.currentTarget.checked)}
      />
    </Confirm>
  );
}

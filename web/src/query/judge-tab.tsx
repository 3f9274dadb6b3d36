import { Group, Stack, Text, Title } from '@mantine/core';
import type { Schemas } from '@/shared/api/client';
import { useFormat } from '@/shared/format';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { EmptyState } from '@/shared/ui/states';
import type { TabProps } from './run-page';
import { runWords } from './run-words';
import classes from './tabs.module.css';

type Verdict = Schemas['JudgeVerdict'];
type Check = Schemas['JudgeCheck'];
const TONES = { pass: 'ok', fail: 'bad', not_checked: 'idle' } as const;

/** The checks of the answer: what each found, and what a failure does. */
export function JudgeTab({ run }: TabProps) {
  const words = useWords(runWords).judge;
  const verdict = run.answer?.judge;
  if (!verdict) return <EmptyState title={words.none} />;
  return (
    <Stack gap="lg">
      <VerdictView verdict={verdict} />
      {verdict.rejected && (
        <section>
          <Title order={2} pb={8}>
            {words.rejected}
          </Title>
          <VerdictView verdict={verdict.rejected} />
        </section>
      )}
    </Stack>
  );
}

function VerdictView({ verdict }: { verdict: Verdict }) {
  const words = useWords(runWords).judge;
  const format = useFormat();
  return (
    <Stack gap="sm">
      <Group gap="md">
        <State
          tone={verdict.decision === 'PASS' ? 'ok' : 'bad'}
          label={words.decision[verdict.decision]}
        />
        {typeof verdict.overall_score === 'number' && (
          <Text size="sm" c="dimmed">
            {words.overall(format.score(verdict.overall_score))}
          </Text>
        )}
      </Group>
      <div className="panel">
        {verdict.checks.map((check) => (
          <CheckRow key={check.name} check={check} />
        ))}
      </div>
    </Stack>
  );
}

function CheckRow({ check }: { check: Check }) {
  const words = useWords(runWords).judge;
  return (
    <div className={classes.check}>
      <div>
        <div style={{ fontWeight: 600 }}>{words.checks[check.name]}</div>
        <Text size="xs" c="dimmed">
          {words.kinds[check.kind]} · {words.severity[check.severity ?? 'soft']}
        </Text>
      </div>
      <State tone={TONES[check.result]} label={words.results[check.result]} />
      <Score check={check} />
      <div className="foreign muted">{check.evidence}</div>
    </div>
  );
}

/** The score as a bar with a line at the threshold. */
function Score({ check }: { check: Check }) {
  const words = useWords(runWords).judge;
  const format = useFormat();
  if (typeof check.score !== 'number') return <span className="muted">—</span>;
  const threshold = check.threshold ?? null;
  const color = check.result === 'fail' ? 'var(--bad)' : 'var(--ok)';
  return (
    <div>
      <svg width="160" height="8" aria-hidden="true" style={{ display: 'block' }}>
        <rect width="160" height="8" rx="2" fill="var(--line)" />
        <rect width={160 * Math.min(1, check.score)} height="8" rx="2" fill={color} />
        {threshold !== null && (
          <rect x={Math.min(158, 160 * threshold)} width="2" height="8" fill="var(--text)" />
        )}
      </svg>
      <Text size="xs" c="dimmed">
        {format.score(check.score)}
        {threshold !== null && ` · ${words.threshold.toLowerCase()} ${format.score(threshold)}`}
      </Text>
    </div>
  );
}

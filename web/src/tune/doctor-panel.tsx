import { Button, Group, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { api, call, type Schemas } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { ErrorState, LoadingState } from '@/shared/ui/states';
import { DataTable } from '@/shared/ui/table';
import { systemWords } from './system-words';

type Check = Schemas['CheckResult'];
const TONES = { pass: 'ok', warn: 'warn', fail: 'bad' } as const;
const ORDER: Check['state'][] = ['fail', 'warn', 'pass'];

/** What `anabranch doctor` finds on the server, the failures first. It runs when it is asked to. */
export function DoctorPanel() {
  const words = useWords(systemWords);
  const checks = useQuery({
    queryKey: ['doctor'],
    queryFn: async () => (await call(api.GET('/v1/doctor'))).items,
    enabled: false,
    retry: false,
  });
  const rows = checks.data?.toSorted((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  return (
    <Stack gap="sm">
      <Group gap="sm" align="baseline">
        <Title order={2}>{words.findings}</Title>
        <Text size="xs" c="dimmed" style={{ flex: 1 }}>
          {words.findingsHint}
        </Text>
        <Button variant="default" loading={checks.isFetching} onClick={() => checks.refetch()}>
          {rows ? words.examineAgain : words.examine}
        </Button>
      </Group>
      {checks.isError && <ErrorState error={checks.error} />}
      {checks.isFetching && !rows && <LoadingState rows={10} />}
      {rows && (
        <DataTable
          label={words.findings}
          rows={rows}
          rowKey={(row) => `${row.check} ${row.detail}`}
          maxHeight="none"
          columns={[
            { key: 'check', label: words.check, cell: (row) => row.check },
            {
              key: 'state',
              label: words.state,
              cell: (row) => <State tone={TONES[row.state]} label={words.states[row.state]} />,
            },
            {
              key: 'detail',
              label: words.detail,
              cell: (row) => <span className="foreign">{row.detail}</span>,
            },
            {
              key: 'remedy',
              label: words.remedy,
              cell: (row) => <span className="foreign">{row.remedy}</span>,
            },
          ]}
        />
      )}
    </Stack>
  );
}

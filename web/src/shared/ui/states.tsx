import { Button, Code, CopyButton, Group, Skeleton, Stack, Text, Title } from '@mantine/core';
import type { UseQueryResult } from '@tanstack/react-query';
import type { ReactNode } from 'react';
import { ApiError } from '../api/client';
import { useWords } from '../i18n';
import { sharedWords } from '../words';

/** An error as the API says it: what happened, its code, what to do. */
export function ErrorState({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const words = useWords(sharedWords);
  // Anything else is a fault of this page; the error boundary shows it.
  if (!(error instanceof ApiError)) throw error;
  const { detail, code, remedy } = error.problem;
  return (
    <Stack gap={4} p="md" role="alert" className="panel">
      <Text fw={600} className="bad foreign">
        {detail}
      </Text>
      <Text size="sm" className="foreign">
        {remedy}
      </Text>
      <Group gap="sm">
        <Code>{code}</Code>
        {onRetry && (
          <Button variant="default" onClick={onRetry}>
            {words.retry}
          </Button>
        )}
      </Group>
    </Stack>
  );
}

/** Empty is a lesson: a sentence, one action, one command to copy. */
export function EmptyState({
  title,
  action,
  command,
  children,
}: {
  title: string;
  action?: ReactNode;
  command?: string;
  children?: ReactNode;
}) {
  return (
    <Stack gap="sm" align="flex-start" p="lg" className="panel">
      <Title order={2}>{title}</Title>
      {children}
      {action}
      {command && <Command text={command} />}
    </Stack>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  const words = useWords(sharedWords);
  return (
    <Group gap={8} wrap="nowrap" maw="100%">
      <Code style={{ overflowX: 'auto', whiteSpace: 'pre' }} tabIndex={0}>
        {text}
      </Code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <Button variant="default" size="compact-xs" style={{ flexShrink: 0 }} onClick={copy}>
            {copied ? words.copied : words.copy}
          </Button>
        )}
      </CopyButton>
    </Group>
  );
}

/** Space of the real height, so that nothing jumps. */
export function LoadingState({ rows = 6, height = 32 }: { rows?: number; height?: number }) {
  const words = useWords(sharedWords);
  return (
    <Stack gap={8} aria-busy="true" aria-label={words.loading} role="status">
      {Array.from({ length: rows }, (_, row) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the rows are all alike.
        <Skeleton key={row} height={height - 8} />
      ))}
    </Stack>
  );
}

/** Loading, error or the data of a query. While a refetch fails, the old data stays visible. */
export function QueryState<T>({
  query,
  rows,
  children,
}: {
  query: UseQueryResult<T>;
  rows?: number;
  children: (data: T) => ReactNode;
}) {
  if (query.data !== undefined) {
    return (
      <>
        {query.isError && <ErrorState error={query.error} onRetry={() => query.refetch()} />}
        {children(query.data)}
      </>
    );
  }
  if (query.isError) return <ErrorState error={query.error} onRetry={() => query.refetch()} />;
  return <LoadingState {...(rows ? { rows } : {})} />;
}

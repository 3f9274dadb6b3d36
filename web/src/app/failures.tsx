import { Button, Code } from '@mantine/core';
import { type ErrorComponentProps, Link } from '@tanstack/react-router';
import { ApiError } from '@/shared/api/client';
import { useWords } from '@/shared/i18n';
import { EmptyState, ErrorState } from '@/shared/ui/states';
import { appWords } from './words';

/** A screen that threw: an error of the API as it says it, anything else with its message. */
export function ScreenFailure({ error, reset }: ErrorComponentProps) {
  const words = useWords(appWords);
  if (error instanceof ApiError) return <ErrorState error={error} onRetry={reset} />;
  return (
    <EmptyState
      title={words.crashed}
      // Also after a new release, whose files have other names.
      action={<Button onClick={() => location.reload()}>{words.reload}</Button>}
    >
      <p>{words.crashedHint}</p>
      <Code className="foreign">{error instanceof Error ? error.message : String(error)}</Code>
    </EmptyState>
  );
}

export function NotFound() {
  const words = useWords(appWords);
  return (
    <EmptyState
      title={words.notFound}
      action={
        <Button component={Link} to="/query">
          {words.home}
        </Button>
      }
    />
  );
}

import {
  ActionIcon,
  Button,
  Select,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from '@mantine/core';
import { useLiveState } from '@/shared/api/live';
import { useReadiness } from '@/shared/api/readiness';
import { LANGUAGES, type Language, useLanguage, useWords } from '@/shared/i18n';
import { State } from '@/shared/ui/bits';
import { LogPosition } from './log-position';
import classes from './shell.module.css';
import { TenantSwitch } from './tenant-switch';
import { appWords } from './words';

/** Whether the server is ready and the page live, then the reader's own choices. */
export function Header({ onHelp }: { onHelp: () => void }) {
  const words = useWords(appWords);
  const { language, setLanguage } = useLanguage();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme('light');
  const other = scheme === 'dark' ? 'light' : 'dark';
  const live = useLiveState();
  const ready = useReadiness();
  const liveLabel = {
    live: words.live,
    connecting: words.connecting,
    lost: words.connecting,
    hidden: words.paused,
  }[live.state];
  return (
    <header className={classes.header}>
      <State
        tone={ready.isSuccess ? 'ok' : ready.isError ? 'bad' : 'idle'}
        label={ready.isError ? words.notReady : words.ready}
      />
      <State tone={live.state === 'live' ? 'ok' : 'busy'} label={liveLabel} />
      <LogPosition />
      <TenantSwitch />
      <span style={{ flex: 1 }} />
      <Button
        variant="default"
        size="compact-xs"
        className={classes.wide}
        onClick={() => window.dispatchEvent(new Event('open-palette'))}
      >
        {words.search} <kbd className="mono">&nbsp;Ctrl K</kbd>
      </Button>
      <Select
        aria-label={words.language}
        w={110}
        data={Object.entries(LANGUAGES).map(([value, label]) => ({ value, label }))}
        value={language}
        allowDeselect={false}
        onChange={(value) => value && setLanguage(value as Language)}
      />
      <Tooltip label={words.theme(words[other])}>
        <ActionIcon
          variant="default"
          aria-label={words.theme(words[other])}
          onClick={() => setColorScheme(other)}
        >
          {scheme === 'dark' ? '☀' : '☾'}
        </ActionIcon>
      </Tooltip>
      <Tooltip label={words.keys}>
        <ActionIcon
          variant="default"
          className={classes.wide}
          aria-label={words.keys}
          onClick={onHelp}
        >
          ?
        </ActionIcon>
      </Tooltip>
    </header>
  );
}

import '@mantine/spotlight/styles.css';
import { Spotlight, spotlight } from '@mantine/spotlight';
import { useNavigate } from '@tanstack/react-router';
import { useEffect } from 'react';
import { useWords } from '@/shared/i18n';
import { SCREENS } from './screens';
import { useVisibleScreens } from './visible-screens';
import { appWords } from './words';

/** Ctrl K: go to a screen by its name. Loaded after the first screen. */
export function Palette() {
  const words = useWords(appWords);
  const navigate = useNavigate();
  useEffect(() => {
    window.addEventListener('open-palette', spotlight.open);
    return () => window.removeEventListener('open-palette', spotlight.open);
  }, []);
  return (
    <Spotlight
      shortcut="mod+k"
      highlightQuery
      nothingFound={words.nothingFound}
      searchProps={{ placeholder: words.search, 'aria-label': words.search }}
      actions={useVisibleScreens().map((name) => ({
        id: name,
        label: words.screens[name],
        description: words.groups[SCREENS[name].group],
        onClick: () => navigate({ to: SCREENS[name].path }),
      }))}
    />
  );
}

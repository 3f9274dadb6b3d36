import { type Role, useIdentity } from '@/shared/api/identity';
import { SCREEN_NAMES, SCREENS, type ScreenName } from './screens';

const RANKS: Role[] = ['reader', 'writer', 'admin', 'operator'];

/** The screens that the caller's role may read. */
export function useVisibleScreens(): ScreenName[] {
  const { data } = useIdentity();
  const rank = data ? RANKS.indexOf(data.role) : -1;
  return SCREEN_NAMES.filter((name) => RANKS.indexOf(SCREENS[name].role) <= rank);
}
